"""Which sound price a run may give."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved
from dp_accounting import dp_event

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
)
from fedpriv.privacy.sound import Composed, Guarded, Unguarded, tightest

DELTA, ALL = 1e-5, np.arange(2)
EVENT = PoissonSampling(0.1).event(4.0)


@pytest.mark.parametrize(
    ("sampling", "neighbours", "name"),
    [
        (PoissonSampling(0.1), ADD_OR_REMOVE, "pld"),
        (TruncatedPoissonSampling(0.1, 100, 20), ADD_OR_REMOVE, "pld"),
        (WholeData(REPLACE_ONE), REPLACE_ONE, "gdp"),
        (FixedSizeSampling(100, 10), REPLACE_ONE, "pld"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_tightest_is_gdp_for_plain_gaussians_else_pld_where_it_can(sampling, neighbours, name):
    assert tightest(sampling.event(2.0), neighbours).name == name


def composed(enforced=None, by=None, lowest=False):  # type: ignore[no-untyped-def]
    return Composed(EVENT, 2, ADD_OR_REMOVE, enforced, by or RdpAccountant(), lowest)


def test_a_composition_is_priced_by_the_tightest():
    price = composed()
    for _ in range(5):
        price.add(EVENT, ALL)
    expected = PldAccountant().epsilon_of({EVENT: 5}, DELTA, ADD_OR_REMOVE)
    assert price.epsilon(DELTA).tolist() == [expected] * 2
    assert price.worst(DELTA) == expected


def test_an_enforced_price_that_is_valid_and_smaller_is_taken():
    """At very many samples, or by finer cells, another accountant may be the tighter one."""
    fine = PldAccountant(discretization=1e-5)
    enforced = fine.running(2, ADD_OR_REMOVE)
    price = Composed(EVENT, 2, ADD_OR_REMOVE, enforced, fine, lowest=False)
    enforced.add(EVENT, ALL, 4)
    for _ in range(4):
        price.add(EVENT, ALL)
    prices = [a.epsilon_of({EVENT: 4}, DELTA, ADD_OR_REMOVE) for a in (fine, PldAccountant())]
    assert price.worst(DELTA) == min(prices) < max(prices)


def test_an_enforced_pld_is_not_counted_a_second_time():
    pld = PldAccountant()
    enforced = pld.running(2, ADD_OR_REMOVE)
    price = composed(enforced, pld)
    enforced.add(EVENT, ALL, 3)
    assert price.state_dict() == {}
    assert price.worst(DELTA) == pld.epsilon_of({EVENT: 3}, DELTA, ADD_OR_REMOVE)


def test_a_state_comes_back():
    price, other = composed(), composed()
    price.add(EVENT, np.array([1]))
    other.load_state_dict(saved(price.state_dict()))
    assert other.epsilon(DELTA).tolist() == price.epsilon(DELTA).tolist()


def test_the_reason_says_why_it_is_not_pld():
    fixed = FixedSizeSampling(100, 10).event(2.0)
    other = dp_event.ComposedDpEvent((fixed, fixed))
    reason = Composed(other, 2, REPLACE_ONE, None, RdpAccountant(), False).reason()
    assert "RDP" in reason
    assert "pld cannot account for lots of fixed size without replacement" in reason
    assert Composed(fixed, 2, REPLACE_ONE, None, RdpAccountant(), False).reason().startswith("PLD")


def test_the_reason_says_where_many_histories_are_bounded_rather_than_priced():
    def price(clients: int) -> Composed:
        found = Composed(
            PoissonSampling(0.1).event(4.0), clients, ADD_OR_REMOVE, None, RdpAccountant(), False
        )
        for client in range(clients):
            found.add(PoissonSampling(0.1).event(4.0 + 0.1 * client), np.array([client]), 3)
        return found

    assert price(3).reason().startswith("PLD, ")
    many = price(20)
    assert many.reason().startswith(
        "an upper bound by RDP, for clients with many different histories"
    )
    rdp = RdpAccountant().epsilon_of({PoissonSampling(0.1).event(4.0): 3}, 1e-5, ADD_OR_REMOVE)
    assert many.worst(1e-5) == rdp


def test_a_guarded_run_costs_its_budget_and_an_overspent_one_everything():
    guard = RdpAccountant([8]).running(2, ADD_OR_REMOVE)
    price = Guarded(guard, 2.0)
    assert price.worst(DELTA) == 2.0
    guard.add(EVENT, np.array([1]), 10**6)
    assert price.epsilon(DELTA).tolist() == [2.0, np.inf]
    assert price.worst(DELTA) == np.inf


def test_nothing_finite_may_be_claimed_without_a_guard():
    assert Unguarded().worst(DELTA) == Unguarded().epsilon(DELTA) == np.inf
