"""Arrays that take minutes to compute, kept as .npz files in the user's cache folder.

The cache only saves time. A file that is missing or damaged counts as empty, and a folder that cannot be
written to is not used. The numbers of a readable file are not verified.
"""

from __future__ import annotations

import hashlib
import zipfile
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import WriteError
from fedpriv.common.files import write_atomically
from fedpriv.common.saved import StateDict
from fedpriv.data.storage import cache_folder

if TYPE_CHECKING:
    from pathlib import Path


def cached_file(prefix: str, key: str, digest_size: int) -> Path:
    """Return the path of the arrays with this key.

    Args:
        prefix: Beginning of the file's name.
        key: Text that names everything that the arrays depend on.
        digest_size: Bytes of the key's digest in the file's name.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=digest_size).hexdigest()
    return cache_folder() / "strategies" / f"{prefix}-{digest}.npz"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a file by name; none for a file that is missing or damaged."""
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}


def write_arrays(path: Path, arrays: StateDict) -> None:
    """Write the arrays; do nothing where the cache folder cannot be written to."""
    with suppress(WriteError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays), "wb")
