"""DP-FTRL: what a run of correlated noise costs, and what its ledger and statement say."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from ftrl_runs import CLIENTS, ROUNDS, STRATEGIES, ftrl, plan_of

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.accountants import GdpAccountant

# ---- what it costs


@pytest.mark.parametrize("times", [None, 3])
def test_independent_noise_costs_what_gaussians_compose_to(times, ran):
    """k participations of a client are k Gaussians of multiplier z on the same data."""
    overrides = ftrl("algorithm.strategy=identity")
    if times:
        overrides = (*overrides, f"algorithm.max_participations={times}")
    result = ran(*overrides)
    composed = GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(2.0): 3}, 1e-5, "add_or_remove")
    assert result.privacy["epsilon"] == pytest.approx(composed, rel=1e-9)
    assert result.privacy["epsilon_sound"] == result.privacy["epsilon"]


@pytest.mark.thorough
def test_poisson_turns_cost_what_sampled_gaussians_compose_to():
    overrides = ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.3")
    plan = plan_of(*ftrl(*overrides, "algorithm.strategy=identity", "accountant=pld"))
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    sampled = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))
    accountant.compose(sampled, 3)
    assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sigma_is_calibrated_to_epsilon(strategy):
    plan = plan_of(*ftrl(f"algorithm.strategy={strategy}", "epsilon=3", z=None))
    assert 2.999 < plan.epsilon <= 3.0
    assert plan.rounds_allowed == ROUNDS


def test_the_ledger_has_one_release_of_all_rounds(ran, command):
    result = ran(*ftrl("algorithm.strategy=blt"))
    (row,) = pd.read_csv(result.folder / "ledger.csv", dtype=str).to_dict("records")
    assert row["draws_per_client"] == "1"
    assert row["neighbours_sound"] == "zero_out"
    assert "in 12 rounds by blt" in row["queries"]
    assert "a multiple of 4 apart" in row["queries"]
    said = command("account", "--run", str(result.folder), "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)["accountants"]["gdp"]["epsilon"]["1e-05"]
    assert found == pytest.approx(result.privacy["epsilon"], rel=1e-9)


def test_the_statement_says_what_the_neighbours_are_and_what_was_charged(ran):
    words = " ".join(
        (ran(*ftrl("algorithm.strategy=blt")).folder / "privacy.txt").read_text().split()
    )
    assert (
        "zero-out adjacency: all that one client contributes is zero in the other data set" in words
    )
    assert "charged as a whole in its first round" in words


# ---- what is said of it

POISSON = ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5", "accountant=pld")


@pytest.mark.parametrize(("overrides", "secret"), [((), False), (POISSON, True)])
def test_who_takes_part_is_a_secret_only_where_sampling_amplifies(overrides, secret, ran):
    words = " ".join((ran(*ftrl(*overrides)).folder / "privacy.txt").read_text().split())
    assert ("participation.csv (who took part must stay secret" in words) == secret
    assert ("Who joins a round must stay secret" in words) == secret


def test_one_release_is_one_release(ran):
    words = " ".join((ran(*ftrl()).folder / "privacy.txt").read_text().split())
    assert f"all {CLIENTS} have the same epsilon; each is charged for 1 release." in words


def test_a_budget_that_is_too_small_is_held_against_the_whole_run():
    plan = plan_of(*ftrl(z=0.5), "epsilon=2")
    with pytest.raises(ConfigError, match="the cost of the whole run at this noise"):
        plan.refuse_if_impossible(2.0)
    assert "is the cost of the whole run; a run would be refused" in dict(plan.lines)["rounds"]
