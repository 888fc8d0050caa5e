"""Jobs of Slurm that run again by themselves: jobs that are preempted or put back into the queue.

Such a run ends with a checkpoint, as any run that gets SIGTERM. Its launcher must not take that for the
result.
"""

from __future__ import annotations

import os
import re
import subprocess

_SECONDS = 20  # for an answer of Slurm, which kills after 30 by default


def leave_if_requeued() -> None:
    """End this process without a result if it is a job of Slurm that will run again; else return.

    Slurm does not start a preempted job again if the job ends by itself. Such a job is put back into the
    queue. Where Slurm gives no answer, the job is taken to have ended.

    Raises:
        SystemExit: The job runs again.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return
    # The last job of an array has the number of the whole array as its own, so the array is named instead.
    job = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = (
        os.environ["SLURM_JOB_ID"] if job is None else f"{job}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    )
    try:
        facts = dict(re.findall(r"(\w+)=(\S+)", _scontrol("show", "job", "--oneliner", job)))
        if int(facts["Restarts"]) == int(os.environ.get("SLURM_RESTART_COUNT", "0")):
            if facts["JobState"] != "RUNNING" or facts.get("PreemptTime", "None") == "None":
                return
            _scontrol("requeue", job)
    except (OSError, subprocess.SubprocessError, KeyError, ValueError):
        return  # Slurm does not say, so the job is taken to have ended
    raise SystemExit(f"job {job} goes on from its checkpoint when Slurm starts it again")


def _scontrol(*words: str) -> str:
    answer = subprocess.run(
        ["scontrol", *words], capture_output=True, text=True, check=True, timeout=_SECONDS
    )
    return answer.stdout
