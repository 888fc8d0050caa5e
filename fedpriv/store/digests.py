"""The SHA-256 of the files of a run folder: noted as they are written, compared as they are read.

``summary.json`` holds them under ``files`` once a run has ended, its own among them; ``checkpoint.pt`` holds
those of a run that goes on. Tables that grow are hashed row by row, so no file is read to be hashed. Digests
find accidents. They do not stop somebody who edits a file and its digest.

Not covered: checkpoints and snapshots, which hold a digest of their own, ``secret_key`` (the run's streams
depend on it), and what fedpriv never reads back: ``run.log``, pictures, reports.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpriv.common.files import json_text
from fedpriv.common.notices import notice

KEY = "files"
"""Of ``summary.json`` and of a checkpoint: file name → ``{"bytes": …, "sha256": …}``."""
GROWING = ("metrics.csv", "clients.csv", "participation.csv")
_SUMMARY, _STATEMENT = "summary.json", "privacy.json"
_LARGEST_SUMMARY = 1 << 20
_BLOCK = 1 << 20
_LARGEST_HASHED = 1 << 18  # bytes, where many runs are looked at
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
        found, size = path.stat(), entry["bytes"]
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
    """The digests of one run folder.

    Attributes:
        written: Those of what this process wrote, by name.
        problems: What is not as it was written, in sentences.
        unknown: Why the digests of a run that has ended are lost; empty where they are not.
        quiet: Whether problems are no notices of the command, because its result shows them.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.written: dict[str, Digest] = {}
        self.problems: list[str] = []
        self.unknown = ""
        self.quiet = False
        self._checked: set[str] = set()
        self._stated: dict[str, Digest] | None = None
        self._goes_on = False

    def note(self, path: Path, size: int, sha256: str) -> None:
        """Enter a file that was written."""
        self.written[self._name(path)] = {"bytes": size, "sha256": sha256}

    def note_content(self, path: Path, content: bytes | memoryview) -> None:
        """Enter a file that was written with this content."""
        self.written[self._name(path)] = digest(content)

    def check(self, path: Path) -> None:
        """Compare a file with what ``summary.json`` states; say once what is not as it was written."""
        name = self._name(path)
        if name in self._checked:
            return
        self._checked.add(name)
        if name in self.written:
            return  # by this very process
        stated = self.stated()
        if name in stated and name != _SUMMARY and not self.matches(name, stated[name]):
            self._tell(f"{path} is not as the run wrote it, by the SHA-256 in {_SUMMARY}")

    def check_all(self) -> None:
        """Compare every file that ``summary.json`` names and that is there, large ones by their size alone.

        Files that a resumed run may write again before its end are left out for an interrupted run.
        """
        for name, entry in self.stated().items():
            path = self._folder / name
            odd = Path(name).is_absolute() or ".." in Path(name).parts
            written_again = self._goes_on and name.endswith(("environment.json", "trackers.json"))
            if odd or written_again or name in self._checked or not os.path.lexists(path):
                continue
            self._checked.add(name)
            if name != _SUMMARY and not self.matches(name, entry, _LARGEST_HASHED):
                self._tell(f"{path} is not as the run wrote it, by the SHA-256 in {_SUMMARY}")

    def vouches_for(self, *names: str) -> bool:
        """Return whether all these files are as ``summary.json`` states them."""
        stated = self.stated()
        return all(name in stated and self.matches(name, stated[name]) for name in names)

    def grown(self, name: str) -> bool:
        """Return whether a table has more rows than ``summary.json`` states: the run went on."""
        try:
            return (self._folder / name).stat().st_size > self.stated()[name]["bytes"]
        except (OSError, KeyError, TypeError):
            return False

    def matches(self, name: str, entry: Digest, largest: float = math.inf) -> bool:
        return matches(self._folder / name, entry, largest, self._goes_on)

    def stated(self) -> dict[str, Digest]:
        """What ``summary.json`` states; empty where it states nothing. It is compared with itself first."""
        if self._stated is None:
            self._stated = self._read()
        return self._stated

    def state(self, stated: dict[str, Digest]) -> None:
        """Take what this process has just written into ``summary.json``."""
        self._stated, self._goes_on = stated, False
        self._checked.clear()

    def _read(self) -> dict[str, Digest]:
        path = self._folder / _SUMMARY
        try:
            if not os.path.lexists(path):
                statement = self._folder / _STATEMENT
                self._lost(
                    f"{path} is not there, though {statement} is", os.path.lexists(statement)
                )
                return {}
            if not path.is_file() or path.stat().st_size > _LARGEST_SUMMARY:
                raise ValueError(path)
            text = path.read_text(encoding="utf-8")
            summary = json.loads(text)
        except (OSError, ValueError, RecursionError):  # its readers refuse it
            self._lost(f"{path} cannot be read")
            return {}
        stated = summary.get(KEY) if isinstance(summary, dict) else None
        if not isinstance(stated, dict):
            notice(
                f"{self._folder} was written by a version of fedpriv that kept no digests of its files; "
                "there, and in others of that version, damage that leaves them readable is not noticed",
                kind=KEY,
            )
            return {}
        self._goes_on = summary.get("stop_reason") == "interrupted"
        if not is_own_digest(text, stated):
            self._tell(f"{path} is not as the run wrote it, by the SHA-256 that it states")
        return {name: entry for name, entry in stated.items() if isinstance(entry, dict)}

    def _lost(self, reason: str, lost: bool = True) -> None:
        """Say that nothing tells whether the files are as they were written."""
        if lost:
            self.unknown = (
                f"{reason}: the SHA-256 of the files of this run are lost, so damage that leaves them "
                "readable is not noticed"
            )
            if not self.quiet:
                notice(f"warning: {self.unknown}")

    def _tell(self, problem: str) -> None:
        problem += ": it is damaged or was edited"
        self.problems.append(problem)
        if not self.quiet:
            notice(f"warning: {problem}")

    def sealed(
        self, summary: dict[str, Any], stated: dict[str, Digest]
    ) -> tuple[dict[str, Any], str]:
        """Return (a summary with these digests and its own, its text)."""
        files = {name: stated[name] for name in sorted(stated) if name != _SUMMARY}
        full = {**summary, KEY: {**files, _SUMMARY: {"sha256": _UNKNOWN}}}
        own = hashlib.sha256(json_text(full).encode()).hexdigest()
        full[KEY][_SUMMARY]["sha256"] = own
        return full, json_text(full)

    def add_missing(self, names: list[str]) -> None:
        """Enter what is there and was not written by this process: of a run that an older version began."""
        for name in names:
            path = self._folder / name
            if name not in self.written and path.is_file():
                size = path.stat().st_size
                self.note(path, size, begun(path, size).hexdigest())

    def _name(self, path: Path) -> str:
        return Path(os.path.relpath(path, self._folder)).as_posix()


def is_own_digest(text: str, stated: Mapping[str, Digest]) -> bool:
    """Return whether the text of a summary has the digest that it states of itself."""
    own = stated.get(_SUMMARY)
    own = own.get("sha256") if isinstance(own, dict) else None
    if not isinstance(own, str) or len(own) != len(_UNKNOWN):
        return False
    head, _, tail = text.rpartition(own)
    return own == hashlib.sha256(f"{head}{_UNKNOWN}{tail}".encode()).hexdigest()
