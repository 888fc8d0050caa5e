"""Runs that are not resumed: another configuration, a damaged checkpoint, no run at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import fedpriv
from fedpriv import cli
from fedpriv.common.errors import ConfigError


@pytest.fixture(scope="module")
def of_the_command(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    cli.run([
        "train", "algorithm=dp_fl", "rounds=2", f"runtime.run_dir={folder}", "runtime.progress=none",
        "runtime.plots=false",
    ])  # fmt: skip
    return folder


@pytest.fixture
def finished(of_the_command, tmp_path) -> Path:
    return Path(shutil.copytree(of_the_command, tmp_path / "run"))


def refused(command, *overrides: str) -> str:
    said = command("train", *(overrides or ["resume=run"]), "runtime.progress=none")
    assert said.status == 2
    return said.sentence


def test_a_run_with_another_budget_is_not_resumed(command, finished):
    assert "epsilon is 2 there and 3 here" in refused(command, "resume=run", "epsilon=3")


def test_a_number_written_otherwise_is_the_same_run(command, finished):
    assert command("train", "resume=run", "epsilon=2").status == 0


def test_a_run_with_another_seed_is_not_resumed(command, finished):
    sentence = refused(command, "resume=run", "seed=5")
    assert "holds a different run" in sentence
    assert "seed is 0 there and 5 here" in sentence


def test_a_run_without_checkpoint_but_of_another_identity_is_not_resumed(command, finished):
    (finished / "checkpoint.pt").unlink()
    assert "epsilon is 2 there and 3 here" in refused(command, "resume=run", "epsilon=3")


def test_what_is_not_part_of_the_identity_may_change(command, finished):
    said = command("train", "resume=run", "runtime.checkpoint_interval=3", "runtime.progress=none")
    assert said.status == 0


def test_a_checkpoint_of_another_schema_is_not_resumed(command, finished):
    state = torch.load(finished / "checkpoint.pt", weights_only=False)
    torch.save({**state, "schema_version": 99}, finished / "checkpoint.pt")
    assert "checkpoint schema 99" in refused(command)


@pytest.mark.few(2)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_checkpoint_cut_short_is_not_resumed(share, command, finished):
    content = (finished / "checkpoint.pt").read_bytes()
    (finished / "checkpoint.pt").write_bytes(content[: int(share * len(content))])
    assert "checkpoint.pt cannot be read" in refused(command)


@pytest.mark.few(2)
@pytest.mark.parametrize("content", [b"not a checkpoint", b"\x80\x04N.", bytes(1000), b"{}"])
def test_a_file_that_is_no_checkpoint_is_not_resumed(content, command, finished):
    (finished / "checkpoint.pt").write_bytes(content)
    assert refused(command).startswith("fedpriv: resume")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"overrides": 3}', "null"])
def test_a_folder_with_a_broken_environment_is_not_resumed(content, command, finished):
    (finished / "environment.json").write_text(content)
    assert refused(command).startswith("fedpriv: resume")


def test_a_folder_that_is_not_there_is_not_resumed(command):
    said = refused(command, "resume=nowhere")
    assert "resume must be an existing run folder" in said
    assert "got nowhere" in said


def test_a_folder_without_a_run_is_not_resumed(command, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "resume must be an existing run folder" in refused(command, "resume=empty")


def test_a_folder_that_is_not_there_is_refused_in_a_notebook_too(tmp_path):
    with pytest.raises(ConfigError, match="resume must be an existing run folder"):
        fedpriv.run(fedpriv.compose([f"resume={tmp_path / 'nowhere'}"]))


def test_a_new_run_is_not_made_in_the_folder_of_another(command, finished):
    said = command("train", "runtime.run_dir=run", "runtime.progress=none")
    assert said.status == 2
    assert "resume=run continues the one there" in said.sentence


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again(command, finished):
    (finished / "checkpoint.pt").unlink()
    sentence = refused(command)
    assert "checkpoint.pt is missing" in sentence
    assert "start anew in another folder" in sentence
    for file in ("summary.json", "privacy.json", "ledger.csv"):
        (finished / file).unlink()
    assert "checkpoint.pt is missing" in refused(command)
    header, *_ = (finished / "metrics.csv").read_text().splitlines()
    (finished / "metrics.csv").write_text(header + "\n")
    said = command("train", "resume=run", "runtime.progress=lines")
    assert said.status == 0
    assert "it begins with round 1" in said.out


def test_a_run_folder_that_is_a_file_is_refused_by_its_own_key(command, tmp_path):
    (tmp_path / "afile").touch()
    said = command("train", "algorithm=dp_fl", "rounds=1", "runtime.run_dir=afile")
    assert said.sentence.startswith("fedpriv: runtime.run_dir must be a folder")
    said = command("train", "algorithm=dp_fl", "rounds=1", "runtime.output_dir=afile")
    assert said.sentence.startswith("fedpriv: runtime.output_dir must be a folder")
