"""Endings of a command's process: Ctrl-C at any moment, no memory, a full disk, a lost standard output.

Each of them becomes one sentence and an exit status, whatever exception a library makes of it. An interrupted
import may end in an ImportError, for example, and an interrupted picture in an exception of matplotlib.
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
from typing import IO, Any, NoReturn

from fedpriv.common.errors import FedprivError, Interrupted, WriteError

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_NO_MEMORY = ("allocate memory", "not enough memory", "out of memory", "failed to map segment", "bad_alloc",
              "start new thread")  # fmt: skip
_SECONDS_TO_SIGNAL_AGAIN = 0.01
_heard = False  # Ctrl-C was pressed
_unraised = False  # the KeyboardInterrupt could not be raised, and it will be signalled again


def heed_interrupts() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt, and a second one end the process at once.

    The first is remembered, because a library may turn the KeyboardInterrupt into another exception.
    """
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _signal_again


def ignore_interrupts() -> None:
    """Let Ctrl-C do nothing, because the command is over and its exit status is fixed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def interrupted() -> bool:
    """Return whether Ctrl-C was pressed since :func:`heed_interrupts`."""
    return _heard


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _heard, _unraised
    if _heard and not _unraised:
        os._exit(Interrupted.exit_status)  # at once, even inside a library that swallows exceptions
    _heard, _unraised = True, _importing_torch(frame)
    if _unraised:
        _signal_soon()
        return
    raise KeyboardInterrupt


def _importing_torch(frame: FrameType | None) -> bool:
    """Return whether torch is being imported: an exception inside its C++ code would abort the process."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "<module>" and name.partition(".")[0] == "torch":
            return True
        frame = frame.f_back
    return False


def _signal_soon() -> None:
    again = threading.Timer(_SECONDS_TO_SIGNAL_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _signal_again(unraisable: Any) -> None:
    """Send SIGINT again if Python could not raise the KeyboardInterrupt, for example in a destructor."""
    global _unraised
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _unraised = True
    _signal_soon()


def as_sentence(error: BaseException) -> FedprivError | None:
    """Return the known failure behind an exception: an interruption, a full disk, too little memory.

    None means that the exception is a defect of fedpriv, or of a user's own code.
    """
    if isinstance(error, Interrupted):
        return error
    if isinstance(error, KeyboardInterrupt) or _heard:
        return Interrupted("interrupted")
    if isinstance(error, FedprivError):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return WriteError(error.filename or "a file", error)
    message = str(error)
    no_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    says_no_memory = isinstance(error, RuntimeError | ImportError) and any(
        phrase in message for phrase in _NO_MEMORY
    )
    if not (no_memory or says_no_memory):
        return None
    on_gpu = f" on the GPU ({message.splitlines()[0]})" if "CUDA" in message else ""
    return FedprivError(f"there is not enough memory{on_gpu}")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a terminated command remove what it has begun and end what it has started, as after Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def nothing_lost(when: str, resume: str) -> Iterator[None]:
    """Let each known failure in the block say that no round is lost, and how to go on.

    Args:
        when: Description of the block, for an interruption.
        resume: The command that resumes the run.

    Raises:
        Interrupted: The block was interrupted.
        FedprivError: The block failed by a known failure. A defect comes out unchanged.
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
    """Standard output that may fail. Later output is then discarded, so that the run goes on to its end.

    A closed pipe is no failure: its BrokenPipeError comes out, and the command ends quietly.

    Args:
        stream: The stream that is written to.

    Attributes:
        failure: The first error of writing; None without any.
    """

    def __init__(self, stream: IO[str]):
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; after a failure it is discarded."""
        with self._surviving():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream; after a failure nothing happens."""
        with self._surviving():
            self._stream.flush()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failure = self.failure or error
            # Text that is still in the buffer would fail again at exit, so it goes to the null device, too.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
