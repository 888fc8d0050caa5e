"""Ctrl-C, SIGTERM or a stop file end a run between rounds, with a checkpoint; a second Ctrl-C ends it
at once.

A launcher on a cluster may handle a signal of its own, by which it is told that the time of its job is over
(submitit: SIGUSR2). It gets the signal after the round, when the checkpoint is there.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OF_LAUNCHERS = tuple(getattr(signal, name) for name in ("SIGUSR2",) if hasattr(signal, name))


class StopRequest(Protocol):
    """What a loop asks after each round: ``requested`` where it is to end."""

    @property
    def requested(self) -> bool: ...


class Interrupts:
    """Context in which the first signal, or the appearance of ``stop_file``, is only a request."""

    def __init__(self, stop_file: str | None = None) -> None:
        self._stop_file = stop_file
        self._signal: int | None = None
        self._to_pass_on: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        if self._signal is not None or self._to_pass_on is not None:
            return True
        return self._stop_file is not None and os.path.exists(self._stop_file)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            handled = [s for s in _OF_LAUNCHERS if callable(signal.getsignal(s))]
            self._previous = {s: signal.signal(s, self._note) for s in (*SIGNALS, *handled)}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in _OF_LAUNCHERS:
            self._to_pass_on = number
        elif self._signal is not None:
            raise KeyboardInterrupt
        else:
            self._signal = number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._to_pass_on is not None and error is None:
            with suppress(Exception):  # it does not put the job back into its queue
                signal.raise_signal(self._to_pass_on)
