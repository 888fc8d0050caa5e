"""``fedpriv audit``: what it prints and writes, and what it says when it cannot."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pandas as pd
import pytest
import torch
import yaml

RUN = (
    "train", "algorithm=fedavg", "dataset=digits", "rounds=2", "runtime.progress=none",
    "runtime.plots=false", "runtime.run_dir=run",
)  # fmt: skip


def test_membership_prints_a_table_and_writes_json_csv_and_picture(command, by_heart):
    outcome = command("audit", "membership", str(by_heart), "--nonmembers", "held_out")
    assert outcome.status == 0, outcome.err
    assert all(name in outcome.out for name in ("loss", "calibrated", "white_box", "blind"))
    assert "too few non-members" in outcome.out
    assert re.search(
        r"loss +│ [01]\.\d{3} \[.+\] │ \d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\] % ", outcome.out
    )
    written = json.loads((by_heart / "audit" / "membership.json").read_text())
    assert written["attacks"]["loss"]["auc"] > 0.5
    assert written["members"] == written["nonmembers"] == 192
    assert "DeLong" in written["intervals"]
    with (by_heart / "audit" / "membership.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["attack"] for row in rows] == ["loss", "calibrated", "white_box", "blind"]
    assert rows[0]["tpr_at_0.1_percent"] == ""
    assert (by_heart / "audit" / "membership.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.thorough
def test_property_writes_what_it_found_of_each_target(command, by_heart):
    outcome = command("audit", "property", str(by_heart), "--property", "label:3")
    assert outcome.status == 2
    assert "24 clients" not in outcome.out
    (by_heart.parent / "p.csv").write_text("".join(f"{k},{k % 2}\n" for k in range(24)))
    choice = f"file:{by_heart.parent / 'p.csv'}"
    outcome = command("audit", "property", str(by_heart), "--property", choice)
    assert outcome.status == 0, outcome.err
    found = json.loads((by_heart / "audit" / "property-file-p.json").read_text())
    assert 0 <= found["auc_low"] <= found["auc"] <= found["auc_high"] <= 1
    assert found["clients"]["target, with"] == 6
    with (by_heart / "audit" / "property-file-p.csv").open() as file:
        assert sum(row["score"] != "" for row in csv.DictReader(file)) == 12


def test_an_audit_leaves_the_run_as_it_was(command, by_heart):
    def state() -> list:
        files = ("summary.json", "metrics.csv", "privacy.json", "model.pt", "checkpoint.pt")
        return [(by_heart / name).read_bytes() for name in files]

    before = state()
    command("audit", "membership", str(by_heart), "--records", "40")
    assert state() == before


@pytest.mark.thorough
def test_of_several_runs_one_that_cannot_be_audited_does_not_stop_the_others(command, by_heart):
    outcome = command(
        "audit", "membership", "nowhere", str(by_heart), "--records", "40", "--csv", "t.csv"
    )
    assert outcome.status == 2
    assert "nowhere is no run folder" in outcome.err
    assert len(pd.read_csv("t.csv")) == 1


@pytest.mark.thorough
def test_the_same_seed_finds_the_same(command, by_heart):
    found = []
    for seed in ("0", "0", "1"):
        command("audit", "membership", str(by_heart), "--records", "40", "--seed", seed)
        found.append(json.loads((by_heart / "audit" / "membership.json").read_text())["attacks"])
    assert found[0] == found[1] != found[2]


@pytest.mark.thorough
def test_a_run_that_is_not_finished_is_audited_at_its_checkpoint(command, by_heart, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(by_heart, copy)
    for name in ("summary.json", "model.pt"):
        (copy / name).unlink()
    assert command("audit", "membership", "copy", "--records", "40").status == 0
    found = json.loads((copy / "audit" / "membership.json").read_text())
    assert (found["finished"], found["rounds"]) == (False, 40)


@pytest.mark.thorough
def test_a_run_from_before_a_key_existed_is_audited(command, by_heart, tmp_path):
    copy = tmp_path / "old"
    shutil.copytree(by_heart, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    del config["audit"], config["runtime"]["snapshot_interval"], config["attack"]
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    assert command("audit", "membership", "old", "--records", "40").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("membership", "nowhere"), "no run folder"),
        (("membership", "."), "no run folder"),
        (("membership", "run", "--nonmembers", "held_out"), "0 non-members (held_out)"),
        (("membership", "run", "--nonmembers", "all"), "one of test, held_out, got all"),
        (("membership", "run", "--records", "0"), "--records must be a whole number >= 1"),
        (("membership", "run", "--seed", "x"), "--seed must be a whole number"),
        (("membership", "run", "--records", "5"), "needs 20 of each"),
        (("membership", "run", "--csv", "no/x.csv"), "--csv must be"),
        (("membership", "run", "--device", "tpu"), "--device must be"),
        (("property", "run", "--property", "label:3"), "an attack needs 10 of each"),
        (("property", "run", "--property", "colour"), "one of intensity"),
        (("property", "run", "--clients", "none"), "--clients must be"),
        (("canary", "run"), "membership"),
        (("membership", "run", "--record", "5"), "did you mean --records?"),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_sentence(command, ran, tmp_path, arguments, words):
    shutil.copytree(ran("algorithm=fedavg", "dataset=digits", "rounds=2").folder, tmp_path / "run")
    outcome = command("audit", *arguments)
    assert outcome.status == 2
    assert words in outcome.sentence


def test_a_run_that_withheld_its_seeds_is_refused(command):
    command(*RUN, "runtime.diagnostics=false")
    outcome = command("audit", "membership", "run")
    assert outcome.status == 2
    assert "diagnostics=false" in outcome.sentence


def test_a_run_without_a_model_is_refused(command, ran, tmp_path):
    shutil.copytree(ran("algorithm=fedavg", "dataset=digits", "rounds=2").folder, tmp_path / "run")
    for name in ("model.pt", "checkpoint.pt"):
        (tmp_path / "run" / name).unlink()
    outcome = command("audit", "membership", "run")
    assert outcome.status == 2
    assert "no model yet" in outcome.sentence


def test_damaged_weights_are_said(command, ran, tmp_path):
    shutil.copytree(ran("algorithm=fedavg", "dataset=digits", "rounds=2").folder, tmp_path / "run")
    (tmp_path / "run" / "model.pt").write_bytes(b"nonsense")
    outcome = command("audit", "membership", "run")
    assert outcome.status == 2
    assert "cannot be read" in outcome.sentence


def test_weights_of_another_model_are_said(command, ran, tmp_path):
    shutil.copytree(ran("algorithm=fedavg", "dataset=digits", "rounds=2").folder, tmp_path / "run")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "run" / "model.pt")
    outcome = command("audit", "membership", "run")
    assert outcome.status == 1
    assert "do not fit the model" in outcome.sentence
