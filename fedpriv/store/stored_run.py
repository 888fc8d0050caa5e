"""Stored runs: the only reader of run folders.

A run folder may be somebody else's: the reader executes nothing in it and follows no link. A file that cannot
be read gives one sentence, ``<file> cannot be read: <reason>``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fedpriv.common import config as configuration
from fedpriv.common.files import write_json
from fedpriv.store.folder import FINISHED, RunFolder
from fedpriv.store.saved import (
    saved_config,
    saved_json,
    saved_picture,
    saved_records,
    saved_rows,
    saved_table,
    saved_tensors,
    saved_text,
    saved_values,
    unreadable,
)
from fedpriv.store.tables import last_round, parse_ranges

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from omegaconf import DictConfig

    from fedpriv.store.canary_file import CanaryFile
    from fedpriv.store.ledger_file import StoredLedger

Read = TypeVar("Read")
_MOST_AUDITS = 50
_LARGEST_PICTURE = 1 << 19  # bytes


@dataclass(frozen=True)
class StoredAudit:
    """The result of one audit, and its picture if there is one.

    Attributes:
        name: Name of the result's file, without ``.json``.
        facts: Content of that file.
        picture: A PNG; None where there is none, or a picture that is too large.
    """

    name: str
    facts: dict[str, Any]
    picture: bytes | None


class StoredRun:
    """A run folder as its reader finds it. Each file is read once, when it is first asked for.

    A file that the run has not written yet counts as empty. A file that cannot be read raises ConfigError.

    Args:
        path: The run folder.

    Attributes:
        files: The paths of the run's files.
        path: The run folder.
    """

    def __init__(self, path: str | Path | RunFolder):
        self.files = path if isinstance(path, RunFolder) else RunFolder(path)
        self.path = self.files.path

    def _read(self, path: Path, read: Callable[[Path], Read], absent: Any = None) -> Read:
        """Return the content of a file.

        Args:
            path: The file.
            read: Returns the content of the file at a path, or raises ConfigError.
            absent: The value of a file that does not exist; None: its absence is an error.

        Raises:
            ConfigError: The file cannot be read, or is a link.
        """
        if absent is not None and not os.path.lexists(path):
            return absent
        self.files.refuse_odd(path)
        return read(path)

    # ---- what the run is

    @cached_property
    def configuration(self) -> DictConfig:
        """The resolved configuration of the run, without its trackers."""
        return self._read(self.files.config, saved_config)

    @cached_property
    def values(self) -> dict[str, object]:
        """The values of the configuration by dotted key, read ten times as fast as ``configuration``."""
        return self._read(self.files.config, saved_values)

    @cached_property
    def identity(self) -> dict[str, object]:
        """The values of the configuration that can change a result, by dotted key."""
        return configuration.identity_of_values(self.values)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, machine and command of the run."""
        return self._read(self.files.environment, saved_json, {})

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of the packages that the run used."""
        versions = self.environment.get("versions")
        return versions if isinstance(versions, dict) else {}

    @cached_property
    def overrides(self) -> list[str] | None:
        """The arguments that the run was started with; None where they are withheld or unknown."""
        path, overrides = self.files.environment, self.environment.get("overrides")
        if overrides is None or (
            isinstance(overrides, list) and all(isinstance(override, str) for override in overrides)
        ):
            return overrides
        raise unreadable(path, "its overrides are not a list of texts")

    # ---- how it ended

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The results of a run that has ended; empty before its end."""
        path = self.files.summary
        summary = self._read(path, saved_json, {})
        if summary and not isinstance(summary.get("stop_reason"), str):
            raise unreadable(path, "it has no stop_reason")
        return summary

    @property
    def finished(self) -> bool:
        """True for a run that has ended and cannot be resumed."""
        return self.summary.get("stop_reason") in FINISHED

    @cached_property
    def statement(self) -> dict[str, Any]:
        """The facts of the privacy statement (``privacy.json``)."""
        return self._read(self.files.privacy_json, saved_json, {})

    @cached_property
    def statement_text(self) -> str:
        """The privacy statement in words (``privacy.txt``)."""
        return self._read(self.files.privacy_text, saved_text, "")

    # ---- its rounds

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The rounds of a run (``metrics.csv``)."""
        return self._read(self.files.metrics, _table_of_rounds)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The participants of the evaluated rounds (``clients.csv``)."""
        return self._read(self.files.clients, _table_of_rounds)

    def last_value(self, column: str) -> float | None:
        """Return the last value in a column of ``metrics.csv``, even nan; None where all cells are empty."""

        def read(path: Path) -> float | None:
            # Cells are empty, for example, in rounds without an evaluation.
            cells = [row[column] for row in saved_records(path) if row.get(column)]
            try:
                return float(cells[-1]) if cells else None
            except ValueError:
                raise unreadable(path, "it is not a table of numbers") from None

        return self._read(self.files.metrics, read)

    @cached_property
    def last_round(self) -> dict[str, float]:
        """The results in the last whole row of ``metrics.csv``, and the accuracy that was evaluated last.

        An ε that the last row lacks stays unknown, because an ε of an earlier round is smaller than what was
        spent.
        """
        return self._read(self.files.metrics, last_round, {})

    def participants(self, client_count: int) -> list[int] | None:
        """Return the clients that took part in any round, ascending; None where no file says so.

        Args:
            client_count: Number of clients of the run; a file with another client is refused.
        """

        def read(path: Path) -> list[int]:
            try:
                cells = {row["clients"] for row in saved_records(path)}
                clients = sorted({client for text in cells for client in parse_ranges(text)})
                if clients and not 0 <= clients[0] <= clients[-1] < client_count:
                    raise ValueError
            except (ValueError, KeyError):
                raise unreadable(path, "it is no list of this run's clients") from None
            return clients

        return self._read(self.files.participation, read, []) or None

    # ---- what it released

    def ledger(self, view: str) -> StoredLedger:
        """Return the releases of the clients.

        Args:
            view: ``sound`` or ``published``.

        Raises:
            ConfigError: There is no ledger, it cannot be read, or it has no such view.
        """
        from fedpriv.store.ledger_file import read_ledger

        return self._read(self.files.ledger, lambda path: read_ledger(path, view))

    @cached_property
    def ledger_rows(self) -> list[list[str]]:
        """The cells of the ledger as text; the first row names the columns."""
        return self._read(self.files.ledger, saved_rows, [])

    @cached_property
    def canaries(self) -> CanaryFile | None:
        """The observations of the run's canaries; None for a run without canaries."""
        from fedpriv.store.canary_file import read_canaries

        path = self.files.canaries
        return self._read(path, read_canaries) if os.path.lexists(path) else None

    def model(self, device: str | torch.device) -> dict[str, object]:
        """Return the final weights by name, on ``device``.

        These are the averaged weights where the run evaluated those.

        Raises:
            ConfigError: There is no model, or it cannot be read.
        """

        def weights(path: Path) -> dict[str, object]:
            return cast("dict[str, object]", saved_tensors(path, device))

        return self._read(self.files.model, weights)

    @cached_property
    def audits(self) -> list[StoredAudit]:
        """The results of audits of the run, at most 50."""
        if not self.files.audit.is_dir():
            return []
        paths = sorted(set(self.files.audit.glob("*.json")) - {self.files.canaries})[:_MOST_AUDITS]
        return [
            StoredAudit(
                path.stem,
                self._read(path, saved_json),
                saved_picture(path.with_suffix(".png"), _LARGEST_PICTURE),
            )
            for path in paths
        ]

    @cached_property
    def trackers(self) -> dict[str, dict[str, str]]:
        """The texts that trackers left in the folder, by tracker and name."""
        return {
            tracker: {key: value for key, value in facts.items() if isinstance(value, str)}
            for tracker, facts in self._read(self.files.trackers, saved_json, {}).items()
            if isinstance(facts, dict)
        }


def _table_of_rounds(path: Path) -> pd.DataFrame:
    table = saved_table(path)
    if "round" not in table:
        raise unreadable(path, "it is no table of rounds")
    return table


def add_to_summary(folder: RunFolder, results: Mapping[str, object]) -> None:
    """Add results to the ``summary.json`` of a run that has ended; they replace those with the same keys.

    Raises:
        ConfigError: The summary cannot be read.
        WriteError: It cannot be written.
    """
    write_json(folder.summary, {**StoredRun(folder).summary, **results})
