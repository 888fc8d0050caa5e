"""Folders of data files, and reading files with their checksum."""

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
    """A file of a data set.

    The checksum is MD5 because torchvision publishes MD5 sums. It detects damage but not forgery.

    Attributes:
        path: Path relative to the data folder.
        md5: MD5 sum in hexadecimal digits; None if nobody published one.
    """

    path: str
    md5: str | None


@dataclass(frozen=True)
class DataFolder:
    """The folder in which a data set is searched, and the setting that chose it.

    Attributes:
        path: The folder.
        origin: ``PATH_KEY``, ``ENVIRONMENT_KEY`` or ``CACHE``.
    """

    path: Path
    origin: str  # PATH_KEY, ENVIRONMENT_KEY or CACHE

    def __str__(self) -> str:
        joint = " " if self.origin == CACHE else "="
        return f"{self.origin}{joint}{self.path}"


def data_folder(path: str | None) -> DataFolder:
    """Return ``path`` if given, else the folder named by FEDPRIV_DATA, else the user's cache.

    Only this one folder is searched: a folder that the user named is never silently replaced.
    """
    if path is not None:
        return DataFolder(Path(path).expanduser(), PATH_KEY)
    if environment_path := os.environ.get(ENVIRONMENT_KEY):
        return DataFolder(Path(environment_path).expanduser(), ENVIRONMENT_KEY)
    return DataFolder(cache_folder(), CACHE)


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/fedpriv``, by default ``~/.cache/fedpriv``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedpriv"


def missing_folder(folder: DataFolder) -> str | None:
    """Return the reason why the folder is missing.

    Returns:
        A clause without a full stop; None if the folder exists.

    Raises:
        DataError: The file system denies access.
    """
    try:
        if folder.path.is_dir():
            return None
        return f"{folder} " + ("is not a folder" if folder.path.exists() else "does not exist")
    except OSError as error:
        raise unreadable(folder.path, error) from error


def absence(folder: DataFolder, files: Sequence[StoredFile]) -> str | None:
    """Return the reason why files are missing from ``folder``.

    Returns:
        A clause without a full stop; None if all files exist.

    Raises:
        DataError: The file system denies access.
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
    """Read a file and compare its MD5 sum.

    Args:
        folder: Data folder.
        file: File below that folder, with its checksum.
        dataset: Name of the data set, for the hint in the error.

    Returns:
        The bytes of the file.

    Raises:
        DataError: The file is unreadable or its checksum differs.
    """
    path = folder / file.path
    # Reading a named pipe would wait forever.
    if path.exists() and not path.is_file():
        raise DataError(f"cannot read {path}: it is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if file.md5 is not None and (checksum := md5(content)) != file.md5:
        raise DataError(
            f"{path} is damaged or cut short ({len(content):,} bytes, MD5 {checksum} instead of "
            f"{file.md5}); replace it, or run `fedpriv data download {dataset}`"
        )
    return content


def md5(content: bytes) -> str:
    """Return the MD5 sum in hexadecimal digits, as torchvision writes it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the DataError for a ``path`` that cannot be read, with the system's reason."""
    reason = getattr(error, "strerror", None) or str(error)
    return DataError(f"cannot read {path}: {reason}")
