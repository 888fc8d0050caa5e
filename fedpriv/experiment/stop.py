"""The stop file: after Ctrl-C it tells all jobs of a launcher to stop, wherever they run.

Each run ends between rounds with a checkpoint, and waiting jobs do not begin. A second Ctrl-C ends
everything at once. If this process is killed, its workers on this machine would go on for hours. So another
process, which does nothing but wait for the end of this one, makes the file then.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from fedpriv.common.notices import complain
from fedpriv.experiment.interrupts import SIGNALS

_WATCH = 'read -r _ || : > "$1"'
"""A script that makes the file if its standard input ends without a line.

A line says that all is well. The system closes the input however this process ends.
"""


class StopFile:
    """Context in which the first signal makes the file ``path`` appear. The file is removed afterwards.

    A second signal raises KeyboardInterrupt. Files that processes on this machine left in ``folder`` when
    they ended are removed too. Outside the main thread signals are left alone.

    Args:
        folder: Folder of the file, which all jobs can see; it is made.
        watched: The file also appears if this process is killed. It stays until another process, which runs
            jobs in the same ``folder``, ends.

    Attributes:
        path: The stop file. Its name has the number of this process, so that several launchers can share a
            folder.
        requested: The first signal has come.
    """

    def __init__(self, folder: Path, watched: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._name = f".stop-{platform.node()}-"
        self.path = folder.resolve() / f"{self._name}{os.getpid()}"
        self.requested = False
        self._watched = watched and os.name == "posix"
        self._watcher: subprocess.Popen | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopFile:
        self.path.unlink(missing_ok=True)
        if self._watched:
            self._watcher = subprocess.Popen(
                ["sh", "-c", _WATCH, "sh", self.path.name],
                cwd=self.path.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C, or the end of the terminal, does not end it
            )
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.path.touch()
        complain("stopping the runs; again to end at once")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._watcher is not None:
            # The line lets the watcher end without making the file. Only then is the file removed.
            self._watcher.communicate(b"\n")
        self.path.unlink(missing_ok=True)
        for leftover in self.path.parent.glob(f"{self._name}*"):
            if not _alive(leftover.name.removeprefix(self._name)):
                leftover.unlink(missing_ok=True)


def _alive(pid: str) -> bool:
    """Return whether a process with this number exists."""
    with suppress(ValueError, PermissionError):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
    return True
