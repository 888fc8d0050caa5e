"""Workers of joblib end with the process that launched them, between two jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
from joblib import Parallel, delayed

from fedpriv.common.workers import end_earlier_workers

LAUNCHING = """
import os, sys, time
from joblib import Parallel, delayed
from fedpriv.common.workers import job_of_a_worker

def job(seconds, mark):
    with job_of_a_worker():
        print(os.getpid(), flush=True)
        time.sleep(seconds)
        open(mark, "w").close()

Parallel(n_jobs=2)(delayed(job)(float(s), f"{i}.done") for i, s in enumerate(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_a_worker_ends_after_its_job_when_its_parent_is_killed(tmp_path):
    (tmp_path / "launching.py").write_text(LAUNCHING)
    said = tmp_path / "said"  # not a pipe: a worker that got no job holds it open for minutes
    with open(said, "w") as file:
        child = subprocess.Popen(
            [sys.executable, "launching.py", "1", "1"], cwd=tmp_path, stdout=file
        )
    while len(found := said.read_text().split("\n")[:-1]) < 2:
        time.sleep(0.05)
    workers = [psutil.Process(int(pid)) for pid in set(found) if psutil.pid_exists(int(pid))]
    child.kill()
    child.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    assert sorted(path.name for path in tmp_path.glob("*.done")) == ["0.done", "1.done"]


def folders_of_two_workers() -> set[str]:
    return set(Parallel(n_jobs=2)(delayed(os.getcwd)() for _ in range(4)))


@pytest.mark.thorough
def test_workers_of_an_earlier_command_would_stay_in_its_folder(tmp_path, monkeypatch):
    """A second sweep of one process, as in a notebook, must not write into the folder of the first."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        end_earlier_workers()
        assert folders_of_two_workers() == {str(tmp_path / name)}
    monkeypatch.chdir(tmp_path)
    assert folders_of_two_workers() == {str(tmp_path / "second")}
    end_earlier_workers()
