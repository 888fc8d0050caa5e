"""Files that are whole or not there: write beside, flush to disk, rename over."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fedpriv.common.errors import WriteError


def write_atomically(
    path: str | Path,
    write: Callable[[IO[Any]], object],
    mode: str = "w",
    before_renaming: Callable[[], None] | None = None,
) -> None:
    """Call ``write(file)`` on a temporary sibling, then rename it to ``path``.

    A process killed at any moment leaves either the old file or the new one. ``before_renaming``: called
    once the new file is whole. Raises WriteError where the disk is full or the folder closed.
    """
    with saying_where(path):
        _write_beside(Path(path), write, mode, before_renaming)


@contextmanager
def saying_where(path: str | Path) -> Iterator[None]:
    """An OSError in the block comes out as a WriteError about ``path``."""
    try:
        yield
    except OSError as error:
        raise WriteError(path, error) from None


def _write_beside(
    path: Path,
    write: Callable[[IO[Any]], object],
    mode: str,
    before_renaming: Callable[[], None] | None,
) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if before_renaming is not None:
            before_renaming()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(
    path: str | Path, state: object, before_renaming: Callable[[], None] | None = None
) -> None:
    """Write tensors and plain values atomically, as ``torch.save`` does."""
    import torch

    content = io.BytesIO()  # straight to a full disk, torch says that in words of its own
    torch.save(state, content)
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb", before_renaming)


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
