"""Files that are whole or not there: write beside, flush to disk, rename over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write_atomically(path: str | Path, write: Callable[[IO[Any]], None], mode: str = "w") -> None:
    """Call ``write(file)`` on a temporary sibling, then rename it to ``path``.

    A process killed at any moment leaves either the old file or the new one.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda file: file.write(text))


@contextmanager
def locked(folder: str | Path) -> Iterator[bool]:
    """Hold an exclusive lock on an existing folder: False if another process has it.

    The system frees the lock when the process ends, however it ends. Where there are no such locks
    (Windows, some network file systems) the answer is True.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except OSError:
        free = True
    try:
        yield free
    finally:
        os.close(descriptor)
