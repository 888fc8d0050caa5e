"""A run with the noise of a larger cohort: what it enforces, states and adds."""

from __future__ import annotations

import json

import pytest

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

RUN = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.25", "epsilon=null", "rounds=3",
    "noise_schedule=larger_cohort", "noise_schedule.population=10000", "noise_schedule.cohort=100",
    "noise_schedule.rounds=20",
)  # fmt: skip


@pytest.mark.thorough
def test_the_epsilon_that_is_reported_is_that_of_the_clients_simulated(ran):
    result = ran(*RUN)
    sigma = build_parts(fedpriv.compose(RUN)).noise_schedule.noise_multiplier(0)
    same = ran(*(o for o in RUN if "noise_schedule" not in o), "noise_schedule=constant",
               f"noise_schedule.noise_multiplier={sigma!r}")  # fmt: skip
    for key in ("epsilon", "epsilon_sound"):
        assert float(result.privacy[key]) == float(same.privacy[key]) > 100


def test_the_epsilon_of_the_imagined_population_stands_apart_and_is_called_so(ran):
    folder = ran(*RUN).folder
    facts = json.loads((folder / "privacy.json").read_text())
    imagined = facts["imagined_population"]
    assert 0 < imagined["epsilon"] < 2.0 < float(facts["epsilon_sound"])
    assert (imagined["population"], imagined["rounds"]) == (10_000, 3)
    assert "not the clients of this run" in imagined["about"]
    statement = " ".join((folder / "privacy.txt").read_text().split())
    assert "Noise of an imagined population of 10,000 clients" in statement
    assert "after 3 rounds, for a client of a population of 10,000" in statement


def test_other_runs_imagine_nothing(ran):
    other = ran("algorithm=cdp_fedavg", "partition.clients=20", "epsilon=null", "rounds=1",
                "noise_schedule=constant", "noise_schedule.noise_multiplier=4")  # fmt: skip
    assert "imagined_population" not in other.privacy


def test_the_plan_says_whose_epsilon_it_is(command):
    said = command("train", *RUN, "dry_run=true").out
    said = " ".join(said.replace("│", " ").split())
    assert "Noise of an imagined population" in said
    assert "of a client of the imagined population after 3 rounds" in said


@pytest.mark.parametrize("rounds", [3, 7])
def test_the_plan_rounds_the_epsilon_of_the_imagined_population_up(rounds):
    parts = build_parts(fedpriv.compose([*RUN, f"rounds={rounds}"]))
    shown = dict(make_plan(parts).lines)["noise"].partition("; epsilon ")[2].split()[0]
    assert float(shown) >= parts.noise_schedule.imagined_epsilon(rounds)


def test_a_budget_of_the_clients_simulated_is_refused_with_what_to_do(command):
    said = command("train", *RUN, "epsilon=8", "dry_run=true")
    assert (said.status, "epsilon=null leaves the clients simulated" in said.err) == (2, True)


def test_without_noise_the_plan_protects_nobody(command):
    said = command("train", *RUN[:5], "noise_schedule=none", "clipper=none", "dry_run=true").out
    assert "nobody: there is no noise" in said
