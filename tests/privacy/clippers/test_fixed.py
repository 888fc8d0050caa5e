from __future__ import annotations

import math

import pytest
import torch
from clippers.suite import ClipperSuite
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import AutomaticClipper, ConstantClipper, NoClipper, PolynomialClipper

laws = settings(max_examples=examples(60))


class TestConstant(ClipperSuite):
    adapts = False

    def make(self):
        return ConstantClipper(0.7)


class TestAutomatic(ClipperSuite):
    adapts = False

    def make(self):
        return AutomaticClipper(gamma=0.01)


class TestPolynomial(ClipperSuite):
    adapts = False

    def make(self):
        return PolynomialClipper(0.7, power=2, horizon=5)


def started(clipper, clients: int = 2):  # type: ignore[no-untyped-def]
    clipper.start(clients, "cpu", None)
    return clipper


# ---- constant


def test_every_client_has_the_same_constant_clip_norm():
    clip_norms = started(ConstantClipper(0.7), 3).clip_norm(0, torch.tensor([2, 0]))
    assert clip_norms.tolist() == pytest.approx([0.7, 0.7])


@laws
@given(norm=st.floats(0.0, 1e6), clip=st.floats(1e-3, 1e6))
def test_a_record_is_scaled_by_abadis_rule(norm, clip):
    """Abadi et al. 2016: g / max(1, ‖g‖ / C)."""
    norms, clip_norms = (torch.tensor([x], dtype=torch.float64) for x in (norm, clip))
    factor = ConstantClipper(clip).factors(norms, clip_norms).item()
    assert factor == pytest.approx(1 / max(1.0, norm / clip), rel=1e-12)


def test_a_record_within_the_clip_norm_is_left_exactly_as_it_is():
    clipper = started(ConstantClipper(2.0))
    norms = torch.tensor([0.0, 0.5, 2.0])
    assert clipper.factors(norms, torch.full((3,), 2.0)).tolist() == [1.0, 1.0, 1.0]


def test_each_record_is_held_to_the_clip_norm_of_its_client():
    factors = ConstantClipper(1.0).factors(torch.tensor([4.0, 4.0]), torch.tensor([1.0, 2.0]))
    assert factors.tolist() == [0.25, 0.5]


# ---- automatic


@laws
@given(norm=st.floats(0.0, 1e12))
def test_automatic_clipping_leaves_every_record_below_one(norm):
    norms = torch.tensor([norm], dtype=torch.float64)
    assert (AutomaticClipper(0.01).factors(norms, torch.ones(1)) * norms).item() < 1.0


def test_automatic_clipping_is_the_published_rule():
    """Bu et al. 2023, AUTO-S: g / (‖g‖ + γ)."""
    factors = AutomaticClipper(0.5).factors(torch.tensor([0.0, 0.5, 3.5]), torch.ones(3))
    assert factors.tolist() == [2.0, 1.0, 0.25]


def test_the_sensitivity_of_automatic_clipping_is_one():
    assert started(AutomaticClipper()).clip_norm(0, torch.arange(2)).tolist() == [1.0, 1.0]


# ---- none


def test_no_clipping_leaves_every_record_as_it_is():
    factors = NoClipper().factors(torch.tensor([0.0, 1.0, 1e30]), torch.full((3,), math.inf))
    assert factors.tolist() == [1.0, 1.0, 1.0]


def test_no_clipping_has_no_finite_sensitivity():
    assert started(NoClipper()).clip_norm(0, torch.arange(2)).tolist() == [math.inf, math.inf]


# ---- polynomial


def clip_norms_of(clipper: PolynomialClipper, rounds: list[int]) -> list[float]:
    started(clipper, 1)
    return [clipper.clip_norm(t, torch.tensor([0])).item() for t in rounds]


def test_the_quadratic_clip_norm_is_a_quarter_at_half_the_horizon():
    assert clip_norms_of(PolynomialClipper(0.05, power=2, horizon=100), [50]) == pytest.approx(
        [0.0125]
    )


def test_the_polynomial_starts_at_the_first_clip_norm():
    assert clip_norms_of(PolynomialClipper(0.05, power=2, horizon=100), [0]) == pytest.approx(
        [0.05]
    )


def test_a_polynomial_of_power_one_falls_on_a_line():
    clip_norms = clip_norms_of(PolynomialClipper(8.0, horizon=4), [0, 1, 2, 3])
    assert clip_norms == pytest.approx([8.0, 6.0, 4.0, 2.0])


def test_a_polynomial_of_power_zero_is_constant_even_beyond_the_horizon():
    clip_norms = clip_norms_of(PolynomialClipper(0.5, power=0, horizon=3), [0, 1, 2, 3, 4])
    assert clip_norms == [0.5] * 5


@pytest.mark.parametrize("round_index", [10, 11, 10**6])
def test_from_the_horizon_on_the_clip_norm_is_the_floor(round_index):
    clipper = PolynomialClipper(1.0, power=2, horizon=10, min_clip_norm=0.25)
    assert clip_norms_of(clipper, [round_index]) == [0.25]


def test_the_polynomial_does_not_fall_below_the_floor_before_the_horizon():
    clipper = PolynomialClipper(1.0, horizon=10, min_clip_norm=0.25)
    assert clip_norms_of(clipper, [7, 8, 9]) == pytest.approx([0.3, 0.25, 0.25])


@laws
@given(
    power=st.floats(0.0, 8.0),
    horizon=st.integers(1, 1000),
    rounds=st.tuples(*[st.integers(0, 1200)] * 2),
)
def test_a_polynomial_clip_norm_never_grows(power, horizon, rounds):
    clipper = PolynomialClipper(1.0, power, horizon)
    assert clipper.value(max(rounds)) <= clipper.value(min(rounds))


def test_every_client_has_the_clip_norm_of_the_round():
    clipper = started(PolynomialClipper(8.0, horizon=4), 3)
    assert clipper.clip_norm(1, torch.tensor([2, 0])).tolist() == [6.0, 6.0]


# ---- all of them


@pytest.mark.parametrize(
    "clipper",
    [NoClipper(), ConstantClipper(1.0), AutomaticClipper(), PolynomialClipper(1.0, horizon=2)],
    ids=lambda c: type(c).__name__,
)
def test_a_fixed_clip_norm_asks_nothing_of_the_data(clipper):
    assert clipper.query(0, 3.0) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "clip_norm must be > 0 and <= 1e+12, got -1"),
        (0, "clip_norm must be > 0 and <= 1e+12, got 0"),
        (2e12, "clip_norm must be > 0 and <= 1e+12, got 2000000000000.0"),
        (math.inf, "clip_norm must be finite, > 0 and <= 1e+12, got inf"),
        (math.nan, "clip_norm must be finite, > 0 and <= 1e+12, got nan"),
        ("1", "clip_norm must be a number > 0 and <= 1e+12, got 1"),
        (True, "clip_norm must be a number > 0 and <= 1e+12, got true"),
        (None, "clip_norm must be a number > 0 and <= 1e+12, got null"),
    ],
)
def test_a_clip_norm_that_cannot_be_is_refused(value, message):
    with pytest.raises(ArgumentError) as caught:
        ConstantClipper(value)
    assert str(caught.value) == message


def test_a_gamma_that_is_not_positive_is_refused():
    with pytest.raises(ArgumentError) as caught:
        AutomaticClipper(gamma=0)
    assert str(caught.value) == "gamma must be > 0, got 0"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"horizon": None},
            "horizon must be a whole number >= 1 when rounds is null, which it defaults to, got null",
        ),
        ({"horizon": 0}, "horizon must be a whole number >= 1, got 0"),
        ({"horizon": 2.5}, "horizon must be a whole number >= 1, got 2.5"),
        ({"power": -1}, "power must be >= 0, got -1"),
        ({"initial_clip_norm": 0}, "initial_clip_norm must be > 0 and <= 1e+12, got 0"),
        ({"min_clip_norm": 0}, "min_clip_norm must be > 0, got 0"),
        ({"min_clip_norm": 2}, "min_clip_norm must be <= 1, which is initial_clip_norm, got 2"),
    ],
    ids=str,
)
def test_an_argument_of_the_polynomial_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ArgumentError) as caught:
        PolynomialClipper(**{"initial_clip_norm": 1.0, "horizon": 10, **keys})
    assert str(caught.value) == message
