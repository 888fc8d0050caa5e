"""SHA-256 digests of the files of a run folder: noted when a file is written, compared when it is read.

After the end of a run ``summary.json`` holds the digests under ``files``, that of ``summary.json`` included.
Before the end ``checkpoint.pt`` holds them. Tables that grow are hashed row by row, so no file is read again
only to be hashed. Digests find accidents. They do not stop a person who edits a file and its digest.

Three kinds of files have no digest here. Checkpoints and snapshots hold one inside. ``secret_key`` has none,
because the run's random streams depend on the key. ``run.log``, pictures and reports are never read back.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpriv.common.files import json_text

KEY = "files"
"""Key of the digests in ``summary.json`` and in a checkpoint: file name → ``{"bytes": …, "sha256": …}``."""
GROWING = ("metrics.csv", "clients.csv", "participation.csv")
_SUMMARY = "summary.json"
_BLOCK = 1 << 20
_UNKNOWN = "0" * 64  # in the place of a summary's own digest while that is computed

Digest = dict[str, Any]


def digest(content: bytes | memoryview) -> Digest:
    """Return the digest of a file with this content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def begun(path: Path, size: int) -> hashlib._Hash:
    """Return the SHA-256 object of the first ``size`` bytes of a file, ready for more bytes."""
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            sha256.update(block)
            size -= len(block)
    return sha256


def matches(path: Path, entry: Digest, largest: float = math.inf, goes_on: bool = False) -> bool:
    """Return whether a file has a digest.

    Args:
        path: The file. Something else than a file matches, and so does a file that cannot be read: refusing
            them is the task of its reader. An absent file does not match.
        entry: The stated digest. An entry without size or SHA-256 matches nothing.
        largest: Bytes; of a larger file only the size is compared.
        goes_on: True: the run was interrupted, so that a growing table may be longer than it was. Then only
            the beginning of the table must match.
    """
    try:
        status, size = path.lstat(), entry["bytes"]
        if not stat.S_ISREG(status.st_mode):
            return True
        longer = status.st_size > size and path.name in GROWING and goes_on
        return (status.st_size == size or longer) and (
            size > largest or begun(path, size).hexdigest() == entry["sha256"]
        )
    except FileNotFoundError:
        return False
    except OSError:
        return True  # the reader of the file will report the error
    except (TypeError, KeyError):
        return False


class FileDigests:
    """The digests of the files that this process wrote into one run folder.

    Args:
        folder: The run folder.

    Attributes:
        written: The digest of each file by its path below the folder. A resumed run gets those of its
            checkpoint.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.written: dict[str, Digest] = {}

    def note(self, path: Path, entry: Digest) -> None:
        """Enter the digest of a file that was written."""
        self.written[Path(os.path.relpath(path, self._folder)).as_posix()] = entry

    def add_missing(self, names: list[str]) -> None:
        """Enter existing files that this process did not write."""
        for name in names:
            path = self._folder / name
            if name not in self.written and path.is_file():
                size = path.stat().st_size
                self.note(path, {"bytes": size, "sha256": begun(path, size).hexdigest()})


def sealed(summary: dict[str, Any], stated: dict[str, Digest]) -> tuple[dict[str, Any], str]:
    """Return a summary with the digests of all files, and the text of ``summary.json``.

    The digest of ``summary.json`` itself is computed with 64 zeros in its place.

    Args:
        summary: The results.
        stated: The digests of the other files.
    """
    files = {name: stated[name] for name in sorted(stated) if name != _SUMMARY}
    full = {**summary, KEY: {**files, _SUMMARY: {"sha256": _UNKNOWN}}}
    own_digest = hashlib.sha256(json_text(full).encode()).hexdigest()
    full[KEY][_SUMMARY]["sha256"] = own_digest
    return full, json_text(full)


def is_own_digest(text: str, stated: Mapping[str, Digest]) -> bool:
    """Return whether the text of ``summary.json`` has the digest that it states for itself."""
    own_digest = stated.get(_SUMMARY)
    own_digest = own_digest.get("sha256") if isinstance(own_digest, dict) else None
    if not isinstance(own_digest, str) or len(own_digest) != len(_UNKNOWN):
        return False
    head, _, tail = text.rpartition(own_digest)
    return own_digest == hashlib.sha256(f"{head}{_UNKNOWN}{tail}".encode()).hexdigest()
