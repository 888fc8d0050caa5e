"""Runs on text: plans without files, and what the privacy statement says about the data."""

from __future__ import annotations

import json

import pytest

import fedpriv
from fedpriv.experiment.parts import build_parts
from fedpriv.experiment.plan import make_plan

SMALL = ("model.hidden=4", "model.embedding=4", "runtime.plots=false", "rounds=1")
PRIVATE = (
    "algorithm=dp_fl", "clipper=constant", "noise_schedule=constant", "clipper.clip_norm=1",
    "noise_schedule.noise_multiplier=2",
)  # fmt: skip


@pytest.fixture
def play(tmp_path) -> str:
    """A folder with a play of six roles."""
    file = tmp_path / "tinyshakespeare" / "input.txt"
    file.parent.mkdir()
    file.write_text("\n\n".join(f"ROLE{i}:\n{'to be or not to be. ' * 9}" for i in range(6)))
    return str(tmp_path)


@pytest.mark.parametrize("dataset", ["sentiment140", "ubuntu_irc", "reddit", "shakespeare"])
def test_a_plan_needs_no_files_and_says_what_it_assumes(dataset, command, tmp_path):
    said = command("train", f"dataset={dataset}", f"dataset.path={tmp_path}", "dry_run=true")
    assert said.status == 0
    assert "training records assumed" in " ".join(said.out.replace("│", " ").split())


def test_a_run_without_the_file_ends_before_the_first_round(command, tmp_path):
    said = command("train", "dataset=sentiment140", f"dataset.path={tmp_path}")
    assert said.status == 2
    assert f"sentiment140 not found: dataset.path={tmp_path} has no " in said.err


def test_the_statement_says_that_a_vocabulary_was_private(train, play):
    keys = ("dataset=shakespeare", f"dataset.path={play}", "dataset.level=word", "dataset.length=5")
    result = train(*PRIVATE, *SMALL, *keys, "dataset.vocabulary=private")
    caveats = json.loads((result.folder / "privacy.json").read_text())["caveats"]
    assert caveats[0].startswith(
        "The vocabulary was built from the clients' private training texts"
    )
    assert "not for a speech" in caveats[1]


def test_a_plan_says_that_images_are_lossy():
    parts = build_parts(
        fedpriv.compose([*PRIVATE, "dataset=cifar10", "dataset.source=jpeg", "partition=iid"])
    )
    assert "no CIFAR-10 accuracy" in dict(make_plan(parts).lines)["data"]
