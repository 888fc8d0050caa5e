"""The SHA-256 of the files of a run folder: noted as they are written, compared as they are read.

``summary.json`` holds them under ``files`` once a run has ended, its own among them; ``checkpoint.pt`` holds
those of a run that goes on. Tables that grow are hashed row by row, so no file is read to be hashed. Digests
find accidents. They do not stop somebody who edits a file and its digest.

Not covered: checkpoints and snapshots, which hold a digest of their own, ``secret_key`` (the run's streams
depend on it), and what fedpriv never reads back: ``run.log``, pictures, reports.
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
"""Of ``summary.json`` and of a checkpoint: file name → ``{"bytes": …, "sha256": …}``."""
GROWING = ("metrics.csv", "clients.csv", "participation.csv")
_SUMMARY, _STATEMENT = "summary.json", "privacy.json"
_BLOCK = 1 << 20
_UNKNOWN = "0" * 64  # in the place of a summary's own digest while that is computed

Digest = dict[str, Any]


def digest(content: bytes | memoryview) -> Digest:
    """The digest of a file with this content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def begun(path: Path, size: int) -> hashlib._Hash:
    """SHA-256 of the first ``size`` bytes of a file, to go on with."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            found.update(block)
            size -= len(block)
    return found


def matches(path: Path, entry: Digest, largest: float = math.inf, goes_on: bool = False) -> bool:
    """Return whether a file has this digest; of a table of a run that goes on, whether it begins so.

    Of a file with more than ``largest`` bytes only the size is compared. What is no file is for its
    reader to refuse.
    """
    try:
        found, size = path.lstat(), entry["bytes"]
        if not stat.S_ISREG(found.st_mode):
            return True
        longer = found.st_size > size and path.name in GROWING and goes_on
        return (found.st_size == size or longer) and (
            size > largest or begun(path, size).hexdigest() == entry["sha256"]
        )
    except FileNotFoundError:
        return False
    except OSError:
        return True
    except (TypeError, KeyError):
        return False


class FileDigests:
    """The digests of what this process wrote into one run folder: ``written``, by name."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.written: dict[str, Digest] = {}

    def note(self, path: Path, size: int, sha256: str) -> None:
        """Enter a file that was written."""
        self.written[self._name(path)] = {"bytes": size, "sha256": sha256}

    def note_content(self, path: Path, content: bytes | memoryview) -> None:
        """Enter a file that was written with this content."""
        self.written[self._name(path)] = digest(content)

    def add_missing(self, names: list[str]) -> None:
        """Enter what is there and was not written by this process: of a run that an older version began."""
        for name in names:
            path = self._folder / name
            if name not in self.written and path.is_file():
                size = path.stat().st_size
                self.note(path, size, begun(path, size).hexdigest())

    def _name(self, path: Path) -> str:
        return Path(os.path.relpath(path, self._folder)).as_posix()


def sealed(summary: dict[str, Any], stated: dict[str, Digest]) -> tuple[dict[str, Any], str]:
    """Return (a summary with these digests and its own, its text)."""
    files = {name: stated[name] for name in sorted(stated) if name != _SUMMARY}
    full = {**summary, KEY: {**files, _SUMMARY: {"sha256": _UNKNOWN}}}
    own = hashlib.sha256(json_text(full).encode()).hexdigest()
    full[KEY][_SUMMARY]["sha256"] = own
    return full, json_text(full)


def is_own_digest(text: str, stated: Mapping[str, Digest]) -> bool:
    """Return whether the text of a summary has the digest that it states of itself."""
    own = stated.get(_SUMMARY)
    own = own.get("sha256") if isinstance(own, dict) else None
    if not isinstance(own, str) or len(own) != len(_UNKNOWN):
        return False
    head, _, tail = text.rpartition(own)
    return own == hashlib.sha256(f"{head}{_UNKNOWN}{tail}".encode()).hexdigest()
