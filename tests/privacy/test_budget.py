from __future__ import annotations

import math

import numpy as np
import pytest
from budgets import (
    ACCOUNTANT,
    ADAP_DPFL,
    ALL,
    DELTA,
    FIRST_TWO,
    charge,
    decaying,
    joint,
    make,
    numbers,
    sound_price,
)
from checkpoints import saved
from releases import announced

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.rdp import rdp_of_event
from fedpriv.privacy.core.sampling import FixedSizeSampling
from fedpriv.privacy.noise_schedules import ValidationDecay

# ---- constant σ


def test_constant_noise_is_charged_to_the_configured_accountant():
    budget = make()
    charge(budget, joint(), rounds=50)
    expected = ACCOUNTANT.epsilon_of({joint().event(): 50}, DELTA, ADD_OR_REMOVE)
    assert budget.epsilon() == pytest.approx([expected] * 3)


def test_constant_noise_published_is_the_claims_price():
    budget = make()
    charge(budget, joint(), rounds=50)
    claimed = ADAP_DPFL.accountant().epsilon_of({joint().event(): 50}, DELTA, ADD_OR_REMOVE)
    assert budget.epsilon_published() == pytest.approx([claimed] * 3)


def test_constant_noise_sound_is_the_price_of_what_happened():
    budget = make()
    charge(budget, joint(), rounds=50)
    assert budget.epsilon_sound() == pytest.approx([sound_price({joint(): 50})] * 3)


def test_the_sound_epsilon_is_not_above_a_cruder_accountants():
    budget = make()
    charge(budget, joint(), rounds=50)
    assert (budget.epsilon_sound() <= budget.epsilon()).all()


def test_a_fresh_budget_has_spent_nothing():
    budget = make()
    for epsilon in (budget.epsilon(), budget.epsilon_published(), budget.epsilon_sound()):
        assert epsilon.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("view", ["sound", "published"])
def test_a_client_that_took_no_part_spent_nothing(view):
    budget = make(view=view)
    charge(budget, joint(), FIRST_TWO, rounds=10)
    for epsilon in (budget.epsilon(), budget.epsilon_published(), budget.epsilon_sound()):
        assert epsilon[2] == 0.0
        assert epsilon[0] > 0.0


def test_clients_may_take_part_up_to_the_published_round_count():
    """q=.013, σ=1.1, δ=1e-5, ε=2, orders 2 … 64, classical: 451 rounds."""
    budget, rounds = make(joint(1.1)), 0
    while budget.eligible(announced(joint(1.1), ALL)).all():
        charge(budget, joint(1.1))
        rounds += 1
    assert rounds == 451


def test_the_budget_never_lets_epsilon_pass_it():
    budget = make(joint(1.1))
    charge(budget, joint(1.1), rounds=451)
    assert budget.epsilon().max() <= 2.0


def test_several_samples_are_asked_for_together():
    budget = make(joint(1.1))
    charge(budget, joint(1.1), rounds=449)
    assert [budget.eligible(announced(joint(1.1), ALL, n)).all() for n in (2, 3)] == [True, False]


def test_each_client_is_stopped_by_its_own_spending():
    budget = make(joint(1.1))
    charge(budget, joint(1.1), FIRST_TWO, rounds=451)
    assert budget.eligible(announced(joint(1.1), ALL)).tolist() == [False, False, True]


def test_without_a_limit_everybody_may_always_take_part():
    budget = make(joint(0.5), epsilon=None)
    charge(budget, joint(0.5), rounds=100)
    assert budget.eligible(announced(joint(0.5), ALL, 10**6)).all()


def test_the_statistic_is_charged_jointly_with_the_gradient():
    """Sound ``scalar`` reading at σ=3: 3660 rounds instead of 7921."""
    both = joint(3.0, statistic=3.0)
    budget = make(both)
    assert budget.eligible(announced(both, ALL, 3660)).all()
    assert not budget.eligible(announced(both, ALL, 3661)).any()


def test_the_published_view_leaves_the_statistic_out():
    both = joint(3.0, statistic=3.0)
    budget = make(both, view="published")
    assert budget.eligible(announced(both, ALL, 7921)).all()
    assert not budget.eligible(announced(both, ALL, 7922)).any()


def test_the_published_view_enforces_the_claim_and_reports_both():
    both = joint(3.0, statistic=3.0)
    budget = make(both, view="published")
    charge(budget, both, rounds=20)
    assert budget.epsilon().tolist() == budget.epsilon_published().tolist()
    assert budget.epsilon_sound() == pytest.approx([sound_price({both: 20})] * 3)


def test_fixed_lots_published_as_poisson_lots_cost_more_in_truth():
    fixed = joint(sampling=FixedSizeSampling(6000, 78))
    budget = make(fixed, view="published")
    charge(budget, fixed, rounds=3000)
    assert budget.epsilon_sound() == pytest.approx([sound_price({fixed: 3000}, REPLACE_ONE)] * 3)
    assert (budget.epsilon_sound() > budget.epsilon()).all()


def test_a_release_of_the_other_relation_is_refused_and_not_charged():
    budget = make()
    charge(budget, joint())
    before = budget.epsilon().tolist()
    with pytest.raises(FedprivError):
        charge(budget, joint(sampling=FixedSizeSampling(6000, 78)))
    assert budget.epsilon().tolist() == before


# ---- adaptive σ, guarded by a filter


def test_a_filtered_budget_starts_at_the_filters_offset():
    budget = make(joint(1e6), adaptive=True)
    charge(budget, joint(1e6), FIRST_TWO)
    order = budget.order()
    offset = math.log(1 / DELTA) / (order - 1)
    assert budget.epsilon() == pytest.approx([offset, offset, 0.0])


def test_a_filtered_budget_is_what_may_be_claimed():
    budget = make(adaptive=True)
    charge(budget, joint(), FIRST_TWO)
    assert budget.epsilon_sound().tolist() == [2.0, 2.0, 0.0]


def test_an_overspent_filter_promises_nothing():
    budget = make(joint(1.1), adaptive=True)
    charge(budget, joint(1.1), FIRST_TWO, rounds=452)
    assert budget.epsilon_sound().tolist() == [np.inf, np.inf, 0.0]


def test_a_filter_stops_a_falling_noise_within_its_budget():
    budget = make(joint(1.5), adaptive=True)
    path = decaying(budget, ValidationDecay(1.5, 0.999), 5000)
    order = budget.order()
    spent = sum(rdp_of_event(joint(s).event(), (order,))[0] for s in path)
    assert path[-1] < path[0]
    assert spent + math.log(1 / DELTA) / (order - 1) <= 2.0


def test_a_filter_keeps_the_order_chosen_at_the_first_noise():
    budget = make(joint(1.1), adaptive=True)
    decaying(budget, ValidationDecay(1.1, 0.9), 20)
    assert budget.order() == 9.0


def test_the_reason_names_the_filter_and_its_order():
    budget = make(adaptive=True)
    assert "filter of order 13" in budget.reasons()["epsilon"]
    assert "whole budget of the privacy filter" in budget.reasons()["epsilon_sound"]


# ---- adaptive σ without a filter


def test_adaptive_noise_under_the_published_view_has_no_sound_epsilon():
    budget = make(view="published", adaptive=True)
    charge(budget, joint(), FIRST_TWO)
    assert budget.epsilon_sound().tolist() == [np.inf, np.inf, 0.0]
    assert budget.reasons()["epsilon_sound"].startswith("sigma adapts")


def test_adaptive_noise_under_the_published_view_is_enforced_by_the_claim():
    budget = make(joint(1.1), view="published", adaptive=True)
    assert budget.epsilon().tolist() == [0.0, 0.0, 0.0]
    assert budget.eligible(announced(joint(1.1), ALL, 451)).all()
    assert not budget.eligible(announced(joint(1.1), ALL, 452)).any()


@pytest.mark.thorough
@pytest.mark.parametrize("index", ["eq9", "algorithm1"])
def test_adaptive_noise_without_a_limit_is_charged_at_the_lowest_it_could_be(index):
    budget = make(joint(2.0), epsilon=None, adaptive=True)
    schedule = ValidationDecay(2.0, 0.99, index)
    path = decaying(budget, schedule, 20)
    lowest = [2.0 * 0.99 ** max(0, t - 4) for t in range(20)]
    realised = PldAccountant().epsilon_of(_counted(path), DELTA, ADD_OR_REMOVE)
    envelope = PldAccountant().epsilon_of(_counted(lowest), DELTA, ADD_OR_REMOVE)
    assert budget.epsilon_sound() == pytest.approx([envelope] * 3)
    assert envelope >= realised


def _counted(path: list[float]) -> dict:
    events = [joint(sigma).event() for sigma in path]
    return {event: events.count(event) for event in events}


def test_the_reason_names_the_lowest_noise():
    budget = make(joint(2.0), epsilon=None, adaptive=True)
    charge(budget, joint(2.0))
    assert "smallest sigma" in budget.reasons()["epsilon_sound"]


# ---- words, fractions, one round


def test_the_reason_of_the_published_number_is_the_claim():
    assert make().reasons()["epsilon_published"].startswith("Fu, Chen, Han 2022")


def test_the_reason_of_constant_noise_names_accountant_and_view():
    reasons = make().reasons()
    assert reasons["epsilon"].startswith("RDP, 63 orders from 2 to 64, classical conversion; ")
    assert reasons["epsilon"].endswith("the sound analysis")
    assert reasons["epsilon_sound"].endswith("every query of each release is charged")


def test_the_worst_clients_order_is_told():
    budget = make()
    charge(budget, joint(), rounds=7921)
    assert budget.order() == 13.0


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_fraction_spent_runs_from_nothing_to_all(adaptive):
    budget = make(joint(1.1), adaptive=adaptive)
    fractions = [budget.fraction_spent()]
    for _ in range(451):
        charge(budget, joint(1.1))
        fractions.append(budget.fraction_spent())
    assert fractions == pytest.approx([n * fractions[1] for n in range(452)])  # linear in rounds
    assert 0.99 < fractions[-1] <= 1.0


def test_there_is_no_fraction_of_no_limit():
    assert make(epsilon=None).fraction_spent() is None


# ---- state

KINDS = {
    "constant": {},
    "filtered": {"adaptive": True},
    "published": {"view": "published", "adaptive": True},
    "no limit": {"epsilon": None, "adaptive": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_budget_goes_on_exactly(kind):
    budget, restored = make(**KINDS[kind]), make(**KINDS[kind])
    charge(budget, joint(3.0), FIRST_TWO, rounds=4, lowest=joint(2.5))
    restored.load_state_dict(saved(budget.state_dict()))
    for one in (budget, restored):
        charge(one, joint(2.9), rounds=3, lowest=joint(2.4))
    assert numbers(restored) == numbers(budget)
    assert restored.reasons() == budget.reasons()


def test_a_saved_state_does_not_change_with_the_budget():
    budget, restored = make(), make()
    charge(budget, joint(), FIRST_TWO, rounds=4)
    state, before = saved(budget.state_dict()), numbers(budget)
    charge(budget, joint(), rounds=10)
    restored.load_state_dict(state)
    assert numbers(restored) == before
