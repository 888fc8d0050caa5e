from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.mechanism import (
    CLIP_STATISTIC,
    GRADIENT,
    Draw,
    Query,
    joint_noise_multiplier,
)
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling

multipliers = st.floats(1e-3, 1e6)
laws = settings(max_examples=100, deadline=None)


def two_queries(gradient: float, statistic: float) -> Draw:
    queries = (Query(GRADIENT, gradient), Query(CLIP_STATISTIC, statistic))
    return Draw(PoissonSampling(0.013), queries)


# ---- the joint multiplier


@laws
@given(z=multipliers)
def test_one_query_keeps_its_multiplier_exactly(z):
    assert joint_noise_multiplier([z]) == z


@laws
@given(zs=st.lists(multipliers, min_size=2, max_size=5))
def test_the_joint_multiplier_is_the_stacked_vectors(zs):
    expected = sum(z**-2 for z in zs) ** -0.5
    assert joint_noise_multiplier(zs) == pytest.approx(expected, rel=1e-12)


@laws
@given(zs=st.lists(multipliers, min_size=1, max_size=5))
def test_the_joint_multiplier_is_at_most_the_smallest(zs):
    assert joint_noise_multiplier(zs) <= min(zs)


@laws
@given(zs=st.lists(multipliers, min_size=2, max_size=5))
def test_the_order_of_queries_does_not_matter(zs):
    assert joint_noise_multiplier(zs) == pytest.approx(joint_noise_multiplier(zs[::-1]), rel=1e-14)


def test_two_equal_queries_cost_a_root_of_two():
    assert joint_noise_multiplier([3.0, 3.0]) == pytest.approx(3.0 / math.sqrt(2))


@pytest.mark.parametrize(
    ("z_delta", "bit_noise", "z"),
    [(1.1547005, 1.0, 1.0), (1.0012523, 10.0, 1.0), (0.5773503, 0.5, 0.5)],
)
def test_a_gradient_and_a_clipped_bit_cost_what_z_costs(z_delta, bit_noise, z):
    """Andrew et al. 2021, theorem 1: z_Δ = (z⁻² - (2σ_b)⁻²)^(-1/2); bits centred, so ½ sensitivity."""
    assert joint_noise_multiplier([z_delta, 2 * bit_noise]) == pytest.approx(z, rel=1e-6)


@pytest.mark.parametrize("zs", [[0.0], [0.0, 5.0], [5.0, 0.0, 1e6]])
def test_a_query_without_noise_leaves_no_noise(zs):
    assert joint_noise_multiplier(zs) == 0.0


def test_tiny_noise_is_no_overflow():
    assert joint_noise_multiplier([1e-200, 1.0]) == pytest.approx(1e-200)


# ---- draws and their events


def test_the_joint_event_stands_inside_the_sampling():
    event = two_queries(3.0, 3.0).event()
    gaussian = dp_event.GaussianDpEvent(joint_noise_multiplier([3.0, 3.0]))
    assert event == dp_event.PoissonSampledDpEvent(0.013, gaussian)


def test_a_draw_with_a_query_without_noise_is_not_private():
    assert two_queries(3.0, 0.0).event() == dp_event.NonPrivateDpEvent()


def test_a_draw_without_gradient_noise_is_not_private():
    assert two_queries(0.0, 3.0).event() == dp_event.NonPrivateDpEvent()


def test_the_queries_without_noise_are_named():
    assert two_queries(3.0, 0.0).unprotected == (CLIP_STATISTIC,)
    assert two_queries(3.0, 2.0).unprotected == ()


def test_a_fixed_lot_halves_the_joint_multiplier():
    draw = Draw(FixedSizeSampling(100, 5), (Query(GRADIENT, 3.0),))
    gaussian = dp_event.GaussianDpEvent(1.5)
    assert draw.event() == dp_event.SampledWithoutReplacementDpEvent(100, 5, gaussian)


def test_equal_draws_are_one_key():
    assert len({two_queries(3.0, 1.0), two_queries(3.0, 1.0), two_queries(3.0, 2.0)}) == 2
