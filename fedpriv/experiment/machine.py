"""The device, threads and chunks of a run. Public numbers decide, never a timing."""

from __future__ import annotations

import multiprocessing
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Multiply-adds of a step for each thread: with fewer, threads wait more than they compute.
_OF_A_THREAD = 5e8
_CHUNK = 1.875e7  # parameters × records of a chunk at least: 5 ms or more of a processor core
_LARGE_CHUNK = 2e8  # where there are more than four: a chunk by itself costs 1 to 2 ms
_FEW_PROCESSES = 16  # as many may run on any machine
_FEWEST_CHUNKS, _MOST_CHUNKS = 4, 64


def choose_threads(wanted: int | None, work: float, processes: int = 1) -> int:
    """Set the number of torch's threads and return it. A number that the user has set stays.

    Args:
        wanted: Number of threads; None for as many as the work keeps busy, and at most torch's own choice.
        work: Multiply-adds of one step. They decide instead of a timing or the load of the machine, because
            the number of threads decides how sums are rounded.
        processes: Number of processes of the run on this machine, which share its processor cores.
    """
    import torch

    if wanted is not None:
        torch.set_num_threads(wanted)
    elif not _set_by_user():
        most = min(
            torch.get_num_threads(), cores() // processes, int(work / processes / _OF_A_THREAD)
        )
        torch.set_num_threads(max(1, most))
    return torch.get_num_threads()


def _set_by_user() -> bool:
    """Return whether the environment sets torch's threads, or they are another number than torch takes."""
    import psutil
    import torch

    # joblib sets the variable itself, to the share of each of its processes.
    in_joblib = multiprocessing.current_process().name.startswith("Loky")
    if {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys():
        return not in_joblib
    # torch takes every core, or with MKL one of two that share their arithmetic.
    logical, physical = os.cpu_count() or 1, psutil.cpu_count(logical=False) or 1
    own = {cores(), min(physical, cores()), max(1, cores() * physical // logical)}
    return torch.get_num_threads() not in own


@contextmanager
def threads_restored(within: int | None = None) -> Iterator[None]:
    """Context after which torch has as many threads as before; in it ``within``, if that is given."""
    import torch

    before = torch.get_num_threads()
    try:
        if within is not None:
            torch.set_num_threads(within)
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def threads_before(state: Mapping[str, Any] | None) -> int | None:
    """Return the number of threads of a run that goes on, so that its sums are rounded as before.

    Returns:
        None for a new run, and where this machine has fewer processor cores than that.
    """
    threads = (state or {}).get("numerics", {}).get("threads")
    return threads if isinstance(threads, int) and 1 <= threads <= cores() else None


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refuse_many_processes(key: str, wanted: int) -> None:
    """Raise ConfigError for more processes than this machine has use for: each takes 400 MB and more.

    Args:
        key: The key or flag that sets their number.
        wanted: Their number.
    """
    most = max(_FEW_PROCESSES, 2 * cores())
    if wanted > most:
        raise ConfigError(key, wanted, f"<= {most} on this machine of {cores()} cores")


def chunk_size(cohort: float, work: float) -> int | None:
    """Return how many clients compute together, so that several processes may share a round.

    A round of much work has at least four chunks. Only public numbers of the configuration decide, never the
    processors, processes or clients that there are in a round: sums are rounded alike everywhere.

    Args:
        cohort: Number of clients that take part in a round on average.
        work: Parameters × records of one local step of the whole cohort.

    Returns:
        The number of clients in a chunk; None if the whole cohort is one chunk.
    """
    if cohort < _FEWEST_CHUNKS or work < _FEWEST_CHUNKS * _CHUNK:
        return None
    # Enough chunks for several processes, but none so small that its own cost of 1 to 2 ms matters.
    chunks = min(max(work / _LARGE_CHUNK, _FEWEST_CHUNKS), _MOST_CHUNKS)
    return max(1, int(cohort / chunks))


def numeric_environment(
    device: torch.device, threads: int, engine: str, chunk: int | None
) -> dict[str, str | int | None]:
    """Return all that decides how sums are rounded.

    The same streams on the same data give the same bits only where all of it is the same.
    """
    import torch

    from fedpriv.store.folder import installed_version, own_commit_words

    cuda = device.type == "cuda"
    return {
        "fedpriv": own_commit_words(),
        "engine": engine,
        "torch": str(torch.__version__),
        "numpy": installed_version("numpy"),
        "opacus": installed_version("opacus"),
        "products": torch.get_float32_matmul_precision(),
        "kind": device.type,
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "chunk": chunk,
    }


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def resolve_device(name: str, key: str = "runtime.device") -> torch.device:
    """Return the device with this name; ``auto`` is cuda if there is one, else cpu.

    A GPU is set up to give the same bits every time.

    Args:
        name: auto, cpu, cuda or cuda:N.
        key: The key or flag that an error names.

    Raises:
        ConfigError: The device is absent, or no device of torch that fedpriv supports.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(key, name, "auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(key, name, "auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(key, name, f"one that is present: {count} CUDA device(s) found")
        _make_repeatable()
    return device


def _make_repeatable() -> None:
    """Have a GPU add up in the same order every time, and multiply in full single precision.

    Else sums by several of its threads at once differ from run to run in their last digits, and convolutions
    round inputs to ten bits (TF32). torch warns of an operation that has no such order.
    """
    import torch

    # Read with the first matrix product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory with nan costs time and hides nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.allow_tf32 = False
    # Its values have no order to depend on, its indices do where values are equal.
    warnings.filterwarnings("ignore", "median CUDA with indices output", UserWarning)
