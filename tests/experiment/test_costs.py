"""What planned releases cost: kinds of rounds, budgets, the smallest budget for a round."""

from __future__ import annotations

import math

import pytest

import fedpriv
from fedpriv.common.words import digits_up
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.costs import Costs
from fedpriv.experiment.plan import make_plan

HISTOGRAM = (
    "algorithm=ldp_fedsgd", "noise_schedule=constant", "noise_schedule.noise_multiplier=4",
    "clipper=median_histogram", "clipper.updates=3", "clipper.update_interval=5", "rounds=20",
    "epsilon=null",
)  # fmt: skip


def costs(*overrides: str) -> Costs:
    return build_parts(fedpriv.compose(overrides)).costs()


def planned(found: Costs, sigma: float, rounds: int, samples: int | None = None) -> dict:
    """The events of what is planned, and how often each."""
    plan = found.mechanism.plan(found.sampling, sigma, rounds, samples)
    assert len({joint.event() for joint in plan}) == len(plan)
    return {joint.event(): count for joint, count in plan.items()}


def test_rounds_in_which_nothing_is_asked_are_counted_apart():
    plan = planned(costs(*HISTOGRAM), 4.0, rounds=20)
    assert sorted(plan.values()) == [3, 17]


def test_a_client_with_few_samples_is_taken_to_be_asked_every_time():
    found = costs(*HISTOGRAM)
    assert planned(found, 4.0, rounds=20, samples=2) == {found.joint(4.0, 4).event(): 2}
    assert "clip_statistic" in found.joint(4.0, 4).names


def test_the_queries_are_in_the_cost():
    asked, silent = costs(*HISTOGRAM), costs(*HISTOGRAM[:3], "rounds=20", "epsilon=null")
    assert asked.epsilon(4.0, 20) > silent.epsilon(4.0, 20)


@pytest.mark.parametrize("budget", [1.0, 3.0, 5.0, 8.0])
def test_the_rounds_allowed_fit_the_budget_and_one_more_does_not(budget):
    found = costs(*HISTOGRAM)
    rounds = found.rounds_allowed(4.0, budget)
    assert (found.epsilon(4.0, rounds) if rounds else 0.0) <= budget
    assert found.epsilon(4.0, rounds + 1) > budget


@pytest.mark.parametrize("view", ["sound", "published"])
def test_the_cost_of_one_round_is_a_budget_that_allows_one(view):
    found = costs("algorithm=dp_fl", f"budget_view={view}")
    smallest = found.epsilon(12.0, 1)
    assert found.rounds_allowed(12.0, smallest) == 1
    assert found.rounds_allowed(12.0, 0.999 * smallest) == 0


def test_no_budget_is_enough_for_an_answer_without_noise():
    found = costs(
        "algorithm=adap_dpfl",
        "clipper.reading=unclipped",
        "budget_view=sound",
        "epsilon=null",
        "rounds=2",
    )
    assert found.epsilon(12.0, 1) == math.inf
    assert found.rounds_allowed(12.0, 1e9) == 0


def test_local_steps_are_samples():
    one, three = costs("algorithm=dp_fl"), costs("algorithm=dp_fl", "algorithm.local_steps=3")
    assert three.epsilon(12.0, 2) == one.epsilon(12.0, 6)


def test_sigma_follows_from_the_samples_that_a_sampled_client_answers_on_on_average():
    sampled = costs(*HISTOGRAM[:3], "rounds=20", "epsilon=null", "partition.clients=100",
                     "algorithm.clients_per_round=25")  # fmt: skip
    smallest = sampled.smallest_noise_multiplier
    assert smallest(2.0, None) == smallest(2.0, 5)


def test_noise_that_falls_is_priced_at_each_rounds_own_with_the_queries():
    falling = costs(
        HISTOGRAM[0], *HISTOGRAM[3:], "noise_schedule=step", "noise_schedule.noise_multiplier=8",
        "noise_schedule.interval=10",
    )  # fmt: skip
    epsilon, bounded = falling.epsilon_of_schedule(20)
    assert falling.epsilon(8.0, 20) < epsilon < falling.epsilon(4.0, 20)
    assert not bounded


FALLING = (
    "algorithm=dp_fl", "epsilon=null", "rounds=1000", "noise_schedule=exponential",
    "noise_schedule.beta=0.999", "noise_schedule.noise_multiplier=30",
)  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "accountant", ["rdp", "pld", "gdp"], ids=["rdp", "pld, on the grid", "gdp, a sum"]
)
def test_rounds_are_accounted_for_in_parts_as_together(accountant, monkeypatch):
    sampled = ("algorithm.sample_rate=1",) if accountant == "gdp" else ()
    found = costs(*FALLING, *sampled, f"accountant={accountant}")
    together = found.epsilon_of_schedule(100)
    monkeypatch.setattr("fedpriv.experiment.costs._ROUNDS_AT_ONCE", 7)
    assert found.epsilon_of_schedule(100) == pytest.approx(together, rel=1e-9)
    assert not together[1]


@pytest.mark.thorough
def test_what_takes_long_of_noise_that_falls_far_is_a_bound_and_says_so():
    (epsilon, bounded), (by_rdp, _) = (
        costs(*FALLING, f"accountant={name}").epsilon_of_schedule(1000) for name in ("pld", "rdp")
    )
    assert bounded
    assert by_rdp == pytest.approx(epsilon, rel=0.02)
    plan = make_plan(build_parts(fedpriv.compose([*FALLING, "accountant=pld"])))
    assert dict(plan.lines)["epsilon"].startswith(f"at most {digits_up(epsilon)} after")
