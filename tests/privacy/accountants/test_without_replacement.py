"""PLD of lots without replacement: the common laws, and exact mixtures by enumeration."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from accountants.suite import AccountantSuite
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from scipy.stats import norm

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant, pld
from fedpriv.privacy.accountants.without_replacement import known_here, privacy_loss
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling

PLD = PldAccountant()
DELTA = 1e-5


@pytest.fixture(scope="class")
def few_orders():
    """RDP of lots takes longer than their PLD: here at the orders that decide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pld, "_RDP", RdpAccountant("2..32"))
        yield


@pytest.mark.usefixtures("few_orders")
class TestLaws(AccountantSuite, examples=2, least_noise=2.5, most_steps=100):
    accountant = PldAccountant(discretization=1e-2)
    neighbours = REPLACE_ONE
    tolerance = 2e-2
    share_tolerance = 0.3

    def sampling(self, rate):
        return FixedSizeSampling(1000, max(1, round(1000 * rate)))


@functools.cache
def of_one_lot(records: int, lot: int, z: float):  # type: ignore[no-untyped-def]
    return privacy_loss(FixedSizeSampling(records, lot).event(z), 1e-4)


def gaussian(alpha: float, s: float) -> float:
    """H_α(N(1, s²) ‖ N(0, s²)) (Balle and Wang 2018)."""
    shift = s * math.log(alpha)
    return norm.cdf(0.5 / s - shift) - alpha * norm.cdf(-0.5 / s - shift)


@pytest.mark.few(1)
@pytest.mark.parametrize(("records", "lot", "z"), [(100, 10, 3.0), (1000, 500, 4.0), (50, 1, 1.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
def test_one_lot_has_the_closed_form(records, lot, z, epsilon):
    """δ(ε) = q H_b(P‖Q) with b = 1 + (e^ε - 1)/q."""
    found = of_one_lot(records, lot, z)
    q = lot / records
    expected = q * gaussian(1 + math.expm1(epsilon) / q, z / 2)
    assert found.get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def density(values: list[float], lot: int, z: float, at: np.ndarray) -> np.ndarray:
    """Of the noised sum of a uniform subset of ``values``, by enumerating all subsets."""
    sums = [sum(subset) for subset in itertools.combinations(values, lot)]
    return norm.pdf(at[:, None], np.array(sums)[None], z).mean(axis=1)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("records", "lot", "z"), [(4, 2, 1.0), (5, 1, 0.7), (6, 4, 2.0), (3, 3, 1.5)]
)
def test_no_pair_of_data_sets_is_above_it(records, lot, z):
    """Records in [-1, 1], one of them replaced, every pair of a grid: the exact mixture of all lots."""
    at = np.linspace(-lot - 9 * z, lot + 9 * z, 4001)
    bound = privacy_loss(FixedSizeSampling(records, lot).event(z), 1e-3)
    epsilons = np.array([-2.0, -0.5, 0.0, 0.2, 0.7, 1.5])
    limit = np.array([bound.get_delta_for_epsilon(e) for e in epsilons[epsilons >= 0]])
    highest = np.zeros_like(limit)
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), records - 1):
        for x, y in itertools.permutations((-1.0, 0.0, 1.0), 2):
            one, two = (density([*others, v], lot, z, at) for v in (x, y))
            found = [
                np.maximum(one - math.exp(e) * two, 0).sum() * (at[1] - at[0])
                for e in epsilons[epsilons >= 0]
            ]
            highest = np.maximum(highest, found)
    assert (highest <= limit + 1e-6).all()
    assert highest == pytest.approx(limit, rel=2e-3, abs=2e-6)  # and some pair attains it


def test_two_lots_in_a_row_are_not_above_it():
    """The pair that is worst for one lot, twice: δ of the product by integration in two dimensions."""
    records, lot, z = 4, 2, 1.5
    at = np.linspace(-lot - 7 * z, lot + 7 * z, 401)
    step = at[1] - at[0]
    bound = privacy_loss(FixedSizeSampling(records, lot).event(z), 1e-3).self_compose(2)
    for others in itertools.combinations_with_replacement((-1.0, 1.0), records - 1):
        for x in (-1.0, 1.0):
            one, two = (density([*others, v], lot, z, at) for v in (x, -x))
            for epsilon in (0.0, 0.5, 1.0):
                both = np.outer(one, one) - math.exp(epsilon) * np.outer(two, two)
                found = np.maximum(both, 0).sum() * step**2
                assert found <= bound.get_delta_for_epsilon(epsilon) + 1e-5


def test_the_lots_of_adap_dpfl():
    """n = 6000, L = 78, σ = 3: RDP has 9.24; Poisson lots of the halved multiplier, which are no bound
    here, 3.77."""
    composition = {FixedSizeSampling(6000, 78).event(3.0): 7921}
    assert PLD.epsilon_of(composition, DELTA, REPLACE_ONE) == pytest.approx(4.646, abs=2e-3)
    assert RdpAccountant().epsilon_of(composition, DELTA, REPLACE_ONE) == pytest.approx(
        9.24, abs=5e-3
    )


@pytest.mark.thorough
@settings(max_examples=examples(3))
@given(st.integers(10, 300), st.floats(2.0, 8.0), st.integers(1, 100))
def test_it_is_not_above_rdp(lot, z, steps):
    """The privacy loss itself: the accountant takes the smaller of the two."""
    event = FixedSizeSampling(1000, lot).event(z)
    rdp = RdpAccountant().epsilon_of({event: steps}, DELTA, REPLACE_ONE)
    loss = privacy_loss(event, 2e-3).self_compose(steps)
    assert loss.get_epsilon_for_delta(DELTA) <= rdp + 5e-3


def test_a_lot_of_everything_is_no_lot():
    """q = 1: the Gaussian itself, against any record in its place."""
    whole = PLD.epsilon_of({FixedSizeSampling(50, 50).event(4.0): 3}, DELTA, REPLACE_ONE)
    plain = PLD.epsilon_of({dp_event.GaussianDpEvent(2.0): 3}, DELTA, REPLACE_ONE)
    assert whole == pytest.approx(plain, abs=2e-3)


def test_only_a_gaussian_under_replace_one_is_known_here():
    event = FixedSizeSampling(50, 5).event(4.0)
    assert known_here(event, REPLACE_ONE)
    assert not known_here(event, ADD_OR_REMOVE)
    assert PLD.supports(event, ADD_OR_REMOVE) is not None
    other = dp_event.SampledWithoutReplacementDpEvent(50, 5, dp_event.LaplaceDpEvent(1.0))
    assert not known_here(other, REPLACE_ONE)
    assert PLD.supports(other, ADD_OR_REMOVE) is not None
