"""Ctrl-C while a launcher runs jobs: a file tells all of them, wherever they run, to stop.

Each run ends between rounds with a checkpoint, and jobs that wait do not begin. A second Ctrl-C ends
everything at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType

from fedpriv.experiment.interrupts import SIGNALS


class StopFile:
    """Context in which the first signal makes the file ``path`` appear; it is gone afterwards."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder.resolve() / f".stop-{os.getpid()}"
        self.requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopFile:
        self.path.unlink(missing_ok=True)
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.path.touch()
        print("fedpriv: stopping the runs; again to end at once", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self.path.unlink(missing_ok=True)
