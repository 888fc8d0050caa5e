"""Interrupts: Ctrl-C, SIGTERM or a stop file end a run between rounds, with a checkpoint.

A second Ctrl-C ends the run at once. A launcher on a cluster may handle a signal of its own, which tells it
that the time of its job is over (submitit: SIGUSR2). The launcher gets this signal after the round, when
the checkpoint is written.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAUNCHER_SIGNALS = tuple(getattr(signal, name) for name in ("SIGUSR2",) if hasattr(signal, name))


class StopRequest(Protocol):
    """The question of a loop after each round: is it to end?"""

    @property
    def requested(self) -> bool:
        """True once somebody wants the run to end."""
        ...


class Interrupts:
    """Context in which the first signal, or the appearance of ``stop_file``, is only a request to end.

    A second SIGINT or SIGTERM raises KeyboardInterrupt. Outside the main thread signals are left alone. On
    exit the former handlers are back, and a signal of the launcher that came meanwhile is raised for it,
    unless the run failed.

    Args:
        stop_file: Path of the stop file; None if there is none.
    """

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
        # Python lets only the main thread handle signals. A run in another thread heeds the stop file alone.
        if threading.current_thread() is threading.main_thread():
            # Only where a launcher has set a handler: by default SIGUSR2 ends a process, and who sends it
            # by hand expects that.
            handled = [s for s in _LAUNCHER_SIGNALS if callable(signal.getsignal(s))]
            self._previous = {s: signal.signal(s, self._note) for s in (*SIGNALS, *handled)}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in _LAUNCHER_SIGNALS:
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
        # The handlers first: the signal below must reach the handler of the launcher.
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._to_pass_on is not None and error is None:
            with suppress(Exception):  # the launcher failed to put the job back into its queue
                signal.raise_signal(self._to_pass_on)
