from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    DOUBLED,
    GRADIENT,
    ONE_HOT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
    joint_noise_multiplier,
)

multipliers = st.floats(1e-3, 1e6)
laws = settings(max_examples=examples(100))


def two_queries(gradient: float, statistic: float) -> JointQuery:
    queries = (GaussianQuery(GRADIENT, gradient), GaussianQuery(CLIP_STATISTIC, statistic))
    return JointQuery(PoissonSampling(0.013), queries)


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


# ---- joint queries and their events


def test_the_joint_event_stands_inside_the_sampling():
    event = two_queries(3.0, 3.0).event()
    gaussian = dp_event.GaussianDpEvent(joint_noise_multiplier([3.0, 3.0]))
    assert event == dp_event.PoissonSampledDpEvent(0.013, gaussian)


def test_a_joint_query_with_a_query_without_noise_is_not_private():
    assert two_queries(3.0, 0.0).event() == dp_event.NonPrivateDpEvent()


def test_a_joint_query_without_gradient_noise_is_not_private():
    assert two_queries(0.0, 3.0).event() == dp_event.NonPrivateDpEvent()


def test_the_queries_without_noise_are_named():
    assert two_queries(3.0, 0.0).unprotected == (CLIP_STATISTIC,)
    assert two_queries(3.0, 2.0).unprotected == ()


def test_a_fixed_lot_halves_the_joint_multiplier():
    joint = JointQuery(FixedSizeSampling(100, 5), (GaussianQuery(GRADIENT, 3.0),))
    gaussian = dp_event.GaussianDpEvent(1.5)
    assert joint.event() == dp_event.SampledWithoutReplacementDpEvent(100, 5, gaussian)


def test_equal_joint_queries_are_one_key():
    assert len({two_queries(3.0, 1.0), two_queries(3.0, 1.0), two_queries(3.0, 2.0)}) == 2


# ---- queries that a replaced unit moves by less than twice their sensitivity

GDP = GdpAccountant()
REPLACED = WholeData(REPLACE_ONE)


def one_hot(multiplier: float) -> GaussianQuery:
    return GaussianQuery(CLIP_STATISTIC, multiplier, replaced=ONE_HOT, by=AGGREGATOR)


def gdp(*queries: GaussianQuery, count: int = 1) -> float:
    return GDP.epsilon_of({JointQuery(REPLACED, queries).event(): count}, 1e-5, REPLACE_ONE)


def of_mu(squared: float) -> object:
    """ε of a μ, up to what its root is found to."""
    return pytest.approx(GDP.epsilon_of_sum(squared, 1e-5), rel=1e-9, abs=1e-11)


def test_a_query_doubles_where_a_unit_is_replaced_unless_it_says_otherwise():
    assert GaussianQuery(GRADIENT, 1.0).replaced == DOUBLED == 2.0


@laws
@given(z=st.floats(0.1, 1e4))
def test_a_replaced_unit_costs_a_gradient_two_over_its_multiplier(z):
    assert gdp(GaussianQuery(GRADIENT, z)) == of_mu((2 / z) ** 2)


@laws
@given(z=st.floats(0.1, 1e4))
def test_a_replaced_unit_costs_a_one_hot_query_a_root_of_two_over_its_multiplier(z):
    assert gdp(one_hot(z)) == of_mu(2 / z**2)


@laws
@given(sigma=st.floats(0.5, 100.0), z=st.floats(0.5, 100.0), count=st.integers(1, 50))
def test_a_gradient_and_a_one_hot_query_add_their_squared_costs(sigma, z, count):
    """μ² = (2/σ)² + (√2/z)² for each sample."""
    found = gdp(GaussianQuery(GRADIENT, sigma), one_hot(z), count=count)
    assert found == of_mu(count * ((2 / sigma) ** 2 + 2 / z**2))


@pytest.mark.parametrize("sampling", [WholeData(), PoissonSampling(0.1)])
def test_where_a_unit_joins_or_leaves_a_one_hot_query_is_like_any_other(sampling):
    queries = (one_hot(3.0), GaussianQuery(GRADIENT, 3.0))
    pair = [JointQuery(sampling, (query,)).event() for query in queries]
    assert pair[0] == pair[1]


def test_a_one_hot_query_on_a_lot_of_fixed_size_has_the_multiplier_of_its_own_sensitivity():
    event = JointQuery(FixedSizeSampling(100, 5), (one_hot(3.0),)).event()
    assert event.event.noise_multiplier == pytest.approx(3.0 / math.sqrt(2))


def test_queries_that_a_replaced_unit_moves_differently_are_different_joint_queries():
    queries = (one_hot(3.0), GaussianQuery(CLIP_STATISTIC, 3.0))
    assert len({JointQuery(REPLACED, (query,)) for query in queries}) == 2


# ---- randomized bits

BIT = RandomizedBit(CLIP_STATISTIC, 1.0)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 50.0])
def test_a_bit_is_answered_at_random_twice_as_often_as_it_is_flipped(epsilon):
    event = RandomizedBit(CLIP_STATISTIC, epsilon).event()
    assert event.num_buckets == 2
    assert event.noise_parameter == pytest.approx(2 / (1 + math.exp(epsilon)))


def test_a_bit_alone_is_randomized_response():
    assert JointQuery(REPLACED, (BIT,)).event() == BIT.event()


def test_a_bit_beside_a_gradient_is_composed_with_it():
    event = JointQuery(REPLACED, (GaussianQuery(GRADIENT, 3.0), BIT)).event()
    assert event == dp_event.ComposedDpEvent((dp_event.GaussianDpEvent(1.5), BIT.event()))


def test_gaussians_beside_a_bit_are_still_one():
    event = JointQuery(REPLACED, (GaussianQuery(GRADIENT, 3.0), BIT, one_hot(3.0))).event()
    gaussian = JointQuery(REPLACED, (GaussianQuery(GRADIENT, 3.0), one_hot(3.0))).event()
    assert event == dp_event.ComposedDpEvent((gaussian, BIT.event()))


def test_every_bit_of_a_joint_query_is_charged():
    other = RandomizedBit("other", 2.0)
    event = JointQuery(REPLACED, (GaussianQuery(GRADIENT, 3.0), BIT, other)).event()
    parts = (dp_event.GaussianDpEvent(1.5), BIT.event(), other.event())
    assert event == dp_event.ComposedDpEvent(parts)


def test_a_bit_does_not_protect_a_gradient_without_noise():
    assert (
        JointQuery(REPLACED, (GaussianQuery(GRADIENT, 0.0), BIT)).event()
        == dp_event.NonPrivateDpEvent()
    )


def test_a_bit_is_never_unprotected():
    assert JointQuery(REPLACED, (GaussianQuery(GRADIENT, 0.0), BIT)).unprotected == (GRADIENT,)


# ---- who noised what


def test_a_joint_query_is_split_by_who_noised_its_queries():
    both = JointQuery(REPLACED, (GaussianQuery(GRADIENT, 4.0), one_hot(3.0), BIT))
    assert both.noised_by(CLIENT) == JointQuery(REPLACED, (GaussianQuery(GRADIENT, 4.0), BIT))
    assert both.noised_by(AGGREGATOR) == JointQuery(REPLACED, (one_hot(3.0),))


def test_a_joint_query_of_one_alone_is_all_of_it():
    alone = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, 4.0),))
    assert alone.noised_by(CLIENT) == alone
    assert alone.noised_by(AGGREGATOR) is None


def test_each_part_of_a_joint_query_costs_less_than_all_of_it():
    queries = (GaussianQuery(GRADIENT, 4.0), one_hot(3.0))
    parts = [gdp(query) for query in queries]
    assert max(parts) < gdp(*queries) < sum(parts)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (one_hot(3.0), "clip_statistic=3"),
        (BIT, "clip_statistic=randomized_response(1)"),
        (GaussianQuery(GRADIENT, 0.123456789), "gradient_sum=0.123457"),
    ],
)
def test_a_query_reads_as_its_name_and_noise(query, words):
    assert query.describe() == words


@pytest.mark.parametrize("changed", ["name", "noise_multiplier"])
def test_a_query_cannot_be_changed_once_it_is_made(changed):
    with pytest.raises(FrozenInstanceError):
        setattr(GaussianQuery(GRADIENT, 1.0), changed, 0.1)
