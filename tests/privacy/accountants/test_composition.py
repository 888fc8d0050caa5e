"""The running total of accountants that price whole compositions."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant, pld
from fedpriv.privacy.core.grid import on_grid, weaker_event
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling

PLD = PldAccountant()
EVENT, OTHER = PoissonSampling(0.1).event(3.0), PoissonSampling(0.1).event(5.0)


def price(counts) -> float:  # type: ignore[no-untyped-def]
    return PLD.epsilon_of(counts, 1e-5, ADD_OR_REMOVE)


def test_clients_pay_for_their_own_history():
    total = PLD.running(3, ADD_OR_REMOVE)
    total.add(EVENT, np.array([0, 1]), 5)
    total.add(OTHER, np.array([1]), 2)
    assert total.epsilon(1e-5).tolist() == [price({EVENT: 5}), price({EVENT: 5, OTHER: 2}), 0.0]


def test_histories_that_become_equal_are_priced_alike():
    total = PLD.running(2, ADD_OR_REMOVE)
    total.add(EVENT, np.array([0]))
    total.add(EVENT, np.array([1]))
    assert total.epsilon(1e-5).tolist() == [price({EVENT: 1})] * 2


def test_the_step_after_the_last_allowed_one_exceeds():
    allowed = PLD.steps_allowed(EVENT, 1.0, 1e-5, ADD_OR_REMOVE)
    total = PLD.running(2, ADD_OR_REMOVE)
    for _ in range(allowed):
        assert not total.would_exceed(EVENT, 1, 1.0, 1e-5).any()
        total.add(EVENT, np.arange(2))
    assert total.would_exceed(EVENT, 1, 1.0, 1e-5).all()
    assert total.epsilon(1e-5).max() <= 1.0


def test_falling_noise_stays_within_the_budget_and_uses_most_of_it():
    total, steps = PldAccountant(discretization=1e-3).running(1, ADD_OR_REMOVE), 0
    while True:
        event = PoissonSampling(0.2).event(2.0 * 0.97**steps)
        if total.would_exceed(event, 1, 2.0, 1e-5)[0]:
            break
        total.add(event, np.arange(1))
        steps += 1
    assert 1.7 < total.epsilon(1e-5)[0] <= 2.0


def test_a_resumed_total_answers_alike():
    total = PLD.running(2, ADD_OR_REMOVE)
    total.add(EVENT, np.array([1]), 7)
    total.would_exceed(EVENT, 1, 1.0, 1e-5)
    other = PLD.running(2, ADD_OR_REMOVE)
    other.load_state_dict(saved(total.state_dict()))
    assert other.epsilon(1e-5).tolist() == total.epsilon(1e-5).tolist()
    for count in (1, 20, 30, 60):
        mine, its = (t.would_exceed(EVENT, count, 1.0, 1e-5) for t in (total, other))
        assert mine.tolist() == its.tolist()


def test_the_weaker_event_has_less_noise_by_at_most_a_percent():
    for multiplier in (0.5, 1.0, 2.999, 7.3):
        weaker = weaker_event(PoissonSampling(0.1).event(multiplier))
        assert multiplier / 1.0101 <= weaker.event.noise_multiplier <= multiplier
        assert weaker_event(weaker) == weaker


@pytest.mark.thorough
@settings(max_examples=examples(12))
@given(st.lists(st.tuples(st.floats(1.5, 6.0), st.integers(1, 40)), min_size=1, max_size=40))
def test_a_budget_is_never_overspent_however_the_noise_moves(path):
    """Rising, falling, few and many kinds; what is reported at the end is within the limit."""
    coarse = PldAccountant(discretization=1e-2)
    total, limit = coarse.running(2, ADD_OR_REMOVE), 1.5
    for index, (multiplier, count) in enumerate(path):
        event = PoissonSampling(0.1).event(multiplier)
        for _ in range(count):
            who = np.arange(2) if index % 3 else np.array([index % 2])
            may = ~total.would_exceed(event, 1, limit, 1e-5, who)
            total.add(event, who[may])
    assert total.epsilon(1e-5).max() <= limit
    assert total.worst(1e-5) == total.epsilon(1e-5).max()


def test_only_the_clients_asked_about_are_answered_for():
    total = PLD.running(3, ADD_OR_REMOVE)
    total.add(EVENT, np.array([1]), 100)
    within = PLD.steps_allowed(EVENT, 1.0, 1e-5, ADD_OR_REMOVE)
    answers = total.would_exceed(EVENT, within, 1.0, 1e-5, np.array([1, 2]))
    assert answers.tolist() == [True, False]


@pytest.mark.thorough
def test_the_worst_of_many_histories_is_priced_by_a_quick_bound_where_patience_ends():
    exact, quick = PLD.running(6, ADD_OR_REMOVE), PLD.running(6, ADD_OR_REMOVE)
    quick.patience = 3
    for client in range(6):
        for total in (exact, quick):
            total.add(PoissonSampling(0.1).event(4.0 + 0.1 * client), np.array([client]), 3)
    rdp = RdpAccountant().epsilon_of({PoissonSampling(0.1).event(4.0): 3}, 1e-5, ADD_OR_REMOVE)
    assert exact.worst(1e-5) == exact.epsilon(1e-5).max() < quick.worst(1e-5) == rdp
    assert (quick.epsilon(1e-5) >= exact.epsilon(1e-5)).all()


@pytest.mark.parametrize("cohort", [np.arange(3), np.array([0, 2])], ids=["all", "some"])
def test_histories_are_what_gridding_them_as_a_whole_gives(cohort):
    """Few kinds exactly, many on the grid; also after a resumption, and for those who joined late."""
    total, exact = PLD.running(3, ADD_OR_REMOVE), [{}, {}, {}]
    for t in range(240):
        event = PoissonSampling(0.1).event(5.0 * 0.999**t)
        who = cohort if t % 3 else np.arange(3) if t > 230 else np.array([0])
        total.add(event, who, 1 + t % 2)
        for client in who:
            exact[client][event] = exact[client].get(event, 0) + 1 + t % 2
    restored = PLD.running(3, ADD_OR_REMOVE)
    restored.load_state_dict(saved(total.state_dict()))
    for one in (total, restored):
        found = one._histories()
        assert [found[group] for group in one._groups.index()] == [on_grid(own) for own in exact]


@pytest.mark.thorough
def test_falling_noise_is_composed_upon_what_was_composed_before(monkeypatch):
    """One evaluation after another: each kind of draw is laid out once, however often ε is asked for."""
    laid_out = []
    once = pld._once
    monkeypatch.setattr(pld, "_once", lambda *what: laid_out.append(what) or once(*what))
    pld.forget()
    total = PldAccountant(discretization=1e-3).running(1, ADD_OR_REMOVE)
    for t in range(300):
        total.add(PoissonSampling(0.1).event(9.0 * 0.998**t), np.arange(1))
        if t >= 100 and t % 5 == 0:
            total.worst(1e-5)
    assert (
        len(laid_out) <= len(set(laid_out)) + 2  # a cell that widens lays out a kind again
    )  # 200 values as they are, 300 on a grid of 1 %
