"""``fedpriv verify`` as it is called."""

from __future__ import annotations

import json
from functools import partial

import pytest
from planted import RECORDS

from fedpriv.tools.verify import command as verify_command
from fedpriv.tools.verify.checks import all_checks

pytestmark = pytest.mark.usefixtures("unpublished")

PLUG_IN = """
import torch

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.record_computation import RecordComputation


class Counts(RecordComputation):
    def _lots(self, local_step):
        records, owners = super()._lots(local_step)
        self.count = torch.bincount(owners, minlength=len(local_step.cohort))[:, None]
        return records, owners

    def mean(self, released, cohort):
        mean, sizes = super().mean(released, cohort)
        return mean * sizes[:, None] / self.count.clamp_min(1), sizes


class Mine(DpFl):
    def start(self, context):
        trainer = super().start(context)
        trainer.computation.__class__ = Counts
        return trainer
"""


@pytest.mark.thorough
def test_a_shipped_algorithm_passes_and_the_table_is_written(command, tmp_path):
    outcome = command("verify", *RECORDS, "--json", "table.json")
    assert outcome.status == 0, outcome.out
    assert "none failed" in outcome.out
    assert "std of gradient_sum" in outcome.out
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["passed"]
    assert {check["about"] for check in table["checks"]} == {
        "noise", "independence", "sensitivity", "sampling", "outside", "files", "charge",
    }  # fmt: skip
    assert "an interrupted run, resumed" in {check["check"] for check in table["checks"]}
    assert sum(check["level"] or 0.0 for check in table["checks"]) <= 5e-4 * (1 + 1e-9)


@pytest.fixture
def few_samples(monkeypatch):
    monkeypatch.setattr(
        verify_command, "all_checks", partial(all_checks, samples=1000, units_too=False)
    )


def test_a_plug_in_that_leaks_fails_with_status_1(command, tmp_path, few_samples):
    (tmp_path / "leaky_plugin.py").write_text(PLUG_IN)
    folder = tmp_path / "yamls" / "algorithm"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "# @package _global_\n# mine\ndefaults: [dp_fl, _self_]\n"
        "algorithm:\n  _target_: leaky_plugin.Mine\n  name: mine\n"
    )
    outcome = command(
        "verify",
        "--config-dir",
        "yamls",
        "algorithm=mine",
        *RECORDS[1:],
        "--rounds",
        "2",
        "--json",
        "table.json",
    )
    assert outcome.status == 1, outcome.err
    assert "FAIL outside, with other lots, cohorts and noise" in outcome.out
    assert not json.loads((tmp_path / "table.json").read_text())["passed"]


def test_a_run_without_privacy_has_nothing_to_hold(command):
    outcome = command("verify", "algorithm=fedavg")
    assert outcome.status == 0
    assert "none is claimed" in outcome.out


@pytest.mark.thorough
def test_made_up_records_stand_for_a_data_set_that_is_not_there(
    command, monkeypatch, tmp_path, few_samples
):
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "nowhere"))
    outcome = command(
        "verify", "algorithm=wei_cdp", "dataset=adult", "model=logistic", "partition.clients=2",
        "partition.records=20", "--synthetic",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err + outcome.out


@pytest.mark.thorough
def test_made_up_texts_are_verified(command, monkeypatch, tmp_path, few_samples):
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "nowhere"))
    outcome = command(
        "verify", "dataset=shakespeare", "algorithm=dp_fl", "partition=iid", "partition.clients=3",
        "dataset.length=4", "model.layers=1", "model.hidden=3", "model.embedding=2",
        "rounds=2", "--rounds", "2", "--synthetic",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err + outcome.out
    assert "other tokens" in outcome.out or "ways" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("algorithm=dp_flx",), "unknown algorithm option dp_flx; did you mean dp_fl?"),
        (("clip_norm=1",), "unknown key"),
        (("--rounds", "0"), "--rounds must be a whole number >= 1"),
        (("--rounds", "99999"), "take fewer clients, a smaller model or fewer rounds"),
        (("--seed", "x"), "--seed must be a whole number"),
        (("--json", "no/x.json"), "--json must be a file in an existing folder"),
        (("--config-dir", "nowhere"), "--config-dir must be an existing folder"),
        (("attack=label_flip", "algorithm=naseri_cdp"), "attack must be none"),
        (("epsilon=null",), "rounds must be given when epsilon is null"),
    ],
)
def test_what_cannot_be_verified_is_said_in_a_sentence(command, arguments, words):
    outcome = command("verify", *arguments)
    assert outcome.status == 2
    assert words in outcome.sentence
