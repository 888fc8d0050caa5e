"""The processes that joblib keeps for several jobs: when they end.

A worker ends with the process that launched it. Else it would wait for a next job for ever, with all of its
memory, when that process was killed. And a command begins with new workers: one of an earlier command would
write into the folder where that command was given, and would run its modules.
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
    """Context of one job, which is never cut short: the process ends after it, or while it waits for one."""
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
    """End this process, between two jobs, once its parent is another one: that of orphans."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with _busy:
        os._exit(130)
