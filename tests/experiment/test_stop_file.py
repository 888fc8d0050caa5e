"""A stop file ends a run as a signal does; and no two processes run one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.common.errors import FedprivError
from fedpriv.common.files import locked

SHORT = ("algorithm=dp_fl", "epsilon=null", "rounds=5", "evaluation_interval=2")
QUIET = ("runtime.progress=none", "runtime.plots=false")


def rounds(run: Path) -> int:
    return len(pd.read_csv(run / "metrics.csv"))


@pytest.fixture
def stop(tmp_path) -> Path:
    """A stop file that is there."""
    (tmp_path / "stop").touch()
    return tmp_path / "stop"


def test_a_run_ends_after_the_round_in_which_the_file_is_there(train, stop):
    result = train(*SHORT, f"runtime.stop_file={stop}")
    assert result.stop_reason == "interrupted"
    assert rounds(result.folder) == 1
    assert (result.folder / "checkpoint.pt").exists()


def test_a_run_without_the_file_goes_to_its_end(train, tmp_path):
    result = train(*SHORT, f"runtime.stop_file={tmp_path / 'stop'}")
    assert (result.stop_reason, rounds(result.folder)) == ("rounds", 5)


def test_the_file_is_left_to_whoever_made_it(train, stop):
    train(*SHORT, f"runtime.stop_file={stop}")
    assert stop.exists()


@pytest.mark.thorough
def test_a_stopped_run_goes_on_to_what_it_would_have_been(train, stop, assert_same_run):
    stopped = train(*SHORT, f"runtime.stop_file={stop}", name="stopped")
    stop.unlink()
    train(*SHORT, f"runtime.stop_file={stop}", f"resume={stopped.folder}", name="stopped")
    assert_same_run(stopped.folder, train(*SHORT, name="whole").folder)


def test_the_command_does_not_begin_a_run_whose_stop_file_is_there(command, stop, tmp_path):
    said = command("train", *SHORT, *QUIET, "runtime.stop_file=stop", "runtime.run_dir=run")
    assert said.status == 130
    assert "not begun: stop is there" in said.sentence
    assert not (tmp_path / "run").exists()


def test_the_command_resumes_a_stopped_run(command, train, stop, assert_same_run):
    stopped = train(*SHORT, f"runtime.stop_file={stop}", name="stopped").folder
    assert command("train", *SHORT, "resume=stopped", *QUIET).status == 0
    assert json.loads((stopped / "summary.json").read_text())["stop_reason"] == "rounds"


def test_a_folder_that_is_being_run_is_not_resumed(train):
    folder = train(*SHORT).folder
    before = (folder / "summary.json").read_bytes()
    with locked(folder), pytest.raises(FedprivError, match="is being run by another process"):
        train(*SHORT, f"resume={folder}")
    assert (folder / "summary.json").read_bytes() == before


def test_a_folder_is_free_again_after_a_run(train):
    folder = train(*SHORT).folder
    with locked(folder) as free:
        assert free


def test_a_run_that_another_process_makes_is_waited_for_and_taken(tmp_path, command):
    """Two figures that share a run: the second one takes what the first one made."""
    settings = [*SHORT, *QUIET, "runtime.run_dir=run", "runtime.reuse=true"]
    first = command("train", *settings)
    metrics = (tmp_path / "run" / "metrics.csv").read_bytes()
    second = command("train", *settings)
    assert (first.status, second.status) == (0, 0)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == metrics


def test_a_folder_to_be_reused_that_holds_another_run_is_refused(command):
    settings = [*SHORT, *QUIET, "runtime.run_dir=run", "runtime.reuse=true"]
    assert command("train", *settings).status == 0
    said = command("train", *settings, "seed=5")
    assert said.status == 2
    assert "holds a different run: " in said.sentence
