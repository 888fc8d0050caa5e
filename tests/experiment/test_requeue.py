"""A job that Slurm starts again leaves no result; any other one says how it ended.

``scontrol`` is a script here; tests/cluster has the real one.
"""

from __future__ import annotations

import os

import pytest

from fedpriv.experiment.requeue import leave_if_requeued


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """(what scontrol says of the job, starts before this one) → the process is that job."""

    def be(said: str, restarts: str | None = None) -> None:
        script = tmp_path / "scontrol"
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "JobId=7 {said}"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        for name in ("SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
            monkeypatch.delenv(name, raising=False)
        if restarts is not None:
            monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)

    return be


@pytest.mark.parametrize("restarts", [None, "1"])
def test_a_requeued_job_leaves_no_result(restarts, slurm, tmp_path):
    slurm(f"JobState=COMPLETING Restarts={int(restarts or 0) + 1} PreemptTime=None", restarts)
    with pytest.raises(SystemExit, match="job 7 goes on from its checkpoint"):
        leave_if_requeued()
    assert "requeue" not in (tmp_path / "asked").read_text()


def test_a_job_that_makes_room_is_put_back_into_the_queue(slurm, tmp_path):
    slurm("JobState=RUNNING Restarts=0 PreemptTime=2026-11-22T13:54:12")
    with pytest.raises(SystemExit):
        leave_if_requeued()
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "requeue 7"


def test_of_an_array_only_its_own_job_is_put_back(slurm, monkeypatch, tmp_path):
    slurm("JobState=RUNNING Restarts=0 PreemptTime=2026-11-22T13:54:12")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")  # its last job has the number of the array
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    with pytest.raises(SystemExit):
        leave_if_requeued()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["show job --oneliner 7_1", "requeue 7_1"]


@pytest.mark.parametrize(
    ("said", "restarts"),
    [
        ("JobState=COMPLETING Restarts=0 PreemptTime=None", None),  # scancel
        ("JobState=CANCELLED Restarts=1 PreemptTime=None", "1"),
        ("JobState=RUNNING Restarts=0 PreemptTime=None", None),  # scancel --signal=TERM
        ("JobState=RUNNING", None),
    ],
)
def test_a_job_that_ends_for_good_says_how_it_ended(said, restarts, slurm, tmp_path):
    slurm(said, restarts)
    leave_if_requeued()
    assert "requeue" not in (tmp_path / "asked").read_text()


def test_where_slurm_does_not_answer_the_job_ends_for_good(slurm, monkeypatch, tmp_path):
    slurm("JobState=COMPLETING Restarts=1 PreemptTime=None")
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    leave_if_requeued()
    (tmp_path / "scontrol").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    leave_if_requeued()


def test_elsewhere_nobody_is_asked(slurm, monkeypatch, tmp_path):
    slurm("JobState=COMPLETING Restarts=1 PreemptTime=None")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    leave_if_requeued()
    assert not (tmp_path / "asked").exists()
