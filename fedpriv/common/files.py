"""Atomic writing of files: write a temporary sibling, flush it to disk, rename it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, overload

from fedpriv.common.errors import ConfigError, WriteError
from fedpriv.common.words import printable

if TYPE_CHECKING:
    import pandas as pd

RUN_FILES = frozenset(
    {"config.yaml", "environment.json", "metrics.csv", "summary.json", "checkpoint.pt"}
)
"""Files of a run folder. A folder with at least two of them is taken for a run folder."""


@overload
def write_atomically(
    path: str | Path,
    write: Callable[[IO[str]], object],
    mode: Literal["w"] = "w",
) -> None: ...


@overload
def write_atomically(
    path: str | Path,
    write: Callable[[IO[bytes]], object],
    mode: Literal["wb"],
) -> None: ...


def write_atomically(
    path: str | Path,
    write: Callable[[IO[Any]], object],
    mode: str = "w",
) -> None:
    """Write a file so that a process killed at any moment leaves either the old file or the new one.

    Args:
        path: The file.
        write: Function that writes the content to a temporary file.
        mode: ``w`` for text in UTF-8, ``wb`` for bytes.

    Raises:
        WriteError: The disk is full, or the folder cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with saying_where(path):
        try:
            with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def saying_where(path: str | Path) -> Iterator[None]:
    """Turn an OSError in the block into a WriteError about ``path``."""
    try:
        yield
    except OSError as error:
        raise WriteError(path, error) from None


def write_tensors(path: str | Path, state: object) -> None:
    """Write tensors and plain values atomically, as ``torch.save`` does. Raise WriteError on failure."""
    import torch

    content = io.BytesIO()  # written directly to a full disk, torch would raise an error of its own
    torch.save(state, content)
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically. Raise WriteError on failure."""
    write_atomically(path, lambda file: file.write(text))


def json_text(value: object, allow_nan: bool = True) -> str:
    """Return plain values as indented JSON in ASCII, so that control characters are escaped."""
    return json.dumps(value, indent=2, allow_nan=allow_nan) + "\n"


def write_json(path: str | Path, value: object) -> None:
    """Write plain values as JSON, atomically. Raise WriteError on failure."""
    write_text(path, json_text(value))


def write_csv(path: str | Path, frame: pd.DataFrame, float_format: str | None = None) -> None:
    """Write a pandas data frame as CSV, without its index, atomically. Raise WriteError on failure."""
    write_text(path, str(frame.to_csv(index=False, float_format=float_format)))


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV. None gives an empty cell, and control characters in a text are replaced."""
    text = io.StringIO()
    cleaned = (
        [printable(value) if isinstance(value, str) else value for value in row] for row in rows
    )
    csv.writer(text, lineterminator="\n").writerows(cleaned)
    return text.getvalue()


def refuse_foreign(
    key: str, path: Path, mark: bytes | None, of_a_run: Collection[str] = ()
) -> None:
    """Refuse to write over a file of another origin, or into a run folder.

    Args:
        key: The flag that names the file, for the message.
        path: The file to be written.
        mark: Regular expression that matches every file written by the command; None: any file may exist,
            because the command keeps its content.
        of_a_run: Names of the command's own files in run folders.

    Raises:
        ConfigError: The file must not be written.
    """
    run_folder = next((folder for folder in path.resolve().parents if _is_run_folder(folder)), None)
    if run_folder is not None and path.name not in of_a_run:
        raise ConfigError(key, path, f"a file outside of the run folder {run_folder}")
    if mark is None or not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise ConfigError(
            key, path, "a new file or a file of this command; it is a link or a device"
        )
    with saying_where(path):
        content = path.read_bytes()
    if content and re.search(mark, content) is None:
        raise ConfigError(
            key, path, "a new file, or one that the same command wrote",
            "name another, or move that one away",
        )  # fmt: skip


def refuse_present(files: Iterable[Path], force: bool) -> None:
    """Raise ConfigError for files that are there already, unless they may be written over."""
    for file in files:
        if file.exists() and not force:
            raise ConfigError("--out", file, "a new file", "--force writes over it")


def _is_run_folder(folder: Path) -> bool:

    return sum((folder / name).exists() for name in RUN_FILES) > 1


@contextmanager
def locked(folder: str | Path) -> Iterator[bool]:
    """Hold an exclusive lock on an existing folder; the context is False if another process holds it.

    The system frees the lock whenever the process ends. Windows and some network file systems have no such
    locks; there the context is always True.
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
