"""Events as text and back."""

from __future__ import annotations

import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.core.events import describe_event, event_words, parse_event
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
)
from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, JointQuery, RandomizedBit


@given(rate=st.floats(1e-9, 1.0), multiplier=st.floats(1e-9, 1e9))
def test_every_event_comes_back_exactly(rate, multiplier):
    samplings = (
        PoissonSampling(rate),
        FixedSizeSampling(6000, 78),
        TruncatedPoissonSampling(rate, 6000, 90),
        WholeData(),
        WholeData(REPLACE_ONE),
    )
    for sampling in samplings:
        event = sampling.event(multiplier)
        assert parse_event(describe_event(event)) == event


@given(
    multiplier=st.floats(1e-300, 1e300),
    epsilons=st.lists(st.floats(1e-3, 50.0), min_size=1, max_size=3),
)
def test_bits_alone_and_beside_a_gaussian_come_back_exactly(multiplier, epsilons):
    bits = tuple(RandomizedBit(f"bit {i}", epsilon) for i, epsilon in enumerate(epsilons))
    for queries in (bits, (GaussianQuery(GRADIENT, multiplier), *bits)):
        event = JointQuery(WholeData(REPLACE_ONE), queries).event()
        assert parse_event(describe_event(event)) == event


@given(rate=st.floats(1e-9, 1.0), multiplier=st.floats(1e-9, 1e9), noise=st.floats(1e-22, 1.0))
def test_any_composed_event_comes_back_exactly(rate, multiplier, noise):
    parts = (
        PoissonSampling(rate).event(multiplier),
        FixedSizeSampling(6000, 78).event(multiplier),
        TruncatedPoissonSampling(rate, 6000, 90).event(multiplier),
        dp_event.RandomizedResponseDpEvent(noise, 7),
        dp_event.NonPrivateDpEvent(),
    )
    event = dp_event.ComposedDpEvent(parts)
    assert parse_event(describe_event(event)) == event


def test_an_event_without_noise_comes_back():
    assert parse_event(describe_event(dp_event.NonPrivateDpEvent())) == dp_event.NonPrivateDpEvent()


def test_it_reads_as_one_would_write_it():
    assert describe_event(PoissonSampling(0.013).event(3.0)) == "Poisson(q=0.013, Gaussian(z=3.0))"


def test_a_composed_event_reads_as_a_sum():
    bit = dp_event.RandomizedResponseDpEvent(0.25, 2)
    event = dp_event.ComposedDpEvent((dp_event.GaussianDpEvent(3.0), bit))
    assert describe_event(event) == "Gaussian(z=3.0) + RandomizedResponse(p=0.25, k=2)"


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gaussian()", "Gaussian(z=x)", "Poisson(q=0.1)", "Poisson(q=0.1, Gaussian(z=3)", "?"),
        *("Gaussian(z=3.0) + ", " + Gaussian(z=3.0)", "Gaussian(z=3.0) + ?"),
        *("RandomizedResponse(p=0.25)", "RandomizedResponse(p=x, k=2)"),
        *("Poisson(q=1.5, Gaussian(z=3.0))", "Poisson(q=-0.5, Gaussian(z=3.0))"),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"event|float|not a probability"):
        parse_event(text)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (WholeData().event(1.0), "Gaussians without sampling"),
        (PoissonSampling(0.1).event(1.0), "Poisson lots"),
        (FixedSizeSampling(100, 5).event(1.0), "lots of fixed size without replacement"),
        (TruncatedPoissonSampling(0.1, 100, 20).event(1.0), "Poisson lots cut to a size"),
        (
            JointQuery(
                WholeData(REPLACE_ONE), (GaussianQuery(GRADIENT, 1.0), RandomizedBit("bit", 1.0))
            ).event(),
            "Gaussians without sampling with randomized responses",
        ),
        (dp_event.NonPrivateDpEvent(), "releases without noise"),
    ],
)
def test_an_event_is_named_in_words(event, words):
    assert event_words(event) == words
