"""Figures and sweeps on Slurm: whatever happens to a job, the same command ends in the same figure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("slurm")

SLURM = "hydra/launcher=submitit_slurm"
SWEEP = (
    "train", "-m", SLURM, "dataset=digits", "epsilon=null", "rounds=40", "algorithm=dp_fl",
    "clipper._target_=held_clipper.Held", "noise_schedule.noise_multiplier=16,8",
    "runtime.checkpoint_interval=2", "runtime.plots=false",
)  # fmt: skip


def answer(*words: str) -> list[str]:
    """The lines that a command of Slurm says."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def jobs_of(place) -> list[str]:
    """Running jobs of a test: <array>_<index>."""
    rows = answer("squeue", "-h", "-r", "-t", "R", "-o", "%i %Z")
    return sorted(row.split()[0] for row in rows if row.split()[1] == str(place.folder))


def process_of(job: str) -> int:
    """The Python process of a job."""
    array, _, index = job.partition("_")
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        own = {f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={index}".encode()}
        if own <= set(variables) and b"submitit.core._submit" in words and b"python" in words[0]:
            return int(path.parent.name)
    raise AssertionError(f"job {job} has no process")


def states(job: str) -> list[str]:
    """What became of every start of a job, the first one first."""
    words = ("sacct", "-n", "-X", "-D", "-P", "-o", "State", "-j", job)
    return [line.split()[0] for line in answer(*words)]


def test_a_figure_is_that_of_one_process(place):
    status, said = place.make(SLURM)
    assert status == 0, said
    place.assert_whole()


def test_after_the_kill_of_a_job_the_same_command_ends_in_the_same_figure(place):
    child = place.begin(SLURM)
    os.kill(process_of(jobs_of(place)[0]), signal.SIGKILL)
    status, err = place.end(child)
    assert status == 1
    assert "the launcher ended early" in err
    assert "the same command tries" in err
    assert "Traceback" not in err
    status, said = place.make(SLURM)
    assert status == 0, said
    assert "1 to be resumed" in said or "2 to be resumed" in said
    place.assert_whole()
    assert place.whole_rounds <= place.rounds_run <= place.whole_rounds + 2  # since its checkpoint


def test_scancel_leaves_checkpoints_and_the_same_command_goes_on(place):
    child = place.begin(SLURM)
    answer("scancel", *jobs_of(place))
    status, err = place.end(child)
    assert status == 1
    assert "interrupted after round" in err
    assert "2 of 2 runs of own/tiny failed, see above; the same command tries 2 again" in err
    status, said = place.make(SLURM)
    assert status == 0, said
    assert "2 to be resumed" in said
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_a_requeued_job_goes_on_by_itself(place):
    child = place.begin(SLURM)
    job = jobs_of(place)[0]
    answer("scontrol", "requeue", job)
    place.wait(lambda: job not in jobs_of(place), child)
    status, err = place.end(child)
    assert (status, err.count("failed")) == (0, 0), err
    place.wait(lambda: states(job) == ["REQUEUED", "COMPLETED"])
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_a_preempted_job_goes_on_by_itself(place):
    child = place.begin(SLURM, "hydra.launcher.partition=low")
    low = jobs_of(place)
    answer("sbatch", "--wait", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    status, err = place.end(child)
    assert (status, err.count("failed")) == (0, 0), err
    assert [states(job)[0] for job in low] == ["REQUEUED", "REQUEUED"]
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


TIME = (
    "hydra.launcher.timeout_min=5",
    "hydra.launcher.signal_delay_s=30",
)  # of five minutes any is nearly over, to submitit


@pytest.mark.parametrize("may", [True, False], ids=["goes_on_if_it_may", "stops_with_a_checkpoint"])
def test_a_job_whose_time_is_nearly_over(may, place):
    child = place.begin(SLURM, *TIME, f"hydra.launcher.max_num_timeout={int(may)}")
    jobs = jobs_of(place)
    answer("scancel", "--signal=USR2", *jobs)  # what Slurm sends then
    place.wait(lambda: not set(jobs) & set(jobs_of(place)))
    status, err = place.end(child)
    assert "Traceback" not in err
    if may:
        assert (status, err.count("failed")) == (0, 0), err
    else:
        assert status == 1
        assert "interrupted after round" in err
        assert place.make(SLURM)[0] == 0
    assert [states(job)[0] == "REQUEUED" for job in jobs] == [may, may]
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_ctrl_c_stops_the_jobs_with_checkpoints(place):
    child = place.begin(SLURM)
    child.send_signal(signal.SIGINT)
    status, err = place.end(child)
    assert status == 130
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in err
    assert place.make(SLURM)[0] == 0
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_a_command_that_was_killed_leaves_its_jobs_and_a_second_one_waits_for_them(place):
    child = place.begin(SLURM)
    child.kill()
    child.communicate()
    place.hold.unlink()
    status, said = place.make(SLURM)
    assert status == 0, said
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_slurm_is_asked_for_what_the_launcher_was_told(place):
    child = place.begin(
        SLURM, "hydra.launcher.array_parallelism=1", "hydra.launcher.account=research",
        "hydra.launcher.partition=debug", "hydra.launcher.mem_gb=1", "hydra.launcher.cpus_per_task=1",
        "hydra.launcher.timeout_min=30", runs=1,
    )  # fmt: skip
    rows = answer("squeue", "-h", "-r", "-o", "%T %r %a %P %m %C %l %Z")
    mine = sorted(row.rsplit(" ", 1)[0] for row in rows if row.endswith(str(place.folder)))
    asked = "research debug 1G 1 30:00"
    assert mine == [f"PENDING JobArrayTaskLimit {asked}", f"RUNNING None {asked}"]
    assert place.end(child)[0] == 0
    place.assert_whole()


def test_an_account_that_is_not_there_is_said(place):
    status, said = place.make(SLURM, "hydra.launcher.account=nobody")
    assert status == 1
    assert "Invalid account" in said
    assert "Traceback" not in said


def test_a_requeued_job_of_a_sweep_goes_on_by_itself(place):
    child = place.begin_command(*SWEEP, checkpoints="multirun/*/*/checkpoint.pt")
    job = jobs_of(place)[0]
    answer("scontrol", "requeue", job)
    place.wait(lambda: job not in jobs_of(place), child)
    status, err = place.end(child)
    assert status == 0, err
    assert states(job)[0] == "REQUEUED"
    runs = sorted(place.outputs.glob("multirun/*/*/summary.json"))
    assert [json.loads(path.read_text())["stop_reason"] for path in runs] == ["rounds"] * 2
    place.assert_whole_runs(path.parent for path in runs)
    assert place.rounds_run == place.whole_rounds


def test_a_sweep_with_a_folder_of_its_own_goes_on(place):
    command = (*SWEEP, "hydra.sweep.dir=outputs/noise")
    child = place.begin_command(*command, checkpoints="noise/*/checkpoint.pt")
    answer("scancel", *jobs_of(place))
    status, err = place.end(child)
    assert status != 0
    assert "interrupted after round" in err
    again = place.begin_command(*command, checkpoints="noise/*/checkpoint.pt")
    assert place.end(again)[0] == 0
    place.assert_whole_runs(place.outputs / "noise" / index for index in ("0", "1"))
    assert place.rounds_run == place.whole_rounds
