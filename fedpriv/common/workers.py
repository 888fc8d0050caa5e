"""The lifetime of the worker processes that joblib keeps between jobs.

A worker must end with the process that launched it. Otherwise, after a kill of that process, the worker would
wait for a job for ever and keep its memory. A command must also begin with new workers: a worker of an
earlier command would still have that command's working directory and modules.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_LOOKS = 1.0
_busy = threading.Lock()
_watched = threading.Event()


@contextmanager
def job_of_a_worker() -> Iterator[None]:
    """Run one job of a worker; the process never ends in the middle of the job.

    The first job of a process starts the thread that watches the parent process.
    """
    with _busy:
        if not _watched.is_set() and multiprocessing.current_process().name.startswith("Loky"):
            _watched.set()
            threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        yield


def end_earlier_workers() -> None:
    """End the idle workers of earlier commands of this process."""
    loky = sys.modules.get("joblib.externals.loky")
    if loky is not None:
        loky.get_reusable_executor(reuse=True).shutdown()


def _end_with(parent: int) -> None:
    """End this process between two jobs, once the parent is gone and the system has given it another."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with _busy:
        os._exit(130)
