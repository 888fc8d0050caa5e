"""Workers on this machine: processes that rank 0 starts, and that end with it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import fedpriv

VARIABLE = "FEDPRIV_WORKER"
"""Environment variable of a worker: what :func:`start_worker` tells it, as JSON."""
_LAST_LINES = 5
_SECONDS_TO_END = 5.0
_PR_SET_PDEATHSIG = 1


class LocalWorker:
    """A worker process on this machine.

    The process is a command of its own, never a fork: it has none of rank 0's threads and devices. It has no
    terminal and no signals of the terminal. What it prints goes to a file without a name.

    Args:
        module: Module with the function ``main`` that the worker calls.
        rank: Number of the worker.

    Attributes:
        connection: This end of a pair of sockets. The worker inherits the other end: there is no address at
            which anybody else could reach one of them.
    """

    def __init__(self, module: str, rank: int):
        self.connection, theirs = socket.socketpair()
        facts = {"rank": rank, "module": module, "parent": os.getpid(), "socket": theirs.fileno()}
        package = str(Path(fedpriv.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fedpriv.workers"],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, VARIABLE: json.dumps(facts)},
            )

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def end(self, seconds: float) -> str | None:
        """Return how the process ended, in words; None while it runs.

        Args:
            seconds: Time to wait for the end: a connection is lost a moment before the process is gone.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        status = self._process.returncode
        if status is None:
            return None
        if status >= 0:
            return f"ended with exit status {status}"
        killed = f"was killed by {signal.Signals(-status).name}"
        memory = " (the system does so when memory runs out)" if status == -signal.SIGKILL else ""
        return killed + memory

    def last_lines(self) -> list[str]:
        """Return the last lines that the process printed; none once it was killed."""
        if self._output.closed:
            return []
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-_LAST_LINES:]

    def close(self) -> None:
        """Wait for the end of the process, which was told to end, and kill it where it does not come."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_END)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._output.close()
        self.connection.close()


def told() -> dict[str, Any]:
    """Return what rank 0 tells the worker that this process is."""
    return json.loads(os.environ[VARIABLE])


def inherited(descriptor: int) -> socket.socket:
    """Return the worker's end of its pair of sockets, which processes that it starts do not inherit."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def end_with_parent(parent: int) -> None:
    """Let the system end this process when the process that started it ends, however that happens.

    Only Linux can. Elsewhere a worker ends when its link breaks.

    Args:
        parent: Number of the parent process. A process whose parent is gone already ends here.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
