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

import fedpriv
from fedpriv import cli
from fedpriv.common.errors import ConfigError, Interrupted

HARD = (
    "algorithm=adap_dpfl", "algorithm.optimizer=adam", "algorithm.learning_rate=0.01",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4", "algorithm.local_steps=2",
    "noise_schedule.beta=0.99", "epsilon=3000", "evaluation_interval=5",
)  # fmt: skip
SHORT = (*HARD, "rounds=4", "runtime.checkpoint_interval=2", "evaluation_interval=3")


class Died(BaseException):
    """Stands for the end of the process: nothing of fedpriv catches it."""


def rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1 if path.exists() else -1


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


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("fsync", range(3, 99, 6)),
        ("replace", range(3, 99, 6)),
        pytest.param("fsync", range(1, 99, 2), marks=pytest.mark.slow),
        pytest.param("replace", range(6, 99, 6), marks=pytest.mark.slow),
    ],
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


def as_before_the_first_round(folder: Path) -> None:
    for name in ("checkpoint.pt", "metrics.csv", "ledger.csv", "privacy.json", "summary.json"):
        (folder / name).unlink()


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


def test_resume_needs_nothing_but_the_folder(command, whole, tmp_path, assert_same_run):
    command("train", *SHORT, "runtime.run_dir=short", "runtime.progress=none")
    as_before_the_first_round(tmp_path / "short")
    said = command("train", "resume=short", "runtime.progress=none", "runtime.plots=false")
    assert said.status == 0
    assert_same_run(tmp_path / "short", whole)


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


def test_a_run_interrupted_again_and_again_is_the_run_that_was_not(
    command, stopping, tmp_path, assert_same_run
):
    statuses = [command(*STOPPED, "rounds=7", "runtime.run_dir=run").status]
    while statuses[-1] == 130:
        statuses.append(command("train", "resume=run", "--allow", "stopping_clipper").status)
    stopping.delenv("STOP_WITH")
    command(*STOPPED, "rounds=7", "runtime.run_dir=whole")
    assert statuses == [130, 130, 0]
    assert_same_run(tmp_path / "run", tmp_path / "whole")


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
    assert "epsilon is 2.0 there and 3 here" in refused(command, "resume=run", "epsilon=3")


def test_a_number_written_otherwise_gives_other_noise_and_is_not_resumed(command, finished):
    assert "epsilon is 2.0 there and 2 here" in refused(command, "resume=run", "epsilon=2")


def test_a_run_with_another_seed_is_not_resumed(command, finished):
    sentence = refused(command, "resume=run", "seed=5")
    assert "holds a different run" in sentence
    assert "seed is 0 there and 5 here" in sentence


def test_a_run_without_checkpoint_but_of_another_identity_is_not_resumed(command, finished):
    (finished / "checkpoint.pt").unlink()
    assert "epsilon is 2.0 there and 3 here" in refused(command, "resume=run", "epsilon=3")


def test_what_is_not_part_of_the_identity_may_change(command, finished):
    said = command("train", "resume=run", "runtime.checkpoint_interval=3", "runtime.progress=none")
    assert said.status == 0


def test_a_checkpoint_of_another_schema_is_not_resumed(command, finished):
    state = torch.load(finished / "checkpoint.pt", weights_only=False)
    torch.save({**state, "schema_version": 99}, finished / "checkpoint.pt")
    assert "checkpoint schema 99" in refused(command)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_checkpoint_cut_short_is_not_resumed(share, command, finished):
    content = (finished / "checkpoint.pt").read_bytes()
    (finished / "checkpoint.pt").write_bytes(content[: int(share * len(content))])
    assert "checkpoint.pt cannot be read" in refused(command)


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


def test_a_warning_about_a_resumed_run_goes_to_standard_error(command, finished):
    environment = finished / "environment.json"
    environment.write_text(environment.read_text().replace("started", "Started"))
    said = command("train", "resume=run", "runtime.progress=none")
    assert said.status == 0
    assert "fedpriv: warning: run/environment.json is not as the run wrote it" in said.err
    assert "warning:" not in said.out


def test_a_run_folder_that_is_a_file_is_refused_by_its_own_key(command, tmp_path):
    (tmp_path / "afile").touch()
    said = command("train", "algorithm=dp_fl", "rounds=1", "runtime.run_dir=afile")
    assert said.sentence.startswith("fedpriv: runtime.run_dir must be a folder")
    said = command("train", "algorithm=dp_fl", "rounds=1", "runtime.output_dir=afile")
    assert said.sentence.startswith("fedpriv: runtime.output_dir must be a folder")
