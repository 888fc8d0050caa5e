"""Jobs of Slurm that run again by themselves: those that are preempted or put back into the queue.

Such a run ends with a checkpoint, as any that gets SIGTERM. Its launcher must not take that for its result.
"""

from __future__ import annotations

import os
import re
import subprocess

_SECONDS = 20  # for an answer of Slurm, which kills after 30 by default


def leave_if_requeued() -> None:
    """End this process without a result if it is a job of Slurm that will run again; else return.

    Where Slurm ends it to make room for another job, and would not start it again because it ended by itself,
    it is put back into the queue.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return
    job = _own_job()
    try:
        said = dict(re.findall(r"(\w+)=(\S+)", _scontrol("show", "job", "--oneliner", job)))
        if int(said["Restarts"]) == int(os.environ.get("SLURM_RESTART_COUNT", "0")):
            if said["JobState"] != "RUNNING" or said.get("PreemptTime", "None") == "None":
                return
            _scontrol("requeue", job)
    except (OSError, subprocess.SubprocessError, KeyError, ValueError):
        return  # it does not say: then this is the end
    raise SystemExit(f"job {job} goes on from its checkpoint when Slurm starts it again")


def _own_job() -> str:
    """What Slurm calls this job. The last of an array has the number of the whole array as its own."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array is None:
        return os.environ["SLURM_JOB_ID"]
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"


def _scontrol(*words: str) -> str:
    answer = subprocess.run(
        ["scontrol", *words], capture_output=True, text=True, check=True, timeout=_SECONDS
    )
    return answer.stdout
