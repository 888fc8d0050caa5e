"""Stored runs: the only reader of run folders.

A run folder may be damaged or untrusted. The reader executes nothing in it, follows no link, and limits the
memory that a file can take. Every command describes a bad file with the same sentence:

- ``<file> cannot be read: <reason>``, if the content is not of the kind that a run writes there;
- ``<file> is not as the run wrote it, by the SHA-256 in summary.json: it is damaged or was edited``, if the
  content is readable but differs from what the run wrote.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedpriv.common import config as configuration
from fedpriv.common.checks import is_number
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text, write_text
from fedpriv.store.checked_folder import CheckedFolder
from fedpriv.store.digests import KEY, sealed
from fedpriv.store.folder import FINISHED, RunFolder
from fedpriv.store.saved import (
    LARGEST_CONFIG,
    saved_config,
    saved_json,
    saved_picture,
    saved_rows,
    saved_tensors,
    saved_text,
    saved_values,
    unreadable,
)
from fedpriv.store.tables import last_round, parse_ranges

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from fedpriv.store.canary_file import CanaryFile
    from fedpriv.store.ledger_file import StoredLedger
    from fedpriv.store.numbers import Columns

_STATED_TWICE = ("epsilon", "epsilon_published", "epsilon_sound", "delta")
"""Keys that ``summary.json`` and ``privacy.json`` both hold."""
_TOLERANCE, _SMALL = 0.05, 0.005
"""Relative and absolute tolerance of ε. Valid accountants differ by less, an edited ledger by more."""
_BOUND = "an upper bound"
"""Beginning of the stated reason where the statement's ε is only a bound of the ledger's."""
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


class StoredRun(CheckedFolder):
    """A run folder as its reader finds it. Each file is read once, when it is first asked for.

    A file that cannot be read raises ConfigError. A file that is readable but not as the run wrote it is
    used, and the command prints a warning. A file that the run has not written yet counts as empty. A
    ``tolerant`` reader also takes unreadable files for empty, and its caller looks at ``damage``.
    """

    # ---- what the run is

    @cached_property
    def configuration(self) -> DictConfig:
        """The resolved configuration of the run, without its trackers."""
        return self._read(self.files.config, saved_config, {}, optional=False)

    @cached_property
    def values(self) -> dict[str, object]:
        """The values of the configuration by dotted key, read ten times as fast as ``configuration``."""
        return self._read(self.files.config, saved_values, {}, optional=False)

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
        return self._refuse(path, unreadable(path, "its overrides are not a list of texts"))

    # ---- how it ended

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The results of a run that has ended; empty before its end."""
        summary, problem = self._summary
        if problem:
            return self._refuse(self.files.summary, ConfigError(problem), {})
        return summary

    @property
    def finished(self) -> bool:
        """True for a run that has ended and cannot be resumed."""
        return self.summary.get("stop_reason") in FINISHED

    @cached_property
    def statement(self) -> dict[str, Any]:
        """The facts of the privacy statement (``privacy.json``), compared with the summary."""
        path = self.files.privacy_json
        facts = self._read(path, saved_json, {})
        summary, _ = self._summary
        for key in _STATED_TWICE:
            if key in summary and key in facts and not _equal(summary[key], facts[key]):
                # Where one of the files is known to be damaged, a second sentence would say nothing new.
                if not {path, self.files.summary} & self.damage.keys():
                    self._enter(
                        path,
                        f"{self.files.summary} says {key} {summary[key]}, {path.name} says {facts[key]}: one "
                        "of them is damaged or was edited",
                    )
                break
        return facts

    @cached_property
    def statement_text(self) -> str:
        """The privacy statement in words (``privacy.txt``)."""
        return self._read(
            self.files.privacy_text, lambda path: saved_text(path, LARGEST_CONFIG), ""
        )

    # ---- its rounds

    @cached_property
    def metrics(self) -> Columns:
        """The rounds of a run (``metrics.csv``)."""
        return self._columns(self.files.metrics)

    @cached_property
    def clients(self) -> Columns:
        """The participants of the evaluated rounds (``clients.csv``)."""
        return self._columns(self.files.clients)

    def _columns(self, path: Path) -> Columns:
        from fedpriv.store.numbers import Columns, read_columns

        def read(path: Path) -> Columns:
            columns = read_columns(path)
            if "round" not in columns:
                raise unreadable(path, "it is no table of rounds")
            return columns

        return self._read(path, read, Columns(), optional=self._tolerant)

    def last_value(self, column: str) -> float | None:
        """Return the last value in a column of ``metrics.csv``, even nan; None where all cells are empty."""

        def read(path: Path) -> float | None:
            try:
                names, *rows = saved_rows(path)
                # Cells are empty, for example, in rounds without an evaluation.
                cells = [
                    cell for row in rows if column in names and (cell := row[names.index(column)])
                ]
                return float(cells[-1]) if cells else None
            except (ValueError, IndexError):
                raise unreadable(path, "it is not a table of numbers") from None

        return self._read(self.files.metrics, read, None)

    @cached_property
    def last_round(self) -> dict[str, float]:
        """The results in the last whole row of ``metrics.csv``, and the accuracy that was evaluated last.

        Only the end of the file is read. An ε that the last row lacks stays unknown, because an ε of an
        earlier round is smaller than what was spent.
        """
        return self._read(self.files.metrics, last_round, {})

    def participants(self, client_count: int) -> list[int] | None:
        """Return the clients that took part in any round, ascending; None where no file says so.

        Args:
            client_count: Number of clients of the run; a file with another client is refused.
        """

        def read(path: Path) -> list[int]:
            try:
                names, *rows = saved_rows(path)
                cells = {row[names.index("clients")] for row in rows}
                clients = sorted({client for text in cells for client in parse_ranges(text)})
                if clients and not 0 <= clients[0] <= clients[-1] < client_count:
                    raise ValueError
            except (ValueError, IndexError):
                reason = "it is no list of this run's clients"
                raise unreadable(path, f"{reason}") from None
            return clients

        return self._read(self.files.participation, read, None) or None

    # ---- what it released

    def compare_ledger(self, epsilon: float, tightest: bool) -> None:
        """Enter a damage if the ledger's ε disagrees with the statement's sound ε.

        Args:
            epsilon: ε computed from the ledger at the run's δ. The noise must not have adapted.
            tightest: True if the tightest accountant computed ``epsilon``. A looser accountant may exceed
                the stated value without any damage.
        """
        stated, reasons = self.statement.get("epsilon_sound"), self.statement.get("reasons")
        if not is_number(stated):
            return
        reason = str(reasons.get("epsilon_sound")) if isinstance(reasons, dict) else ""
        margin = _TOLERANCE * stated + _SMALL
        # A stated value that is only an upper bound may lie far above.
        less = epsilon < stated - margin and not reason.startswith(_BOUND)
        if less or (tightest and epsilon > stated + margin):
            self._enter(
                self.files.ledger,
                f"{self.files.ledger} has epsilon {epsilon:.4f} at delta {self.statement.get('delta')}, "
                f"{self.files.privacy_json.name} states {stated:.4f}: one of them is damaged or was edited",
            )

    def ledger(self, view: str) -> StoredLedger:
        """Return the releases of the clients.

        Args:
            view: ``sound`` or ``published``.

        Raises:
            ConfigError: There is no ledger, it cannot be read, or it has no such view.
        """
        from fedpriv.store.ledger_file import read_ledger

        path = self.files.ledger
        if not os.path.lexists(path):
            self.refuse(path, "it is not there; a private run writes it")
        ledger = self._read(path, lambda path: read_ledger(path, view), None)
        if ledger is None:
            raise ConfigError(self.damage[path])
        return ledger

    @cached_property
    def ledger_rows(self) -> list[list[str]]:
        """The cells of the ledger as text; the first row names the columns."""
        return self._read(self.files.ledger, saved_rows, [])

    @cached_property
    def canaries(self) -> CanaryFile | None:
        """The observations of the run's canaries; None for a run without canaries."""
        from fedpriv.store.canary_file import read_canaries

        return self._read(self.files.canaries, read_canaries, None)

    def model(self, device: str | torch.device) -> dict[str, object]:
        """Return the final weights by name, on ``device``.

        These are the averaged weights where the run evaluated those.

        Raises:
            ConfigError: There is no model, or it cannot be read, and the reader is not tolerant.
        """

        def weights(path: Path) -> dict[str, object]:
            return cast("dict[str, object]", saved_tensors(path, device))

        return self._read(self.files.model, weights, {}, optional=False)

    @cached_property
    def audits(self) -> list[StoredAudit]:
        """The results of audits of the run, at most 50."""
        if not self.files.audit.is_dir():
            return []
        paths = sorted(set(self.files.audit.glob("*.json")) - {self.files.canaries})[:_MOST_AUDITS]
        results = [(path, self._read(path, saved_json, None)) for path in paths]
        return [
            StoredAudit(path.stem, facts, saved_picture(path.with_suffix(".png"), _LARGEST_PICTURE))
            for path, facts in results
            if facts is not None
        ]

    @cached_property
    def trackers(self) -> dict[str, dict[str, str]]:
        """The texts that trackers left in the folder, by tracker and name."""
        return {
            tracker: {key: value for key, value in facts.items() if isinstance(value, str)}
            for tracker, facts in self._read(self.files.trackers, saved_json, {}).items()
            if isinstance(facts, dict)
        }


def add_to_summary(folder: RunFolder, results: Mapping[str, object]) -> None:
    """Add results to the ``summary.json`` of a run that has ended, and the digests of newly written files.

    A damaged summary keeps its wrong digest, so that adding a result never hides the damage.

    Args:
        folder: The run folder, with the digests of the files that this process wrote there.
        results: The results by key; they replace those with the same keys.

    Raises:
        ConfigError: The summary cannot be read.
        WriteError: It cannot be written.
    """
    run = StoredRun(folder)
    summary = {key: value for key, value in run.summary.items() if key != KEY} | dict(results)
    if run.files.summary in run.damage:
        text = json_text({**summary, KEY: run.summary[KEY]})
    else:
        text = sealed(summary, run.stated | folder.digests.written)[1]
    write_text(folder.summary, text)


def _equal(first: object, second: object) -> bool:
    if is_number(first) and is_number(second):
        return math.isclose(first, second, rel_tol=1e-9)
    return first == second
