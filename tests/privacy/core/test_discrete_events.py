"""Sums with noise of whole numbers: what is stated is never less than the truth, in one dimension."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event

from fedpriv.privacy.accountants import (
    GdpAccountant,
    PldAccountant,
    PrvAccountant,
    RdpAccountant,
    ZcdpAccountant,
)
from fedpriv.privacy.core.discrete_events import (
    DiscreteGaussianSharesDpEvent,
    SkellamSharesDpEvent,
    l1_of,
    tau_of,
)
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.integer_noise import discrete_gaussian, skellam
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.rdp import WIDE_ORDERS, deltas_from_rdp, rdp_of_event
from fedpriv.privacy.mechanisms.discrete import SUMS, VECTORS, rounded_norm

EPSILONS = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
VARIANCES = (0.5, 0.7, 1.0, 3.0, 20.0)
SHARES = (1, 2, 3, 8)
FAMILIES = ("discrete_gaussian", "skellam")


def event_of(family: str, sensitivity: float, variance: float, shares: int, dimension: int = 1):
    if family == "skellam":
        return SkellamSharesDpEvent(sensitivity, variance * shares, dimension)
    return DiscreteGaussianSharesDpEvent(sensitivity, variance, shares, dimension)


def sum_of_shares(family: str, variance: float, shares: int) -> np.ndarray:
    """P(sum = …), symmetric about the middle."""
    law = skellam if family == "skellam" else discrete_gaussian
    share, total = law(variance).probabilities(), np.array([1.0])
    for _ in range(shares):
        total = np.convolve(total, share)
    return total


def deltas(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The larger hockey-stick divergence of the two at each of EPSILONS."""
    factor = np.exp(EPSILONS)[:, None]
    ways = [
        np.maximum(a[None] - factor * b[None], 0).sum(1) for a, b in ((one, other), (other, one))
    ]
    return np.max(ways, axis=0)


def shifted(noise: np.ndarray, by: int, width: int) -> np.ndarray:
    found = np.zeros(len(noise) + width)
    found[by : by + len(noise)] = noise
    return found


def stated(event) -> np.ndarray:
    orders = np.array(WIDE_ORDERS)
    return deltas_from_rdp(event.rdp(orders), orders, EPSILONS)


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_true_delta_in_one_dimension_never_exceeds_the_stated_one(family, variance, shares):
    noise = sum_of_shares(family, variance, shares)
    for moved in (1, 2, 5):
        truth = deltas(shifted(noise, 0, moved), shifted(noise, moved, moved))
        claim = stated(event_of(family, float(moved), variance, shares))
        assert (truth <= claim * (1 + 1e-9) + 1e-14).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stated_delta_is_not_far_above_where_noise_is_large(family):
    """Else the check above could pass for nothing: within what RDP gives away (a factor of twenty)."""
    noise = sum_of_shares(family, 20.0, 3)
    truth = deltas(shifted(noise, 0, 5), shifted(noise, 5, 5))
    claim = stated(event_of(family, 5.0, 20.0, 3))
    some = (truth > 1e-9) & (EPSILONS >= 0.5)
    assert some.any()
    assert (claim[some] < 20 * truth[some]).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_more_shares_than_are_counted_on_cost_no_more(family):
    """Dropouts that do not happen add independent noise."""
    claim = stated(event_of(family, 3.0, 1.0, 4))
    for shares in (4, 5, 7):
        noise = sum_of_shares(family, 1.0, shares)
        truth = deltas(shifted(noise, 0, 3), shifted(noise, 3, 3))
        assert (truth <= claim * (1 + 1e-9) + 1e-14).all()


def rounded(value: float, noise: np.ndarray, width: int, bound: float | None = None) -> np.ndarray:
    """The law of the randomised rounding of ``value`` ≥ 0 with noise; only what keeps to ``bound``."""
    low = math.floor(value)
    chances = {low: 1 - (value - low), low + 1: value - low}
    if bound is not None:
        chances = {k: p for k, p in chances.items() if abs(k) <= bound}
    total = sum(chances.values())
    return sum(p / total * shifted(noise, k, width) for k, p in chances.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_rounding_the_sum_of_a_client_is_within_what_is_stated(family):
    """A client's sum y and y + δ with a record more, both rounded at random: the true laws are mixtures."""
    cells, noise = 1.5, sum_of_shares(family, 2.0, 3)
    claim = stated(event_of(family, rounded_norm(cells, 1, SUMS), 2.0, 3))
    for value in (0.0, 0.3, 0.5, 0.99, 3.7):
        for moved in (0.2, 1.0, 1.5):
            truth = deltas(rounded(value, noise, 12), rounded(value + moved, noise, 12))
            assert (truth <= claim * (1 + 1e-9) + 1e-14).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_rounding_a_clients_vector_is_within_what_is_stated(family):
    """Its rounding, as long as it keeps to the bound, against zeros."""
    cells, noise = 1.5, sum_of_shares(family, 2.0, 3)
    bound = rounded_norm(cells, 1, VECTORS)
    claim = stated(event_of(family, bound, 2.0, 3))
    for value in (0.1, 0.5, 1.0, 1.3, 1.5):
        truth = deltas(rounded(0.0, noise, 12), rounded(value, noise, 12, bound))
        assert (truth <= claim * (1 + 1e-9) + 1e-14).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_with_much_noise_it_is_the_gaussian(family):
    event = event_of(family, 1000.0, 1e6, 9, 64)
    orders = (2.0, 8.0, 32.0)
    gaussian = np.array(orders) * 1000.0**2 / (2 * 9e6)
    np.testing.assert_allclose(rdp_of_event(event, orders), gaussian, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_shares_and_dimension_move_the_cost_as_they_should(family):
    orders = np.array(WIDE_ORDERS)

    def cost(*arguments) -> np.ndarray:
        return event_of(family, *arguments).rdp(orders)

    base = cost(4.0, 2.0, 5, 8)
    assert (cost(4.0, 2.5, 5, 8) < base).all()
    assert (cost(4.5, 2.0, 5, 8) > base).all()
    assert (cost(4.0, 2.0, 5, 9) >= base).all()
    assert (np.diff(base) >= -1e-12).all()  # Rényi divergences grow with the order


def test_the_formulas_are_the_printed_ones():
    """Proposition 14 of Kairouz, Liu, Steinke and corollary 3.6 of Agarwal, Kairouz, Liu, by hand."""
    assert tau_of(1.0, 1) == 0
    assert tau_of(0.5, 3) == pytest.approx(
        10 * (math.exp(-(math.pi**2) / 2) + math.exp(-2 * math.pi**2 / 3))
    )
    assert l1_of(3.0, 4) == 6.0
    assert l1_of(1.5, 100) == 2.25
    found = SkellamSharesDpEvent(2.0, 10.0, 4).rdp(np.array([3.0]))
    assert found[0] == pytest.approx(3 * 4 / 20 + min((5 * 4 + 6 * 4) / 400, 12 / 20))
    event = DiscreteGaussianSharesDpEvent(2.0, 0.5, 3, 4)
    tau, ratio = tau_of(0.5, 3), 2 / math.sqrt(1.5)
    least = min(
        2 * ratio**2 / 2 + 4 * tau,
        ratio**2 + 2 * 4 / math.sqrt(1.5) * tau + 4 * tau**2,
        (ratio + 2 * tau) ** 2,
    )
    assert event.rdp(np.array([2.0]))[0] == pytest.approx(least)
    assert np.isinf(DiscreteGaussianSharesDpEvent(2.0, 0.49, 3, 4).rdp(np.array([2.0]))).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_events_are_written_and_read_back_exactly(family):
    event = event_of(family, 1234.5678901234567, 1 / 3, 7, 1024)
    assert parse_event(describe_event(event)) == event


@pytest.mark.parametrize("family", FAMILIES)
def test_rdp_accounts_for_them_and_the_others_say_that_they_do_not(family):
    event = event_of(family, 10.0, 100.0, 10, 8)
    assert RdpAccountant().supports(event, ADD_OR_REMOVE) is None
    assert RdpAccountant().supports(event, REPLACE_ONE) is not None
    for accountant in (GdpAccountant(), ZcdpAccountant(), PldAccountant(), PrvAccountant()):
        assert "noise" in accountant.supports(event, ADD_OR_REMOVE)
    five = RdpAccountant().epsilon_of({event: 5}, 1e-5, ADD_OR_REMOVE)
    assert 0 < RdpAccountant().epsilon_of({event: 1}, 1e-5, ADD_OR_REMOVE) < five


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vector_and_a_count_on_one_sample_are_composed(family):
    """Of discrete events alone: with another kind the accountant would have to know both."""
    vector, count = event_of(family, 10.0, 100.0, 10, 8), event_of(family, 1.0, 9.0, 10)
    both, orders = dp_event.ComposedDpEvent((vector, count)), (2.0, 3.5, 16.0)
    np.testing.assert_allclose(
        rdp_of_event(both, orders), rdp_of_event(vector, orders) + rdp_of_event(count, orders)
    )
    assert RdpAccountant().supports(both, ADD_OR_REMOVE) is None
    assert PldAccountant().supports(both, ADD_OR_REMOVE) is not None
    assert parse_event(describe_event(both)) == both
