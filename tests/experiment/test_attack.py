"""Attacks in whole runs: columns, summary, statement, who pays, resume, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.store.tables import parse_ranges

TEN = ("partition=iid", "partition.clients=10", "model=logistic")
ATTACK = ("attack=pixel_pattern", "attack.trigger.size=2", "attack.attackers=2")
CDP = ("algorithm=naseri_cdp", *TEN, "epsilon=8", "rounds=6", "algorithm.client_rate=0.4",
       "noise_schedule.noise_multiplier=3")  # fmt: skip
LDP = ("algorithm=naseri_ldp", *TEN, "epsilon=50", "rounds=4", "algorithm.clients_per_round=3",
       "noise_schedule.noise_multiplier=1")  # fmt: skip


def metrics(result) -> pd.DataFrame:
    return pd.read_csv(result.folder / "metrics.csv")


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [CDP, LDP])
def test_a_run_measures_main_task_backdoor_and_norms(train, algorithm):
    result = train(*algorithm, *ATTACK, "attack.participation=fixed", "evaluation_interval=2")
    rows = metrics(result)
    assert rows["update_norm_malicious"].notna().all()
    assert (rows["update_norm_honest"].dropna() > 0).all()
    evaluated = rows[rows["test_accuracy"].notna()]
    assert evaluated["backdoor_accuracy"].between(0, 1).all()
    assert len(evaluated) == len(rows) // 2
    summary = json.loads((result.folder / "summary.json").read_text())
    last = pytest.approx(evaluated["backdoor_accuracy"].iloc[-1], rel=1e-15)
    assert summary["backdoor_accuracy"] == last
    assert len(summary["attackers"]) == 2
    assert summary["backdoor_test_records"] > 100


@pytest.mark.thorough
def test_an_undefended_federation_learns_the_backdoor_and_one_without_attackers_does_not(train):
    common = (
        "algorithm=fedavg",
        *TEN,
        "rounds=20",
        "attack=pixel_pattern",
        "attack.trigger.size=2",
    )
    taught = train(*common, "attack.boost=replacement", "attack.participation=fixed", name="taught")
    never = train(*common, "attack.first_round=1000", name="never")
    assert taught.summary["backdoor_accuracy"] > 0.9
    assert never.summary["backdoor_accuracy"] < 0.3
    assert never.summary["test_accuracy"] > 0.8


@pytest.mark.thorough
@pytest.mark.usefixtures("common_streams")
def test_attackers_are_not_charged_and_honest_clients_are_as_without_them(train):
    honest = train(*LDP, name="honest")
    attacked = train(*LDP, *ATTACK, "attack.participation=fixed", name="attacked")
    attackers = attacked.summary["attackers"]
    ledgers = [pd.read_csv(result.folder / "ledger.csv") for result in (honest, attacked)]

    def samples(ledger: pd.DataFrame) -> np.ndarray:
        counts = np.zeros(10)
        for row in ledger.itertuples():
            counts[parse_ranges(str(row.clients))] += row.draws_per_client
        return counts

    alone, together = map(samples, ledgers)
    assert (together[attackers] == 0).all()
    others = np.setdiff1d(np.arange(10), attackers)
    assert np.array_equal(alone[others], together[others])
    words = (attacked.folder / "privacy.txt").read_text()
    assert "Some clients are attackers" in words
    assert "of every honest client" in " ".join(words.split())
    facts = json.loads((attacked.folder / "privacy.json").read_text())
    assert facts["clients"]["total"] == 8


@pytest.mark.thorough
@pytest.mark.usefixtures("common_streams")
def test_used_up_budgets_leave_the_sampling_of_honest_clients_alone(train):
    """Attackers are as eligible as they would be if they were honest: who is drawn does not change."""
    settings = (*LDP, "partition.clients=20", "rounds=null", "epsilon=9")
    attack = (*ATTACK, "attack.attackers=5", "attack.participation=sampled")
    alone = train(*settings, name="alone")
    attacked = train(*settings, *attack, name="attacked")
    attackers = set(attacked.summary["attackers"])

    def honest(result) -> list[set[int]]:
        """The honest ones of each round's cohort."""
        rows = pd.read_csv(result.folder / "participation.csv").itertuples()
        return [
            set(parse_ranges(str(row.clients))) - attackers
            for row in rows
            for _ in range(row.first_round, row.last_round + 1)
        ]

    cohorts = honest(alone)
    assert cohorts == honest(attacked)
    often = {k: sum(k in cohort for cohort in cohorts) for k in range(20) if k not in attackers}
    assert alone.stop_reason == "budget"
    assert len(set(often.values())) == 1  # until nobody had any left


@pytest.mark.thorough
def test_attackers_come_to_every_round_and_no_budget_holds_them_back(train):
    """Their own rounds would have spent it long before."""
    result = train(
        *LDP, *ATTACK, "attack.participation=fixed", "rounds=null", "epsilon=9", name="long"
    )
    facts = pd.read_csv(result.folder / "participation.csv")
    attackers = set(result.summary["attackers"])
    assert all(attackers <= set(parse_ranges(str(row))) for row in facts["clients"])
    assert result.stop_reason == "budget"
    assert result.privacy["epsilon_sound"] <= 9


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (
            ("attack.attackers=10",),
            "attack.attackers must be at most 9 of the 10 clients: one must be honest",
        ),
        (("attack.attackers=-1",), "attack.attackers must be a whole number >= 0"),
        (("attack.attacker_fraction=0.1",), "attack.attackers must be null"),
        (
            ("attack.attackers=null",),
            "attack.attackers must be a number, or attack.attacker_fraction",
        ),
        (("attack.boost=0",), "attack.boost must be a number > 0|attack.boost must be > 0"),
        (("attack.boost=twice",), "attack.boost must be a number > 0, or replacement"),
        (("attack.boost=nan",), "attack.boost must be a number > 0, or replacement"),
        (("attack.dp_steps=follow", "attack.boosted=malicious_part"), "attack.boosted must be"),
        (("attack=backdoor",), "attack.trigger must be a trigger"),
        (("attack=semantic",), "attack.trigger.indices must be a list"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_round(overrides, wanted, train):
    with pytest.raises(ConfigError, match=wanted):
        train("algorithm=fedavg", *TEN, "rounds=1", "attack=pixel_pattern", *overrides)


@pytest.mark.thorough
def test_weak_dp_adds_a_little_noise_and_prices_it(train):
    result = train("algorithm=weak_dp", *TEN, "rounds=3", *ATTACK)
    assert result.summary["epsilon_sound"] > 100
    assert result.summary["noise_multiplier"] == 0.125


@pytest.mark.usefixtures("common_streams")
def test_without_attackers_it_is_the_baseline_for_the_trigger(train):
    settings = ("algorithm=fedavg", *TEN, "rounds=3", "evaluation_interval=1", "attack=pixel_pattern",
                "attack.trigger.size=2")  # fmt: skip
    nobody = train(*settings, "attack.attackers=0", name="nobody")
    idle = train(*settings, "attack.first_round=9", name="idle")
    columns = ["test_accuracy", "backdoor_accuracy", "update_norm_honest"]
    pd.testing.assert_frame_equal(metrics(nobody)[columns], metrics(idle)[columns])
    assert metrics(idle)["update_norm_malicious"].isna().all()
    assert (nobody.summary["attackers"], nobody.summary["attacked_rounds"]) == ([], 0)


def test_the_end_tells_how_often_there_was_an_attack_and_how_high_it_got(train):
    result = train(
        "algorithm=fedavg", *TEN, "rounds=6", "evaluation_interval=1", *ATTACK, "attack.first_round=2",
        "attack.every=null", "attack.boost=replacement",
    )  # fmt: skip
    rows = metrics(result)
    assert result.summary["attacked_rounds"] == 1
    assert rows["update_norm_malicious"].notna().tolist() == [False, True] + [False] * 4
    assert result.summary["highest_backdoor_accuracy"] == rows["backdoor_accuracy"].max()
