"""Arrays that take long to compute, kept in the cache beside the downloads: ``<cache>/encoded/*.npz``.

The file name is a digest of the checksums of the sources and of the settings. A file is therefore never
out of date, and any file may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedpriv.common.errors import WriteError
from fedpriv.common.files import write_atomically
from fedpriv.data.storage import cache_folder

_FORMAT = 1  # to be raised when the meaning of stored arrays changes


def kept(
    name: str, made_from: object, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays of ``make()``, from the cache if they are there.

    A damaged or unreadable file is computed again. If the cache cannot be written to, nothing is stored.

    Args:
        name: Beginning of the file name.
        made_from: Checksums of the sources and settings; its ``repr`` identifies the file.
        make: Function that computes the arrays.
    """
    path = _path(name, made_from)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        pass
    arrays = dict(make())
    with suppress(OSError, WriteError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The arrays reveal as much as the private records from which they were computed.
        path.parent.chmod(0o700)
        write_atomically(
            path, lambda file: np.savez(file, **cast("dict[str, Any]", arrays)), mode="wb"
        )
    return arrays


def is_kept(name: str, made_from: object) -> bool:
    """Return whether the cache has a file for ``name`` and ``made_from``."""
    return _path(name, made_from).is_file()


def _path(name: str, made_from: object) -> Path:
    digest = hashlib.blake2b(repr((_FORMAT, made_from)).encode(), digest_size=12).hexdigest()
    return cache_folder() / "encoded" / f"{name}-{digest}.npz"
