"""The place of this process among those of one run, as torchrun or Slurm states it in the environment."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fedpriv.common.errors import ConfigError, FedprivError

SLURM = "slurm"
"""Value of ``runtime.workers`` for a run over the tasks of a Slurm job step."""
LOCAL_HOST = "127.0.0.1"
_PORTS = range(20_000, 40_000)  # a job of Slurm takes one of them, by its number
_SECONDS = 20  # for an answer of scontrol


@dataclass(frozen=True)
class Place:
    """A process among those that an outside launcher has started for one run.

    Attributes:
        rank: Number of the process; rank 0 makes the run, the others are its workers.
        size: Number of processes.
        local_rank: Number of the process on its machine.
        local_size: Number of processes on its machine.
        host: Machine of rank 0, or of the launcher's store.
        port: Port of the store through which the processes find each other.
        launcher: ``torchrun`` or ``slurm``.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    launcher: str

    @property
    def one_machine(self) -> bool:
        """True if all processes are on one machine."""
        return self.local_size == self.size


def place_of(workers: int | str, environment: Mapping[str, str] | None = None) -> Place | None:
    """Return the place of this process; None where no launcher has started it as one of several.

    Variables of torchrun always count. Those of Slurm count only with ``runtime.workers=slurm``: a run inside
    an allocation that does not ask for them waits for nobody.

    Args:
        workers: The key ``runtime.workers``.
        environment: The environment; None: that of the process.

    Raises:
        ConfigError: The key and the environment contradict each other.
    """
    environment = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" in environment:
        place = _of_torchrun(environment)
        if workers not in (1, place.size):
            raise ConfigError(
                "runtime.workers",
                workers,
                f"{place.size}, the processes that torchrun started, or left out under torchrun",
            )
        return place if place.size > 1 else None
    if workers != SLURM:
        return None
    place = _of_slurm(environment)
    return place if place.size > 1 else None


def processes_here(workers: int | str) -> int:
    """Return the number of processes of a run on this machine.

    Args:
        workers: The key ``runtime.workers``.
    """
    place = place_of(workers)
    if place is not None:
        return place.local_size
    return workers if isinstance(workers, int) else 1


def _of_torchrun(environment: Mapping[str, str]) -> Place:
    return Place(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
        local_size=int(environment["LOCAL_WORLD_SIZE"]),
        host=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        launcher="torchrun",
    )


def _of_slurm(environment: Mapping[str, str]) -> Place:
    """Return the place of a task of a job step.

    Raises:
        ConfigError: The process was not started by srun.
    """
    names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
    missing = [name for name in names if name not in environment]
    if missing:
        hint = f"{missing[0]} is not set: start the tasks with srun, or take a number of workers"
        raise ConfigError(
            "runtime.workers", SLURM, "a number unless Slurm started the process", hint
        )
    step = environment.get("SLURM_STEP_ID", "0")
    job = int(environment.get("SLURM_JOB_ID", "0")) * 31 + (int(step) if step.isdigit() else 0)
    port = int(environment.get("MASTER_PORT", _PORTS[job % len(_PORTS)]))
    tasks_here = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    size = int(environment["SLURM_STEP_NUM_TASKS"])
    return Place(
        rank=int(environment["SLURM_PROCID"]),
        size=size,
        local_rank=int(environment["SLURM_LOCALID"]),
        local_size=_tasks_on_node(tasks_here, int(environment.get("SLURM_NODEID", "0"))) or size,
        host=environment.get("MASTER_ADDR") or _first_host(environment["SLURM_STEP_NODELIST"]),
        port=port,
        launcher=SLURM,
    )


def _tasks_on_node(text: str, node: int) -> int | None:
    """Return the number of tasks on a node of a step, from Slurm's ``2(x3),1``; None if it does not say."""
    counts: list[int] = []
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * int(times or 1)
    return counts[node] if node < len(counts) else None


def _first_host(nodes: str) -> str:
    """Return the first machine of a list of nodes of Slurm, such as ``gpu[01-04]``."""
    if not set("[],") & set(nodes):
        return nodes
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FedprivError(
            f"runtime.workers=slurm: scontrol does not tell the first of the nodes {nodes} ({error}); "
            "set MASTER_ADDR to the machine of task 0"
        ) from None
    return answer.stdout.split()[0]
