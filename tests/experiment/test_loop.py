"""The round loop: what it reads, who takes part, why it ends, what it evaluates."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.observers import has_few_digits

FREE = ("epsilon=null", "rounds=6")


def metrics_of(result) -> pd.DataFrame:
    return pd.read_csv(result.folder / "metrics.csv")


def samples_by_client(result) -> np.ndarray:
    """Lots of each of ten clients, from the ledger."""
    counts = np.zeros(10, dtype=int)
    for row in csv.DictReader((result.folder / "ledger.csv").read_text().splitlines()):
        counts[members(row["clients"])] += int(row["draws_per_client"])
    return counts


def members(text: str) -> list[int]:
    """``0-2 5`` → [0, 1, 2, 5]."""
    spans = [[int(n) for n in part.split("-")] for part in text.split()]
    return [client for span in spans for client in range(span[0], span[-1] + 1)]


def rounds_by_client(result) -> np.ndarray:
    """Rounds of each client, from the record of participation."""
    counts = np.zeros(result.privacy["clients"]["total"], dtype=int)
    for row in csv.DictReader((result.folder / "participation.csv").read_text().splitlines()):
        length = int(row["last_round"]) - int(row["first_round"]) + 1
        counts[members(row["clients"])] += length
    return counts


@pytest.mark.few(1)
@pytest.mark.parametrize("schedule", ["constant", "exponential", "step", "validation_decay"])
def test_a_public_split_is_held_out_only_for_a_schedule_that_reads_it(schedule, command):
    reads = schedule == "validation_decay"
    said = command("train", f"noise_schedule={schedule}", "runtime.plots=false", *FREE).out
    said = " ".join(said.replace("│", " ").split())
    assert ("200 public validation" in said) == reads
    assert f"{1437 - 200 * reads} training records" in said


@pytest.mark.parametrize("schedule", ["constant", "validation_decay"])
def test_the_validation_loss_is_there_only_if_the_schedule_reads_it(schedule, train):
    losses = metrics_of(train(f"noise_schedule={schedule}", *FREE))["validation_loss"]
    assert losses.notna().all() == (schedule == "validation_decay")
    assert losses.isna().all() == (schedule == "constant")


def test_the_test_records_are_never_part_of_the_validation_split(train):
    """The split comes out of the training records: their number shrinks, the test set does not."""
    parts = build_parts(fedpriv.compose())
    from fedpriv.data.federated import federate

    data = federate(parts.dataset, parts.partition, validation=True, seed=0)
    rows = {tuple(row) for row in data.test.inputs.flatten(1).tolist()}
    held_out = [tuple(row) for row in data.validation.inputs.flatten(1).tolist()]
    assert len(data.train) + len(held_out) == 1437
    assert sum(row in rows for row in held_out) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("index", "last"), [("eq9", 1), ("algorithm1", 0)])
def test_sigma_decays_after_three_falls_of_the_validation_loss(index, last, train):
    """σ of round t, counted from 0, by J of w_{t-last-3} … w_{t-last}; J(w_0) … J(w_2) are infinite."""
    rows = metrics_of(
        train(
            f"noise_schedule.decay_index={index}", "noise_schedule.beta=0.5", "rounds=25",
            "noise_schedule.noise_multiplier=20", "algorithm.learning_rate=0.05", "epsilon=null",
        )
    )  # fmt: skip
    loss_of = dict.fromkeys(range(-4, 3), np.inf)
    loss_of.update({t + 1: loss for t, loss in enumerate(rows["validation_loss"]) if t + 1 >= 3})
    decays = 0
    for t, sigma in enumerate(rows["noise_multiplier"]):
        recent = [loss_of[t - last - back] for back in (3, 2, 1, 0)] if t else [np.inf] * 4
        decays += all(a > b for a, b in itertools.pairwise(recent))
        assert sigma == pytest.approx(20 * 0.5**decays)
    assert decays > 1


def test_a_run_ends_by_rounds(train):
    result = train("rounds=4")
    assert (result.stop_reason, result.summary["rounds"]) == ("rounds", 4)


def test_a_run_ends_by_budget_when_that_comes_first(train):
    result = train("algorithm=dp_fl", "rounds=1000", "epsilon=0.8")
    assert result.stop_reason == "budget"
    assert result.summary["epsilon"] <= 0.8


def test_the_next_round_would_have_exceeded_the_budget(train):
    first = train("algorithm=dp_fl", "epsilon=0.8")
    rounds = first.summary["rounds"]
    longer = train("algorithm=dp_fl", "epsilon=null", f"rounds={rounds + 1}", name="longer")
    assert first.summary["epsilon"] <= 0.8 < longer.summary["epsilon"]


@pytest.fixture
def diverged(command):
    """(overrides) → the outcome of a run into ``run`` that diverges."""

    def run(*overrides: str):
        return command(
            "train", "model=mlp", "algorithm.learning_rate=1e30", "runtime.progress=none",
            "runtime.run_dir=run", *overrides,
        )  # fmt: skip

    return run


def test_a_run_that_diverges_ends_with_status_1_and_names_the_round(diverged, tmp_path):
    said = diverged("algorithm=dp_fl", "runtime.plots=false")
    rounds = len(pd.read_csv(tmp_path / "run" / "metrics.csv"))
    assert said.status == 1
    assert f"diverged in round {rounds}:" in said.sentence


@pytest.mark.thorough
def test_a_run_that_diverges_saves_what_there_is(diverged, tmp_path):
    diverged("algorithm=dp_fl", "runtime.checkpoint_interval=1000")
    assert '"stop_reason": "diverged"' in (tmp_path / "run" / "summary.json").read_text()
    assert len(pd.read_csv(tmp_path / "run" / "metrics.csv")) >= 1
    assert (tmp_path / "run" / "plots" / "accuracy_by_round.png").exists()


def test_the_statement_of_a_diverged_run_says_what_stopping_read(diverged, tmp_path):
    diverged("algorithm=dp_fl", "runtime.plots=false")
    words = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert "were no longer finite" in words


def test_fedavg_that_diverges_is_stopped_too(diverged):
    assert diverged("algorithm=fedavg", "runtime.plots=false").status == 1


def test_clients_that_are_sampled_are_charged_only_for_their_rounds(train):
    result = train(
        "algorithm=dp_fl", "algorithm.participation=sampled", "algorithm.clients_per_round=3", *FREE
    )
    assert rounds_by_client(result).sum() == 18
    assert np.array_equal(samples_by_client(result), rounds_by_client(result))


def test_a_client_that_never_took_part_spent_nothing(train):
    result = train(
        "algorithm=dp_fl",
        "algorithm.participation=sampled",
        "algorithm.clients_per_round=1",
        "epsilon=null",
        "rounds=2",
    )
    assert result.privacy["spread"]["epsilon_sound"]["lowest"] == 0.0
    assert result.privacy["spread"]["epsilon"]["lowest"] == 0.0
    assert result.privacy["clients"]["took_part"] <= 2


def test_every_local_step_is_charged(train):
    result = train("algorithm=dp_fl", "algorithm.local_steps=3", *FREE)
    once = train("algorithm=dp_fl", "epsilon=null", "rounds=18", name="once")
    assert (samples_by_client(result) == 18).all()
    assert result.summary["epsilon_sound"] == pytest.approx(once.summary["epsilon_sound"])


@pytest.mark.thorough
def test_local_steps_of_a_filtered_run_stay_within_the_budget(train):
    result = train("algorithm.local_steps=3")
    assert result.stop_reason == "budget"
    assert result.summary["epsilon"] <= 2.0


RAGGED = (
    "algorithm=dp_fl", "partition=dirichlet", "partition.alpha=0.7", "partition.min_records=20",
    "algorithm.sampling=fixed_size", "algorithm.sample_rate=0.03", "algorithm.learning_rate=0.05",
    "noise_schedule.noise_multiplier=3", "epsilon=1.2", "runtime.checkpoint_interval=10000",
    "accountant.orders=2..32",
    "evaluation_interval=10000",
)  # fmt: skip


@pytest.mark.thorough
def test_clients_whose_budget_is_spent_are_left_out_until_none_can_go_on(ran):
    """Lots of fixed size: the true sampling rate is rounded, and differs between clients."""
    result = ran(*RAGGED)
    rounds = rounds_by_client(result)
    assert result.stop_reason == "budget"
    assert len(set(rounds.tolist())) > 3
    assert result.summary["rounds"] == rounds.max()
    assert np.array_equal(samples_by_client(result), rounds)
    spread = result.privacy["spread"]["epsilon"]
    assert spread["highest"] <= 1.2
    assert spread["lowest"] > 0.9


def test_a_client_that_was_left_out_does_not_come_back(ran):
    result = ran(*RAGGED)
    rows = csv.DictReader((result.folder / "participation.csv").read_text().splitlines())
    cohorts = [set(members(row["clients"])) for row in rows]
    assert all(later < earlier for earlier, later in itertools.pairwise(cohorts))


@pytest.mark.few(1)
@pytest.mark.parametrize("interval", [1, 4, 100])
def test_the_test_records_are_evaluated_every_interval_and_at_the_end(interval, train):
    rows = metrics_of(train("algorithm=dp_fl", f"evaluation_interval={interval}", "rounds=10"))
    evaluated = rows["round"][rows["test_accuracy"].notna()].tolist()
    assert evaluated == sorted({*range(interval, 11, interval), 10})
    assert rows["round"].tolist() == list(range(1, 11))


@pytest.mark.thorough
def test_evaluating_more_often_changes_nothing(train):
    """The interval is part of a run's identity, but nothing random depends on it."""
    states = []
    for interval in (1, 7):
        result = train(f"evaluation_interval={interval}", *FREE, name=str(interval))
        state = torch.load(result.folder / "checkpoint.pt", weights_only=False)
        states.append(state["training"]["weights"])
    assert torch.equal(*states)


def test_prices_that_take_long_are_asked_for_at_numbers_of_two_digits():
    asked = [n for n in range(1, 1301) if has_few_digits(n, 2)]
    assert asked == [*range(1, 100), *range(100, 1000, 10), *range(1000, 1301, 100)]
    asked = [n for n in range(1, 301) if has_few_digits(n, 1)]
    assert asked == [*range(1, 10), *range(10, 100, 10), *range(100, 301, 100)]


@pytest.mark.thorough
def test_a_price_that_takes_long_is_asked_for_seldom_and_at_the_end(train):
    """The sound price of Poisson lots is that of PLD; the enforced one, by RDP, is there every round."""
    rows = metrics_of(
        train("algorithm=dp_fl", *FREE[:1], "rounds=112", "evaluation_interval=1")
    ).set_index("round")
    assert rows["epsilon"].notna().all()
    priced = rows.index[rows["epsilon_sound"].notna()].tolist()
    assert priced == [*range(1, 101), 110, 112]


def test_records_without_a_finite_gradient_are_counted_in_the_summary(tmp_path, train, monkeypatch):
    (tmp_path / "broken_digits.py").write_text(
        "from fedpriv.data.digits import Digits\n"
        "class Broken(Digits):\n"
        "    def load(self):\n"
        "        loaded = super().load()\n"
        "        loaded.train.inputs[:50] = float('nan')\n"
        "        return loaded\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = train(
        "algorithm=dp_fl",
        "algorithm.sample_rate=1.0",
        "epsilon=null",
        "rounds=2",
        "dataset._target_=broken_digits.Broken",
    )
    assert result.summary["records_not_finite"] == 100
    assert result.stop_reason == "rounds"
