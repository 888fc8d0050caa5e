"""A run that was killed or interrupted and goes on is the run that was not."""

from __future__ import annotations

import os
import random
import shutil
import signal as signals
import time
from pathlib import Path

import pytest
import torch
from short_runs import HARD, SHORT, as_before_the_first_round

from fedpriv.common.errors import Interrupted
from fedpriv.experiment import checkpoint, observers


class Died(BaseException):
    """Stands for the end of the process: nothing of fedpriv catches it."""


def rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1 if path.exists() else -1


@pytest.mark.thorough
def test_a_run_killed_at_any_moment_goes_on_as_if_it_had_not_been(
    start, train, command, tmp_path, assert_same_run
):
    run = tmp_path / "killed"
    settings = (*HARD, "rounds=40", "runtime.checkpoint_interval=7", "runtime.plots=false")
    process = start("train", *settings, "runtime.run_dir=killed")
    while rows(run / "metrics.csv") < 15:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    time.sleep(random.Random(0).uniform(0, 0.1))
    process.kill()
    process.communicate()
    assert not (run / "summary.json").exists()
    said = command("train", "resume=killed", "runtime.progress=none")
    assert said.status == 0, said.err
    whole = train(*settings, name="whole")
    assert_same_run(run, whole.folder)
    assert [f.name for f in run.rglob("*.tmp")] == []


def test_slow_rounds_are_saved_before_the_interval_is_over(train, monkeypatch):
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda folder, state: saved.append(state))
    settings = (*HARD, "rounds=3", "runtime.checkpoint_interval=1000", "runtime.plots=false")
    train(*settings, name="quick")
    assert len(saved) == 2  # at the beginning and at the end
    saved.clear()
    monkeypatch.setattr(observers, "_MOST_SECONDS", 0)
    train(*settings, name="slow")
    assert len(saved) == 5


def dying(monkeypatch, name: str, call: int) -> None:
    """Let the ``call``-th use of ``os.<name>`` be the last thing that happens."""
    real, calls = getattr(os, name), [0]

    def counted(*arguments, **keys):
        calls[0] += 1
        if calls[0] == call:
            raise Died
        return real(*arguments, **keys)

    monkeypatch.setattr(os, name, counted)


@pytest.fixture
def whole(ran):
    return ran(*SHORT).folder


@pytest.fixture
def copied(whole, tmp_path):
    """(name) → a copy of the finished run, to be spoilt."""
    return lambda name: Path(shutil.copytree(whole, tmp_path / name))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "calls"), [("fsync", range(3, 99, 6)), ("replace", range(3, 99, 6))]
)
def test_a_run_that_dies_at_any_write_goes_on_as_if_it_had_not(
    name, calls, train, whole, tmp_path, assert_same_run, monkeypatch
):
    resumed = 0
    for call in calls:
        folder = tmp_path / f"died-{call}"
        with monkeypatch.context() as patch:
            dying(patch, name, call)
            try:
                train(*SHORT, name=folder.name)
                break
            except Died:
                pass
        if not (folder / "config.yaml").exists():
            continue  # nothing had begun
        train(*SHORT, f"resume={folder}", name=folder.name)
        assert_same_run(folder, whole)
        resumed += 1
    assert resumed > 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "accounting",
    [
        ("accountant=pld", "accountant.discretization=0.05", "noise_schedule=constant"),
        (
            "accountant=pld", "accountant.discretization=0.05", "noise_schedule=exponential",
            "noise_schedule.beta=0.95",
        ),
        ("accountant=gdp", "noise_schedule=constant", "algorithm.sample_rate=1"),
    ],
    ids=["pld", "pld, falling noise", "gdp"],
)  # fmt: skip
def test_an_accountant_goes_on_exactly_where_it_was(
    accounting, train, assert_same_run, monkeypatch
):
    """Sampled clients have histories of their own; the budget ends the run, and at the same round."""
    settings = (
        "algorithm=dp_fl", *accounting, "noise_schedule.noise_multiplier=20", "epsilon=3",
        "algorithm.participation=sampled", "algorithm.clients_per_round=4", "rounds=30",
        "evaluation_interval=20", "runtime.checkpoint_interval=2",
    )  # fmt: skip
    whole = train(*settings, name="whole")
    with monkeypatch.context() as patch:
        dying(patch, "fsync", 14)
        with pytest.raises(Died):
            train(*settings, name="died")
    resumed = train(*settings, f"resume={whole.folder.parent / 'died'}", name="died")
    assert_same_run(resumed.folder, whole.folder)
    assert whole.privacy["epsilon"] <= 3


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    train, whole, copied, assert_same_run
):
    folder = copied("early")
    as_before_the_first_round(folder)
    train(*SHORT, f"resume={folder}", name="early")
    assert_same_run(folder, whole)


def test_a_finished_run_that_is_resumed_stays_what_it_is(train, whole, copied, assert_same_run):
    folder = copied("again")
    train(*SHORT, f"resume={folder}", name="again")
    assert_same_run(folder, whole)


def test_rows_written_after_the_checkpoint_are_not_there_twice(
    train, whole, copied, assert_same_run
):
    folder = copied("torn")
    with (folder / "metrics.csv").open("a") as file:
        file.write("7,0.1,half a ro")
    train(*SHORT, f"resume={folder}", name="torn")
    assert_same_run(folder, whole)


def test_what_was_half_written_when_the_process_died_is_removed(train, copied):
    folder = copied("torn")
    leftover = folder / ".checkpoint.pt.4711.tmp"
    leftover.write_bytes(b"half a checkpoint, with the seeds in it")
    train(*SHORT, f"resume={folder}", name="torn")
    assert not leftover.exists()


STOPPING = """
import os, signal
from fedpriv.privacy.clippers import ConstantClipper

class Stopping(ConstantClipper):
    seen = 0

    def observe(self, *released):
        self.seen += 1
        if self.seen == 3 and os.environ.get("STOP_WITH"):
            os.kill(os.getpid(), getattr(signal, os.environ["STOP_WITH"]))
"""


STOPPED = (
    "train", "algorithm=dp_fl", "clipper._target_=stopping_clipper.Stopping", "epsilon=null",
    "runtime.progress=none", "runtime.plots=false",
)  # fmt: skip


@pytest.fixture
def stopping(tmp_path, monkeypatch):
    """A clipper that sends its process the signal named by STOP_WITH in round 3 of a session."""
    (tmp_path / "stopping_clipper.py").write_text(STOPPING)
    monkeypatch.setenv("STOP_WITH", "SIGINT")
    return monkeypatch


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_run_with_a_checkpoint_and_the_way_to_go_on(
    signal, command, stopping, tmp_path
):
    stopping.setenv("STOP_WITH", signal)
    said = command(*STOPPED, "rounds=7", "runtime.run_dir=run")
    assert said.status == 130
    assert "interrupted after round 3" in said.sentence
    assert said.sentence.endswith("fedpriv train resume=run --allow stopping_clipper")
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)["round"] == 3
    assert "resume=" not in said.out  # once is enough
    assert '"stop_reason": "interrupted"' in (tmp_path / "run" / "summary.json").read_text()


def test_a_launcher_hears_its_signal_when_the_checkpoint_is_there(command, stopping, tmp_path):
    heard = []

    def hear(number, frame):
        checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)
        heard.append(checkpoint["round"])

    before = signals.signal(signals.SIGUSR2, hear)
    try:
        stopping.setenv("STOP_WITH", "SIGUSR2")
        said = command(*STOPPED, "rounds=7", "runtime.run_dir=run")
    finally:
        signals.signal(signals.SIGUSR2, before)
    assert said.status == 130
    assert heard == [3]


def test_a_run_interrupted_after_its_rounds_says_how_to_go_on(
    train, whole, tmp_path, assert_same_run, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "late"
    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.experiment.report.write_report", interrupted)
        with pytest.raises(Interrupted, match="continue with fedpriv train resume="):
            train(*SHORT, name="late")
    train(*SHORT, f"resume={folder}", name="late")
    assert_same_run(folder, whole)


def test_a_statement_made_after_an_interruption_says_so(command, stopping, tmp_path):
    command(*STOPPED, "rounds=7", "runtime.run_dir=run")
    words = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert "interrupted and can be resumed" in words


@pytest.mark.thorough
def test_no_other_process_runs_its_folder_and_ctrl_c_ends_the_command_with_status_130(
    start, command, tmp_path
):
    process = start(
        "train", "algorithm=dp_fl", "epsilon=null", "rounds=1000000", "runtime.run_dir=run",
        "runtime.checkpoint_interval=5", "runtime.progress=none", "runtime.plots=false",
    )  # fmt: skip
    while rows(tmp_path / "run" / "metrics.csv") < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    other = command("train", "resume=run", "runtime.progress=none")
    assert other.status == 1
    assert other.sentence == "fedpriv: run is being run by another process"
    process.send_signal(2)
    _, said = process.communicate()
    assert process.returncode == 130
    assert len(said.strip().splitlines()) == 1
    assert "fedpriv train resume=run" in said
