"""Arrays that took long to make, kept in the cache beside downloads: ``<cache>/encoded/*.npz``.

A file is known by what it was made from (checksums of the sources) and how (the settings), so it is
never out of date, and any of them may be deleted at any time.
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

_FORMAT = 1  # raise it when what is stored changes its meaning


def kept(
    name: str, made_from: object, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays that ``make()`` returned for the same ``name`` and ``made_from`` (its repr counts).

    A damaged or unreadable file is made again; a cache that cannot be written to is done without.
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
        path.parent.chmod(0o700)  # what is kept says as much as the records that it was made from
        write_atomically(
            path, lambda file: np.savez(file, **cast("dict[str, Any]", arrays)), mode="wb"
        )
    return arrays


def is_kept(name: str, made_from: object) -> bool:
    """Whether ``kept`` would find a file."""
    return _path(name, made_from).is_file()


def _path(name: str, made_from: object) -> Path:
    digest = hashlib.blake2b(repr((_FORMAT, made_from)).encode(), digest_size=12).hexdigest()
    return cache_folder() / "encoded" / f"{name}-{digest}.npz"
