"""Events as text and back."""

from __future__ import annotations

import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.events import describe_event, parse_event
from fedpriv.privacy.names import REPLACE_ONE
from fedpriv.privacy.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
)


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


def test_an_event_without_noise_comes_back():
    assert parse_event(describe_event(dp_event.NonPrivateDpEvent())) == dp_event.NonPrivateDpEvent()


def test_it_reads_as_one_would_write_it():
    assert describe_event(PoissonSampling(0.013).event(3.0)) == "Poisson(q=0.013, Gaussian(z=3.0))"


@pytest.mark.parametrize(
    "text",
    ["", "Gaussian()", "Gaussian(z=x)", "Poisson(q=0.1)", "Poisson(q=0.1, Gaussian(z=3)", "?"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"event|float"):
        parse_event(text)
