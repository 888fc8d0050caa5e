"""Whole runs with distributed trust: what is charged, said, refused, resumed."""

from __future__ import annotations

import itertools
import json

import pandas as pd
import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import round_up
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.accountants import GdpAccountant, RdpAccountant
from fedpriv.privacy.core.events import parse_event
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.store.display import summary_lines

CLIENTS = 12
CALIBRATED = (
    "algorithm=ddp_fedavg", f"partition.clients={CLIENTS}", "rounds=4", "evaluation_interval=2",
)  # fmt: skip
NATURAL = (
    "algorithm=ddp_fedavg", "noise_schedule=constant", "noise_schedule.noise_multiplier=2",
    "epsilon=null", "rounds=2", "partition.clients=null",
)  # fmt: skip
FEDAVG = (
    *CALIBRATED, "noise_schedule=constant", "noise_schedule.noise_multiplier=2", "epsilon=null",
)  # fmt: skip
RECORDS = (
    "algorithm=dp_fl_server", "rounds=4", "evaluation_interval=2", "epsilon=null",
    "noise_schedule.noise_multiplier=5",
)  # fmt: skip
SKELLAM = ("algorithm.shares=skellam", "algorithm.bits=18")
GAUSSIAN = ("algorithm.shares=discrete_gaussian", "algorithm.bits=18")
HISTOGRAM = ("clipper=median_histogram", "clipper.updates=1")
LOSING = (
    "algorithm.tolerated_dropouts=3",
    "algorithm.tolerated_collusion=2",
    "algorithm.dropout=0.2",
)
RUNS = {
    "client": FEDAVG,
    "client, dropouts, adam": (*FEDAVG, *LOSING, "algorithm.optimizer=adam"),
    "client, sampled, skellam": (*FEDAVG, *SKELLAM, "algorithm.clients_per_round=6"),
    "record, adap, skellam": (
        *RECORDS, *SKELLAM, "algorithm.sample_rate=1", "clipper=adap", "algorithm.tolerated_collusion=3",
    ),
    "record, adap": (*RECORDS, "clipper=adap", "noise_schedule=validation_decay"),
    "record, discrete gaussian": (*RECORDS, *GAUSSIAN, "algorithm.sample_rate=1"),
}  # fmt: skip


def metrics(result) -> pd.DataFrame:
    return pd.read_csv(result.folder / "metrics.csv")


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(RUNS)[::2])
def test_a_run_that_is_interrupted_after_every_round_is_the_run_that_was_not(
    name, ran, train, tmp_path, assert_same_run
):
    whole = ran(*RUNS[name])
    stop = tmp_path / "stop"
    stop.touch()
    settings = (*RUNS[name], f"runtime.stop_file={stop}")
    result = train(*settings, name="stopped")
    while result.stop_reason == "interrupted":
        result = train(*settings, f"resume={result.folder}", name="stopped")
    assert_same_run(whole.folder, result.folder)


def test_rounds_with_too_many_dropouts_are_aborted_and_charged_to_nobody(train, charged, came):
    result = train(*FEDAVG, *LOSING, "rounds=30", "algorithm.dropout=0.3")
    table = metrics(result)
    assert table["dropped"].sum() > 30
    assert set(table["aborted"]) == {0, 1}
    assert (table["aborted"] == (table["dropped"] > 3)).all()
    kept = table[table["aborted"] == 0]
    participants = CLIENTS - kept["dropped"]
    assert charged(result.folder, CLIENTS).sum() == participants.sum()
    assert table.loc[table["aborted"] == 1, "train_loss"].isna().all()
    assert table["epsilon"].is_monotonic_increasing


@pytest.mark.thorough
def test_aborted_rounds_are_counted_over_interruptions(train, tmp_path):
    """In the summary, in the statement and at the console."""
    stop = tmp_path / "stop"
    stop.touch()
    losing = (*FEDAVG, *LOSING, "rounds=8", "algorithm.dropout=0.3", f"runtime.stop_file={stop}")
    result = train(*losing, name="stopped")
    while result.stop_reason == "interrupted":
        result = train(*losing, f"resume={result.folder}", name="stopped")
    aborted = int(metrics(result)["aborted"].sum())
    assert 0 < aborted < 8
    assert result.summary["aborted_rounds"] == aborted
    assert ("aborted rounds", f"{aborted} of 8") in summary_lines(result.summary, False)
    assert f"{aborted} of 8 rounds" in " ".join((result.folder / "privacy.txt").read_text().split())


def test_a_run_without_an_aborted_round_says_none(ran):
    result = ran(*FEDAVG)
    assert result.summary["aborted_rounds"] == 0
    assert "aborted:" not in (result.folder / "privacy.txt").read_text()


def test_a_run_whose_rounds_were_all_aborted_has_failed(command):
    losing = (
        *FEDAVG,
        "algorithm.dropout=0.9",
        "rounds=2",
        "runtime.progress=none",
        "runtime.plots=false",
    )
    said = command("train", *losing)
    assert said.status == 1
    assert "all 2 rounds" in said.sentence
    assert "algorithm.tolerated_dropouts" in said.sentence


def test_the_cost_is_that_of_the_rounds_a_client_was_in(ran):
    result = ran(*FEDAVG)
    event = parse_event("Gaussian(z=2.0)")
    assert result.privacy["epsilon_sound"] == pytest.approx(
        GdpAccountant().epsilon_of({event: 4}, 1e-5, ADD_OR_REMOVE)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("family", [SKELLAM, GAUSSIAN])
def test_the_ledger_of_whole_numbers_is_accounted_for_again(family, train, command):
    result = train(*FEDAVG, *family)
    (row,) = pd.read_csv(result.folder / "ledger.csv").to_dict("records")
    event = parse_event(row["event_sound"])
    found = RdpAccountant().epsilon_of({event: 4}, 1e-5, ADD_OR_REMOVE)
    assert result.privacy["epsilon_sound"] == pytest.approx(found)
    assert found > GdpAccountant().epsilon_of({parse_event("Gaussian(z=2.0)"): 4}, 1e-5, "")
    told = command("account", "--run", str(result.folder))
    assert told.status == 0, told.err
    assert f"{found:.3f}" in told.out


@pytest.mark.thorough
def test_bits_and_bytes_are_columns_of_these_runs_alone(ran, train):
    table = metrics(ran(*RUNS["client, sampled, skellam"]))
    assert set(table["bits_per_coordinate"]) == {18}
    assert set(table["bytes_per_client"]) == {1024 * 18 // 8}
    assert "bits_per_coordinate" not in metrics(train("algorithm=cdp_fedavg", "rounds=1"))
    idealised = metrics(ran(*FEDAVG))
    assert idealised["bits_per_coordinate"].isna().all()


@pytest.mark.thorough
def test_the_statement_names_what_is_tolerated_and_what_is_idealised(ran):
    text = " ".join(
        (ran(*RUNS["client, dropouts, adam"]).folder / "privacy.txt").read_text().split()
    )
    assert "against the server, if it sees only the sum of the uploads" in text
    assert "Each of 12 clients adds a share of the noise, and 7 honest shares together" in text
    assert "Up to 3 clients may drop out of a round (tolerated_dropouts=3)" in text
    assert "Up to 2 clients may reveal a share of noise to the server" in text
    assert "distributed trust" in text
    assert "idealisation" in text
    discrete = ran(*RUNS["record, discrete gaussian"]).folder / "privacy.json"
    caveats = " ".join(json.loads(discrete.read_text())["caveats"])
    assert "modulo 2^18, with discrete gaussian shares" in caveats
    assert "The protocol that hides single uploads was not simulated" in caveats
    assert "idealisation" not in caveats
    assert "Noise is drawn in double precision" in text
    assert "double precision" not in caveats


@pytest.mark.few(1)
@pytest.mark.parametrize("shares", ["continuous", "discrete_gaussian", "skellam"])
def test_noise_is_calibrated_to_epsilon(shares, train):
    result = train(*CALIBRATED, "epsilon=4", f"algorithm.shares={shares}")
    assert result.privacy["epsilon"] == pytest.approx(4, rel=1e-3)
    assert result.privacy["epsilon"] <= 4


@pytest.mark.thorough
def test_distributed_equals_central_within_the_seeds(train):
    """Accuracy of the idealisation and of whole numbers lies in the range of a trusted server's seeds."""
    settings = (*FEDAVG, "rounds=25", "noise_schedule.noise_multiplier=1", "evaluation_interval=25")

    number = itertools.count()

    def accuracy(*more: str) -> list[float]:
        return [
            train(*settings, *more, f"seed={s}", name=f"run{next(number)}").summary["test_accuracy"]
            for s in (0, 1, 2)
        ]

    central = accuracy("algorithm.trust=central")
    spread = max(central) - min(central) + 0.02
    for shares in ((), GAUSSIAN, SKELLAM):
        found = accuracy(*shares)
        assert abs(sum(found) - sum(central)) / 3 <= spread


def test_a_budget_that_leaves_too_few_clients_ends_the_run(train):
    """With n - s clients at least; those whose budget is spent no longer come."""
    result = train(
        *FEDAVG, "rounds=null", "epsilon=3", "algorithm.clients_per_round=9",
        "algorithm.tolerated_dropouts=1", "noise_schedule.noise_multiplier=4",
    )  # fmt: skip
    assert result.stop_reason == "budget"
    assert result.privacy["epsilon"] <= 3
    assert (metrics(result)["dropped"] <= 1).all()


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((*RECORDS, *SKELLAM), "algorithm.sample_rate must be 1 with shares=skellam, got 0.5"),
        ((*FEDAVG, *SKELLAM, "algorithm.bits=4"), "modulus too small"),
        ((*FEDAVG, *SKELLAM, *HISTOGRAM), "algorithm.shares=skellam goes with clippers"),
        ((*FEDAVG, *SKELLAM, "accountant=pld"), "accountant=rdp"),
        ((*FEDAVG, "algorithm.tolerated_dropouts=12"), "algorithm.tolerated_dropouts must be at most 11"),
        ((*FEDAVG, "algorithm.trust=local"), "algorithm.trust must be one of central, distributed"),
        ((*FEDAVG, "audit=epsilon"), "an audit of epsilon does not go with algorithm=ddp_fedavg"),
        ((*RECORDS, "algorithm.trust=local", "algorithm.dropout=0.1"), "algorithm.dropout must be 0"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_sentence_before_the_first_round(
    overrides, words, command
):
    found = command("train", *overrides)
    assert found.status != 0
    assert words in found.sentence


def test_a_natural_partition_needs_to_say_how_many_add_a_share():
    config = fedpriv.compose(
        [*NATURAL, *SKELLAM, "partition=natural", "dataset=femnist", "dry_run=true"]
    )
    with pytest.raises(ConfigError, match=r"algorithm\.clients_per_round"):
        fedpriv.run(config)


def test_a_dry_run_of_the_idealisation_builds_no_model(command):
    found = command("train", *FEDAVG, "dry_run=true", "algorithm.tolerated_collusion=3")
    assert "the shares of 9 of 12 clients" in " ".join(found.out.replace("│", " ").split())


@pytest.mark.parametrize("settings", [FEDAVG, (*RECORDS, "algorithm.trust=local")])
def test_an_audit_of_epsilon_of_a_finished_run_is_refused_in_one_sentence(settings, ran, command):
    found = command("audit", "epsilon", str(ran(*settings).folder))
    assert found.status != 0
    assert "one sum of those announced" in found.sentence


@pytest.mark.parametrize(("tolerated", "probability"), [(0, "0.9998"), (6, "0.3872")])
def test_the_plan_tells_how_many_rounds_dropouts_abort(tolerated, probability):
    """Of 12 clients more than s drop out with the tail of a binomial."""
    overrides = ("algorithm.dropout=0.5", f"algorithm.tolerated_dropouts={tolerated}")
    plan = make_plan(build_parts(fedpriv.compose([*FEDAVG, *overrides])))
    said = f"with probability 0.5, which aborts a round with probability {probability}"
    assert said in dict(plan.lines)["each round"]


def test_the_same_epsilon_is_the_same_number_everywhere_in_the_statement(ran):
    result = ran(*CALIBRATED, "epsilon=8")
    sound = round_up(result.privacy["epsilon_sound"])
    words = " ".join((result.folder / "privacy.txt").read_text().split())
    assert f"Sound: epsilon = {sound}." in words
    assert f"epsilon_sound {sound} for each." in words
