"""Checks of a stored run folder: every file against its digest, every damage as one sentence."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedpriv.common.errors import ConfigError
from fedpriv.common.notices import notice
from fedpriv.store.digests import KEY, Digest, is_own_digest, matches
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import LARGEST_HASHED, LARGEST_SUMMARY, parsed_json, saved_text, unreadable

INTERRUPTED = "interrupted"
_LOST = "it held the SHA-256 of the files of this run, so damage that leaves a file readable is not detected"
Read = TypeVar("Read")


class CheckedFolder:
    """The files of a run, each compared with its digest in ``summary.json`` when it is read.

    Args:
        path: The run folder.
        tolerant: True: an unreadable file counts as empty, and only ``damage`` says so. False: an unreadable
            file raises ConfigError, and a file that is readable but changed leads to a warning.

    Attributes:
        files: The paths of the run's files.
        path: The run folder.
        damage: One sentence for each damaged file that was read so far.
    """

    def __init__(self, path: str | Path | RunFolder, tolerant: bool = False):
        self.files = path if isinstance(path, RunFolder) else RunFolder(path)
        self.path = self.files.path
        self.damage: dict[Path, str] = {}
        self._tolerant = tolerant
        self._checked: set[str] = set()

    @cached_property
    def stated(self) -> dict[str, Digest]:
        """The digests of the run's files, from ``summary.json``; empty before the run has ended."""
        summary, problem = self._summary
        if problem:
            self._enter(self.files.summary, problem)
        elif self.lost and not self._tolerant:
            notice(f"warning: {self.lost}")
        if not summary:
            return {}
        stated = summary.get(KEY)
        if not isinstance(stated, dict):
            notice(
                f"{self.path} was written by a version of fedpriv that stored no digests of files; in runs "
                "of that version, damage that leaves a file readable is not detected",
                kind=KEY,
            )
            return {}
        return {name: entry for name, entry in stated.items() if isinstance(entry, dict)}

    @property
    def lost(self) -> str:
        """The damage of a run with a statement but no summary, in a sentence; else empty."""
        path, statement = self.files.summary, self.files.privacy_json
        if os.path.lexists(path) or not os.path.lexists(statement):
            return ""
        return f"{path} is not there, though {statement} is; {_LOST}"

    @cached_property
    def _summary(self) -> tuple[dict[str, Any], str]:
        """The content of ``summary.json``, and the reason why it cannot be read; one of them is empty."""
        path = self.files.summary
        if not os.path.lexists(path):
            return {}, ""
        try:
            self.files.refuse_odd(path)
        except ConfigError as error:
            return {}, str(error)
        try:
            text = saved_text(path, LARGEST_SUMMARY)
            summary = parsed_json(path, text)
            if not isinstance(summary.get("stop_reason"), str):
                raise unreadable(path, "it has no stop_reason")
        except ConfigError as error:
            return {}, f"{error}; {_LOST}"
        if isinstance(stated := summary.get(KEY), dict) and not is_own_digest(text, stated):
            self._enter(path, _changed(path))
        return summary, ""

    def check(self, path: Path, largest: float = math.inf) -> None:
        """Compare a file with its digest once; a second call does nothing.

        A mismatch raises nothing. It is entered in ``damage``, and shown as a warning unless the folder is
        ``tolerant``. A file without a stated digest passes.

        Args:
            path: A file of the run.
            largest: Bytes; of a larger file only the size is compared.
        """
        name = path.relative_to(self.path).as_posix()
        if name in self._checked or path == self.files.summary:
            return
        self._checked.add(name)
        entry, goes_on = self.stated.get(name), self._goes_on
        if entry is not None and not matches(path, entry, largest, goes_on):
            self._enter(path, _changed(path))

    def check_all(self) -> None:
        """Compare every existing file that ``summary.json`` names.

        Files of an interrupted run that a resumed run may write again are left out.
        """
        for name in self.stated:
            path = self.path / name
            # The names come from a file that may be somebody else's: none may lead out of the folder.
            odd = Path(name).is_absolute() or ".." in Path(name).parts
            written_again = self._goes_on and name.endswith(("environment.json", "trackers.json"))
            if odd or written_again or not os.path.lexists(path):
                continue
            try:
                self.files.refuse_odd(path)
                self.check(path, LARGEST_HASHED)
            except ConfigError as error:
                self._enter(path, str(error))

    def damage_of(self, *paths: Path) -> list[str]:
        """Return a sentence for each of these files that is damaged; an empty list if none is.

        A file is damaged if ``summary.json`` states its digest and it is missing or differs, or if an
        earlier read found a problem. A file without a stated digest is not missed. Unless the folder is
        ``tolerant``, each new damage is also shown as a warning.
        """
        for path in paths:
            if path.name in self.stated and not os.path.lexists(path):
                self._enter(path, str(unreadable(path, "it is not there")))
            self.check(path)
        return [self.damage[path] for path in paths if path in self.damage]

    def vouches_for(self, *paths: Path) -> bool:
        """Return whether ``summary.json`` has a digest of each of these files, and all of them match.

        Unlike :meth:`check` this enters no damage.
        """
        entries = [self.stated.get(path.relative_to(self.path).as_posix()) for path in paths]
        return all(
            entry is not None and matches(path, entry)
            for path, entry in zip(paths, entries, strict=True)
        )

    @property
    def went_on(self) -> bool:
        """True for an interrupted run with more rounds in ``metrics.csv`` than its summary states."""
        path = self.files.metrics
        try:
            return self._goes_on and path.stat().st_size > self.stated[path.name]["bytes"]
        except (OSError, KeyError, TypeError):
            return False

    @property
    def _goes_on(self) -> bool:
        return self._summary[0].get("stop_reason") == INTERRUPTED

    def _read(
        self, path: Path, read: Callable[[Path], Read], absent: Any, optional: bool = True
    ) -> Read:
        """Read a file and compare it with its digest.

        Args:
            path: The file.
            read: Returns the content of the file at a path, or raises ConfigError.
            absent: The value of a file that does not exist, and of an unreadable file if the reader is
                tolerant.
            optional: False for a file that every run has; its absence is an error.

        Raises:
            ConfigError: The file cannot be read, and the reader is not tolerant.
        """
        name = path.relative_to(self.path).as_posix()
        if optional and not os.path.lexists(path) and name not in self.stated:
            return absent
        try:
            self.files.refuse_odd(path)
            content = read(path)
        except ConfigError as error:
            self._checked.add(name)
            # The digest of an unreadable file would only lead to a second sentence about it.
            return self._refuse(path, error, absent)
        self.check(path)
        return content

    def refuse(self, path: Path, reason: str) -> None:
        """Enter a file that cannot be read as damaged.

        Raises:
            ConfigError: The reader is not tolerant.
        """
        self._refuse(path, unreadable(path, reason))

    def _refuse(self, path: Path, error: ConfigError, instead: Any = None) -> Any:
        if not self._tolerant:
            raise error
        self._enter(path, str(error))
        return instead

    def _enter(self, path: Path, problem: str) -> None:
        if path not in self.damage:
            self.damage[path] = problem
            if not self._tolerant:
                notice(f"warning: {problem}")


def _changed(path: Path) -> str:
    where = "that it states" if path.name == "summary.json" else "in summary.json"
    return f"{path} is not as the run wrote it, by the SHA-256 {where}: it is damaged or was edited"
