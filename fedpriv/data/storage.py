"""Where data files lie, whether they are there, and reading them with their checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.common.errors import DataError

PATH_KEY = "dataset.path"
ENVIRONMENT_KEY = "FEDPRIV_DATA"
CACHE = "the cache"


@dataclass(frozen=True)
class StoredFile:
    """A file of a data set: its path below the data folder and the MD5 of its bytes, None where
    nobody published one.

    MD5 because torchvision publishes MD5 sums; it finds damage, it is no defence against forgery.
    """

    path: str
    md5: str | None


@dataclass(frozen=True)
class DataFolder:
    """The one folder a data set is looked for in, and who said so."""

    path: Path
    origin: str  # PATH_KEY, ENVIRONMENT_KEY or CACHE

    def __str__(self) -> str:
        joint = " " if self.origin == CACHE else "="
        return f"{self.origin}{joint}{self.path}"


def data_folder(path: str | None) -> DataFolder:
    """``path`` if given, else the environment variable FEDPRIV_DATA, else the user's cache.

    Only one of them is looked into: a folder somebody named is never silently replaced.
    """
    if path is not None:
        return DataFolder(Path(path).expanduser(), PATH_KEY)
    if named := os.environ.get(ENVIRONMENT_KEY):
        return DataFolder(Path(named).expanduser(), ENVIRONMENT_KEY)
    return DataFolder(cache_folder(), CACHE)


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/fedpriv``, by default ``~/.cache/fedpriv``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedpriv"


def missing_folder(folder: DataFolder) -> str | None:
    """Why there is no such folder (a clause without a full stop); None if there is one.

    Raises DataError where the file system does not let us look.
    """
    try:
        if folder.path.is_dir():
            return None
        return f"{folder} " + ("is not a folder" if folder.path.exists() else "does not exist")
    except OSError as error:
        raise unreadable(folder.path, error) from error


def absence(folder: DataFolder, files: Sequence[StoredFile]) -> str | None:
    """Why the data are not all in ``folder`` (a clause without a full stop); None if they are.

    Raises DataError where the file system does not let us look.
    """
    if reason := missing_folder(folder):
        return reason
    try:
        for file in files:
            if not (folder.path / file.path).exists():
                return f"{folder} has no {file.path}"
    except OSError as error:
        raise unreadable(folder.path, error) from error
    return None


def read_verified(folder: Path, file: StoredFile, dataset: str) -> bytes:
    """The bytes of a file, after comparing their MD5; DataError if unreadable or damaged."""
    path = folder / file.path
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise DataError(f"cannot read {path}: it is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if file.md5 is not None and (found := md5(content)) != file.md5:
        raise DataError(
            f"{path} is damaged or cut short ({len(content):,} bytes, MD5 {found} instead of "
            f"{file.md5}); replace it, or run `fedpriv data download {dataset}`"
        )
    return content


def md5(content: bytes) -> str:
    """The MD5 sum as torchvision writes it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def unreadable(path: Path, error: Exception) -> DataError:
    """A DataError that says why ``path`` cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return DataError(f"cannot read {path}: {reason}")
