"""What is charged that had no noise, or was released before the first round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from budgets import ALL, FIRST_TWO, charge, joint, make, numbers, sound_price
from checkpoints import saved
from releases import announced, released

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS, GRADIENT, GaussianQuery, JointQuery

# ---- something released without noise


def test_a_statistic_without_noise_makes_the_sound_epsilon_infinite():
    unclipped = joint(3.0, statistic=0.0)
    budget = make(unclipped, view="published")
    charge(budget, unclipped, FIRST_TWO, rounds=5)
    assert budget.epsilon_sound().tolist() == [np.inf, np.inf, 0.0]
    assert np.isfinite(budget.epsilon()).all()


def test_the_reason_names_what_was_released_without_noise():
    unclipped = joint(3.0, statistic=0.0)
    budget = make(unclipped, view="published")
    charge(budget, unclipped)
    reason = budget.reasons()["epsilon_sound"]
    assert reason == "released without noise: clip_statistic"


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_sound_view_lets_nobody_release_without_noise(adaptive):
    unclipped = joint(3.0, statistic=0.0)
    assert not make(unclipped, adaptive=adaptive).eligible(announced(unclipped, ALL)).any()


def test_a_statistic_without_noise_is_infinite_without_a_limit_too():
    unclipped = joint(3.0, statistic=0.0)
    budget = make(unclipped, epsilon=None, adaptive=True)
    charge(budget, unclipped)
    assert budget.epsilon_sound().tolist() == [np.inf] * 3


# ---- what was released before the first round


BEFORE = {
    "published": {"view": "published"},
    "published, adaptive": {"view": "published", "adaptive": True},
    "no limit": {"epsilon": None},
    "no limit, adaptive": {"epsilon": None, "adaptive": True},
    "capped": {"epsilon": None, "adaptive": True, "bound": {WholeData().event(3.0): 9}},
}


@pytest.mark.parametrize("kind", BEFORE)
def test_what_was_known_without_noise_leaves_no_client_a_sound_epsilon(kind):
    budget = make(**BEFORE[kind])
    budget.expose(["vocabulary"])
    charge(budget, joint(), FIRST_TWO)
    assert budget.epsilon_sound().tolist() == [np.inf] * 3
    assert budget.worst(seldom=True)["epsilon_sound"] == np.inf
    assert budget.reasons()["epsilon_sound"] == "released without noise: vocabulary"
    assert np.isfinite(budget.epsilon_published()).all()
    assert np.isfinite(budget.epsilon()).all() == (budget.view == "published")


@pytest.mark.parametrize("kind", BEFORE)
def test_a_state_takes_the_place_of_what_was_known_before(kind):
    budget, restored = make(**BEFORE[kind]), make(**BEFORE[kind])
    for one in (budget, restored):
        one.expose(["vocabulary"])
    charge(budget, joint(), FIRST_TWO)
    restored.load_state_dict(saved(budget.state_dict()))
    assert numbers(restored) == numbers(budget)
    assert restored.ledger.samples_of("vocabulary").tolist() == [1, 1, 1]


def test_runs_made_before_are_paid_by_everyone_in_the_sound_view_alone():
    budget = make(view="published")
    budget.charge_prior(released(joint(), ALL, {GRADIENT: np.ones(1)}, 30))
    charge(budget, joint(), FIRST_TWO, rounds=20)
    expected = [sound_price({joint(): count}) for count in (50, 50, 30)]
    assert budget.epsilon_sound() == pytest.approx(expected)
    assert budget.epsilon()[2] == budget.epsilon_published()[2] == 0.0


# ---- what is released before the first round

STATISTICS = JointQuery(WholeData(), (GaussianQuery(FEATURE_STATISTICS, 4.0),))


def test_what_is_released_before_the_first_round_is_charged_to_every_client_once():
    budget = make(epsilon=None)
    budget.charge_before([released(STATISTICS, ALL)], announced(STATISTICS, ALL))
    charge(budget, joint(), FIRST_TWO, rounds=5)
    assert budget.epsilon_sound()[2] == pytest.approx(sound_price({STATISTICS: 1}), abs=1e-3)
    assert budget.epsilon_sound()[0] == pytest.approx(sound_price({STATISTICS: 1, joint(): 5}))
    assert budget.epsilon()[2] > 0  # enforced, in the sound view
    assert budget.epsilon_published()[2] == 0  # the theorem is not about it


def test_it_is_charged_as_it_was_announced():
    other = JointQuery(WholeData(), (GaussianQuery(FEATURE_STATISTICS, 8.0),))
    budget = make(epsilon=None)
    with pytest.raises(ReleaseError, match="feature_statistics=8 was released but not announced"):
        budget.charge_before([released(other, ALL)], announced(STATISTICS, ALL))
    assert len(budget.ledger) == 0


def test_no_round_is_charged_that_rests_on_it_before_it_is():
    budget, announcement = make(epsilon=None), replace(announced(joint(), ALL), before=STATISTICS)
    with pytest.raises(
        ReleaseError, match="charged for feature_statistics=4 before the first round"
    ):
        budget.charge([released(joint(), ALL)], announcement)
    assert len(budget.ledger) == 0
    budget.charge_before([released(STATISTICS, FIRST_TWO)], announced(STATISTICS, ALL))
    with pytest.raises(ReleaseError, match="every client must be charged"):
        budget.charge([released(joint(), ALL)], announcement)
    budget.charge_before([released(STATISTICS, ALL[2:])], announced(STATISTICS, ALL))
    restored = make(epsilon=None)
    restored.load_state_dict(saved(budget.state_dict()))
    for one in (budget, restored):
        one.charge([released(joint(), ALL)], announcement)
        assert len(one.ledger) == 2


def test_less_room_is_left_after_it():
    room = make(epsilon=0.5), make(epsilon=0.5)
    statistics = JointQuery(WholeData(), (GaussianQuery(FEATURE_STATISTICS, 12.0),))
    room[1].charge_before([released(statistics, ALL)], announced(statistics, ALL))
    rounds = [0, 0]
    for i, budget in enumerate(room):
        while budget.eligible(announced(joint(), ALL)).all() and rounds[i] < 500:
            charge(budget, joint(), rounds=20)
            rounds[i] += 20
    assert 0 < rounds[1] < rounds[0]
    assert (room[1].epsilon() <= 0.6).all()
