"""What planned draws cost: kinds of rounds, budgets, the smallest budget for a round."""

from __future__ import annotations

import math

import pytest

import fedpriv
from fedpriv.experiment.parts import build_parts
from fedpriv.experiment.prices import Prices

HISTOGRAM = (
    "algorithm=ldp_fedsgd", "noise_schedule=constant", "noise_schedule.noise_multiplier=4",
    "clipper=median_histogram", "clipper.updates=3", "clipper.update_interval=5", "rounds=20",
    "epsilon=null",
)  # fmt: skip


def prices(*overrides: str) -> Prices:
    return Prices(build_parts(fedpriv.compose(overrides)))


def test_rounds_in_which_nothing_is_asked_are_counted_apart():
    composition = prices(*HISTOGRAM).composition(4.0, rounds=20)
    assert sorted(composition.values()) == [3, 17]


def test_a_client_with_few_draws_is_taken_to_be_asked_every_time():
    assert list(prices(*HISTOGRAM).composition(4.0, rounds=20, draws=2).values()) == [2]


def test_the_questions_are_in_the_price():
    asked, silent = prices(*HISTOGRAM), prices(*HISTOGRAM[:3], "rounds=20", "epsilon=null")
    assert asked.epsilon(4.0, 20) > silent.epsilon(4.0, 20)


@pytest.mark.parametrize("budget", [1.0, 3.0, 5.0, 8.0])
def test_the_rounds_allowed_fit_the_budget_and_one_more_does_not(budget):
    found = prices(*HISTOGRAM)
    rounds = found.rounds_allowed(4.0, budget)
    assert (found.epsilon(4.0, rounds) if rounds else 0.0) <= budget
    assert found.epsilon(4.0, rounds + 1) > budget


@pytest.mark.parametrize("view", ["sound", "published"])
def test_the_price_of_one_round_is_a_budget_that_allows_one(view):
    found = prices("algorithm=dp_fl", f"budget_view={view}")
    smallest = found.epsilon(12.0, 1)
    assert found.rounds_allowed(12.0, smallest) == 1
    assert found.rounds_allowed(12.0, 0.999 * smallest) == 0


def test_no_budget_is_enough_for_an_answer_without_noise():
    found = prices(
        "algorithm=adap_dpfl",
        "clipper.reading=unclipped",
        "budget_view=sound",
        "epsilon=null",
        "rounds=2",
    )
    assert found.epsilon(12.0, 1) == math.inf
    assert found.rounds_allowed(12.0, 1e9) == 0


def test_local_steps_are_draws():
    one, three = prices("algorithm=dp_fl"), prices("algorithm=dp_fl", "algorithm.local_steps=3")
    assert three.epsilon(12.0, 2) == one.epsilon(12.0, 6)


def test_sigma_follows_from_the_draws_that_a_sampled_client_makes_on_average():
    sampled = prices(*HISTOGRAM[:3], "rounds=20", "epsilon=null", "partition.clients=100",
                     "algorithm.clients_per_round=25")  # fmt: skip
    assert sampled.sigma_for(2.0, None) == sampled.sigma_for(2.0, 5)


def test_noise_that_falls_is_priced_at_each_rounds_own_with_the_questions():
    falling = prices(
        HISTOGRAM[0], *HISTOGRAM[3:], "noise_schedule=step", "noise_schedule.noise_multiplier=8",
        "noise_schedule.interval=10",
    )  # fmt: skip
    assert falling.epsilon(8.0, 20) < falling.epsilon_of_schedule(20) < falling.epsilon(4.0, 20)
