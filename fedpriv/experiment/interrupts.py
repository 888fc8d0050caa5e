"""Ctrl-C, SIGTERM or a stop file end a run between rounds, with a checkpoint; a second Ctrl-C ends it
at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Context in which the first signal, or the appearance of ``stop_file``, is only a request."""

    def __init__(self, stop_file: str | None = None) -> None:
        self._stop_file = stop_file
        self._signal: int | None = None
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        return self._signal is not None or (
            self._stop_file is not None and os.path.exists(self._stop_file)
        )

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
