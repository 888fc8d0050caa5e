"""What a randomized bit costs, alone and beside a Gaussian: PLD and RDP; the others refuse it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import UnsupportedEventError
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants import (
    GdpAccountant,
    PldAccountant,
    PrvAccountant,
    RdpAccountant,
    ZcdpAccountant,
)
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
)
from fedpriv.privacy.sound import tightest

CELL = 1e-3
PLD, RDP = PldAccountant(CELL), RdpAccountant()
DELTA, TINY = 1e-5, 1e-12
laws = settings(max_examples=examples(6))
bit_epsilons, multipliers, counts = st.floats(0.05, 3.0), st.floats(2.0, 20.0), st.integers(1, 40)


def bit(epsilon: float):  # type: ignore[no-untyped-def]
    return RandomizedBit(CLIP_STATISTIC, epsilon).event()


def pair(multiplier: float, epsilon: float):  # type: ignore[no-untyped-def]
    queries = (GaussianQuery(GRADIENT, multiplier), RandomizedBit(CLIP_STATISTIC, epsilon))
    return JointQuery(WholeData(REPLACE_ONE), queries).event()


def gaussian(multiplier: float):  # type: ignore[no-untyped-def]
    return WholeData(REPLACE_ONE).event(multiplier)


def pld(event, count: int = 1, delta: float = DELTA) -> float:  # type: ignore[no-untyped-def]
    return PLD.epsilon_of({event: count}, delta, REPLACE_ONE)


def rdp(event, count: int = 1, delta: float = DELTA) -> float:  # type: ignore[no-untyped-def]
    return RDP.epsilon_of({event: count}, delta, REPLACE_ONE)


def exact_delta(epsilon: float, of_a_bit: float, count: int) -> float:
    """δ(ε) of ``count`` bits, summed over how many of them came through unflipped."""
    kept = np.arange(count + 1)
    ways = np.array([float(math.comb(count, int(j))) for j in kept])
    keep, flip = 1 / (1 + math.exp(-of_a_bit)), 1 / (1 + math.exp(of_a_bit))
    likely = ways * keep**kept * flip ** (count - kept)
    return float(np.maximum(0.0, likely - math.exp(epsilon) * likely[::-1]).sum())


# ---- alone


@pytest.mark.parametrize("epsilon", [1e-2, 0.1, 1.0, 10.0, 50.0])
def test_one_bit_at_a_tiny_delta_costs_its_epsilon_up_to_a_cell(epsilon):
    price = PldAccountant().epsilon_of({bit(epsilon): 1}, TINY, REPLACE_ONE)
    assert epsilon - 1e-9 <= price <= epsilon + 1.1e-4


@pytest.mark.parametrize("count", [2, 5, 100])
def test_every_further_bit_costs_its_epsilon_again_at_a_tiny_delta(count):
    """dp_accounting's PLD composes a randomized response once, whatever the count it is given."""
    assert pld(bit(1.0), count, 1e-30) == pytest.approx(count, rel=2 * CELL)


@laws
@given(epsilon=st.floats(0.05, 1.4), count=st.integers(1, 10))
def test_the_price_of_bits_is_exact_up_to_a_cell_for_each(epsilon, count):
    price = pld(bit(epsilon), count)
    lower = price - count * CELL
    assert exact_delta(price, epsilon, count) <= DELTA * (1 + 1e-6)
    assert lower < 0 or exact_delta(lower, epsilon, count) >= DELTA * (1 - 1e-6)


@laws
@given(epsilon=bit_epsilons, count=counts)
def test_bits_cost_at_most_their_sum(epsilon, count):
    assert pld(bit(epsilon), count) <= count * (epsilon + CELL)


def test_rdp_of_one_bit_is_near_its_epsilon():
    assert 1.0 <= rdp(bit(1.0), delta=TINY) <= 1.03


# ---- beside a Gaussian


@laws
@given(multiplier=multipliers, epsilon=bit_epsilons, count=counts)
def test_a_bit_beside_a_gaussian_costs_more_than_the_gaussian_alone(multiplier, epsilon, count):
    assert pld(pair(multiplier, epsilon), count) > pld(gaussian(multiplier), count)


@pytest.mark.thorough
@laws
@given(multiplier=multipliers, epsilon=bit_epsilons, count=counts)
def test_a_bit_beside_a_gaussian_adds_at_most_its_epsilon(multiplier, epsilon, count):
    added = pld(pair(multiplier, epsilon), count) - pld(gaussian(multiplier), count)
    assert added <= count * (epsilon + 3 * CELL)


@pytest.mark.thorough
@laws
@given(multiplier=multipliers, epsilon=bit_epsilons, count=counts)
def test_rdp_of_a_bit_beside_a_gaussian_is_not_below_pld(multiplier, epsilon, count):
    event = pair(multiplier, epsilon)
    assert pld(event, count) <= rdp(event, count)


@laws
@given(multiplier=multipliers, epsilon=bit_epsilons, count=counts)
def test_rdp_adds_up_the_gaussian_and_the_bit(multiplier, epsilon, count):
    apart = {gaussian(multiplier): count, bit(epsilon): count}
    expected = RDP.epsilon_of(apart, DELTA, REPLACE_ONE)
    assert rdp(pair(multiplier, epsilon), count) == pytest.approx(expected)


def test_pld_of_the_pair_is_that_of_its_parts():
    apart = PLD.epsilon_of({gaussian(6.0): 10, bit(0.5): 10}, DELTA, REPLACE_ONE)
    assert pld(pair(6.0, 0.5), 10) == pytest.approx(apart, abs=20 * CELL)


def test_a_vanishing_bit_beside_a_gaussian_costs_what_the_gaussian_costs():
    fine = PldAccountant()
    alone = GdpAccountant().epsilon_of({gaussian(4.0): 1}, DELTA, REPLACE_ONE)
    beside = fine.epsilon_of({pair(4.0, 1e-4): 1}, DELTA, REPLACE_ONE)
    assert beside == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize("accountant", [PLD, RDP], ids=lambda a: a.name)
def test_a_running_total_of_pairs_is_their_composition(accountant):
    event, total = pair(5.0, 0.7), accountant.running(2, REPLACE_ONE)
    total.add(event, np.arange(2), 3)
    total.add(event, np.array([1]), 4)
    expected = [accountant.epsilon_of({event: n}, DELTA, REPLACE_ONE) for n in (3, 7)]
    assert total.epsilon(DELTA).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("accountant", [PLD, RDP], ids=lambda a: a.name)
def test_the_pair_after_the_last_allowed_one_exceeds(accountant):
    event = pair(8.0, 0.2)
    steps = accountant.steps_allowed(event, 3.0, DELTA, REPLACE_ONE)
    spent = [accountant.epsilon_of({event: n}, DELTA, REPLACE_ONE) for n in (steps, steps + 1)]
    assert spent[0] <= 3.0 < spent[1]


@pytest.mark.thorough
def test_many_noises_beside_a_bit_are_not_priced_below_the_largest_of_them():
    counts = {pair(5.0 + 0.01 * i, 0.3): 1 for i in range(40)}
    largest = rdp(pair(5.39, 0.3), 40)
    assert RDP.epsilon_of(counts, DELTA, REPLACE_ONE) >= largest


# ---- who prices it


@pytest.mark.parametrize(
    "accountant", [GdpAccountant(), ZcdpAccountant(), PrvAccountant()], ids=lambda a: a.name
)
@pytest.mark.parametrize("event", [bit(1.0), pair(4.0, 1.0)], ids=["alone", "beside a Gaussian"])
def test_others_refuse_it_with_a_reason_that_names_them(accountant, event):
    assert accountant.name in accountant.supports(event, REPLACE_ONE)


@pytest.mark.parametrize("event", [bit(1.0), pair(4.0, 1.0)], ids=["alone", "beside a Gaussian"])
def test_prv_refuses_it_for_what_it_is_under_its_own_relation(event):
    assert "randomized responses" in PrvAccountant().supports(event, ADD_OR_REMOVE)


@pytest.mark.parametrize("event", [bit(1.0), pair(4.0, 1.0)], ids=["alone", "beside a Gaussian"])
def test_pld_and_rdp_take_it_under_replace_one_only(event):
    for accountant in (PLD, RDP):
        assert accountant.supports(event, REPLACE_ONE) is None
        assert "add/remove adjacency" in accountant.supports(event, ADD_OR_REMOVE)


def test_prv_does_not_price_what_it_refuses():
    with pytest.raises(UnsupportedEventError, match="prv"):
        PrvAccountant().epsilon_of({pair(4.0, 1.0): 1}, DELTA, ADD_OR_REMOVE)


def test_the_tightest_price_of_the_pair_is_plds():
    assert tightest(pair(4.0, 1.0), REPLACE_ONE).name == "pld"
