"""Sweeps of runs over several processes, on a machine with too few processor cores."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.experiment.sweeps import SweepJob, refuse_crowd


@pytest.mark.parametrize(
    ("workers", "threads", "at_once", "words"),
    [
        (4, 1, 1, "1 job at a time × 4 workers × 1 thread is 4, and there are 2 cores"),
        (2, 1, 2, "2 jobs at a time × 2 workers × 1 thread is 4"),
        (2, 1, -1, "2 jobs at a time × 2 workers × 1 thread is 4"),
        (2, 2, 1, "1 job at a time × 2 workers × 2 threads is 4"),
    ],
)
def test_runs_over_more_processes_than_there_are_cores_are_refused(
    workers, threads, at_once, words
):
    values = {"runtime.workers": workers, "runtime.threads": threads}
    jobs = [SweepJob((), values=values) for _ in range(3)]
    with pytest.raises(ConfigError, match=rf"runtime\.workers must be at most \d .*{words}"):
        refuse_crowd(jobs, at_once, cores=2)
    refuse_crowd(jobs, at_once, cores=12)


def test_runs_in_one_process_are_no_crowd():
    jobs = [SweepJob((), values={"runtime.workers": 1, "runtime.threads": 8})]
    refuse_crowd(jobs, at_once=8, cores=2)
