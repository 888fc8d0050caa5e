"""How the process of a command ends: by Ctrl-C at any moment, without memory, disk or standard output.

Each of these is one sentence and an exit status, whatever exception a library makes of it: an import that is
interrupted may end in an ImportError, a picture in an exception of matplotlib's.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

from fedpriv.common.errors import FedprivError, Interrupted, WriteError

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_NO_MEMORY = ("allocate memory", "not enough memory", "out of memory", "failed to map segment", "bad_alloc",
              "start new thread")  # fmt: skip
_SECONDS_TO_SIGNAL_AGAIN = 0.01
_heard = _unraised = False


def heed_interrupts() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt and be remembered; the second ends the process at once."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _hear_again


def ignore_interrupts() -> None:
    """Let Ctrl-C do nothing: the command is over and its exit status is known."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def interrupted() -> bool:
    """Return whether Ctrl-C was pressed while nothing else handled it."""
    return _heard


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _heard, _unraised
    if _heard and not _unraised:
        os._exit(Interrupted.exit_status)
    _heard, _unraised = True, False
    raise KeyboardInterrupt


def _hear_again(unraisable: Any) -> None:
    """Signal once more where Python could only print the KeyboardInterrupt, as in a destructor."""
    global _unraised
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _unraised = True
    again = threading.Timer(_SECONDS_TO_SIGNAL_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def as_sentence(error: BaseException) -> FedprivError | None:
    """Return the known failure that an exception stands for: an interruption, a full disk, too little memory.
    None: it is a defect."""
    if isinstance(error, Interrupted):
        return error
    if isinstance(error, KeyboardInterrupt) or _heard:
        return Interrupted("interrupted")
    if isinstance(error, FedprivError):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return WriteError(error.filename or "a file", error)
    words = str(error)
    no_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    told = isinstance(error, RuntimeError | ImportError) and any(w in words for w in _NO_MEMORY)
    return FedprivError("there is not enough memory") if no_memory or told else None


@contextmanager
def nothing_lost(when: str, resume: str) -> Iterator[None]:
    """Context in which no round is lost: each known failure comes out with how to go on.

    Args:
        when: What was going on, for an interruption.
        resume: The command that goes on.
    """
    try:
        yield
    except BaseException as error:
        known = as_sentence(error)
        if isinstance(known, Interrupted):
            raise Interrupted(f"interrupted while {when} (no round is lost); {resume}") from None
        if known is None or (isinstance(error, FedprivError) and not isinstance(error, WriteError)):
            raise
        raise FedprivError(f"{known} (no round is lost); {resume}") from None


class Output:
    """Standard output that may fail: what is said after that goes nowhere, so that a run goes on to its end.

    Attributes:
        failure: The error that wrote nothing; None so far. A reader that went away is no such error.
    """

    def __init__(self, stream: IO[str]):
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.failure = self.failure or error
        with suppress(OSError, ValueError):  # what is still in the buffer goes nowhere, too
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
