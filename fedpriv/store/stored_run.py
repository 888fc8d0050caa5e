"""A stored run: the only reader of run folders.

A folder may be damaged, or come from somebody else. Nothing in it is run, no link in it is followed, no file
takes memory without end, and what is wrong with a file is one sentence, the same in every command:

- ``<file> cannot be read: <reason>`` for what is not what a run writes there;
- ``<file> is not as the run wrote it, by the SHA-256 in summary.json: it is damaged or was edited`` for what
  can be read and is something else than the run wrote.
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
)
from fedpriv.store.tables import last_round, parse_ranges

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from fedpriv.store.canary_file import CanaryFile
    from fedpriv.store.ledger_file import StoredLedger
    from fedpriv.store.numbers import Columns

_STATED_TWICE = ("epsilon", "epsilon_published", "epsilon_sound", "delta")
"""What ``summary.json`` and ``privacy.json`` both hold."""
_TOLERANCE, _SMALL = 0.05, 0.005
"""Relative, and absolute: accountants that are all valid differ by less, an edited ledger by more."""
_BOUND = (
    "an upper bound"  # the beginning of a reason why the statement's number is no more than that
)
_MOST_AUDITS = 50
_LARGEST_PICTURE = 1 << 19  # bytes


@dataclass(frozen=True)
class StoredAudit:
    """What one audit found, and its picture if there is one."""

    name: str
    facts: dict[str, Any]
    picture: bytes | None


class StoredRun(CheckedFolder):
    """A run folder as its reader finds it. Each file is read once, when it is first asked for.

    A file that cannot be read raises ConfigError; one that is not as the run wrote it is used, and a notice
    of the command says so. A file that the run has not written yet is empty.
    A reader that is ``tolerant`` takes what cannot be read for empty, too, and looks at ``damage``.
    """

    # ---- what the run is

    @cached_property
    def configuration(self) -> DictConfig:
        """The run's own configuration, without its trackers."""
        return self._read(self.files.config, saved_config, {}, optional=False)

    @cached_property
    def values(self) -> dict[str, object]:
        """The values of the configuration by their dotted keys, in a tenth of the time."""
        return self._read(self.files.config, saved_values, {}, optional=False)

    @cached_property
    def identity(self) -> dict[str, object]:
        """The values that can change a result."""
        return configuration.identity_of_values(self.values)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, machine and command of the run."""
        return self._read(self.files.environment, saved_json, {})

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of the packages that the run was made with."""
        versions = self.environment.get("versions")
        return versions if isinstance(versions, dict) else {}

    @cached_property
    def overrides(self) -> list[str] | None:
        """The overrides that the run was begun with; None where they are withheld or not known."""
        path, overrides = self.files.environment, self.environment.get("overrides")
        if overrides is None or (
            isinstance(overrides, list) and all(isinstance(one, str) for one in overrides)
        ):
            return overrides
        return self._refuse(
            path, f"{path} cannot be read: its overrides are not a list of texts", None
        )

    # ---- how it ended

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The results of a run that has ended; empty before."""
        summary, problem = self._summary
        if problem:
            return self._refuse(self.files.summary, problem, {})
        return summary

    @property
    def finished(self) -> bool:
        """Return whether there is nothing left to run."""
        return self.summary.get("stop_reason") in FINISHED

    @cached_property
    def statement(self) -> dict[str, Any]:
        """The facts of the privacy statement (``privacy.json``)."""
        path = self.files.privacy_json
        facts = self._read(path, saved_json, {})
        summary, _ = self._summary
        for key in _STATED_TWICE:
            if key in summary and key in facts and not _equal(summary[key], facts[key]):
                if not {path, self.files.summary} & self.damage.keys():  # else it is said already
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
        """The participants of evaluated rounds (``clients.csv``)."""
        return self._columns(self.files.clients)

    def _columns(self, path: Path) -> Columns:
        from fedpriv.store.numbers import Columns, read_columns

        def read(path: Path) -> Columns:
            columns = read_columns(path)
            if "round" not in columns:
                raise ConfigError(f"{path} cannot be read: it is no table of rounds")
            return columns

        return self._read(path, read, Columns(), optional=self._tolerant)

    def last_value(self, column: str) -> float | None:
        """Return what ``metrics.csv`` has last in a column, be it nan; None where all its cells are empty."""

        def read(path: Path) -> float | None:
            try:
                names, *rows = saved_rows(path)
                cells = [
                    cell for row in rows if column in names and (cell := row[names.index(column)])
                ]
                return float(cells[-1]) if cells else None
            except (ValueError, IndexError):
                raise ConfigError(f"{path} cannot be read: it is not a table of numbers") from None

        return self._read(self.files.metrics, read, None)

    @cached_property
    def last_round(self) -> dict[str, float]:
        """The results in the last whole row of ``metrics.csv``, and the accuracy evaluated last, without
        reading all of it.

        An epsilon that the last row does not have stays unknown: an earlier one is less than was spent.
        """
        return self._read(self.files.metrics, last_round, {})

    def participants(self, client_count: int) -> list[int] | None:
        """Return the clients that took part in any round, ascending; None where the run did not write it."""

        def read(path: Path) -> list[int]:
            try:
                names, *rows = saved_rows(path)
                cells = {row[names.index("clients")] for row in rows}
                clients = sorted({client for text in cells for client in parse_ranges(text)})
                if clients and not 0 <= clients[0] <= clients[-1] < client_count:
                    raise ValueError
            except (ValueError, IndexError):
                reason = "it is no list of this run's clients"
                raise ConfigError(f"{path} cannot be read: {reason}") from None
            return clients

        return self._read(self.files.participation, read, None) or None

    # ---- what it released

    def compare_ledger(self, epsilon: float, tightest: bool) -> None:
        """Enter where the ledger has another epsilon than the statement's sound one.

        Args:
            epsilon: Of the ledger, at the run's delta; noise must not have adapted.
            tightest: Whether ``epsilon`` is by the tightest accountant; another may have a larger one.
        """
        stated, reasons = self.statement.get("epsilon_sound"), self.statement.get("reasons")
        if isinstance(stated, bool) or not isinstance(stated, int | float):
            return
        reason = str(reasons.get("epsilon_sound")) if isinstance(reasons, dict) else ""
        margin = _TOLERANCE * stated + _SMALL
        less = epsilon < stated - margin and not reason.startswith(_BOUND)
        if less or (tightest and epsilon > stated + margin):
            self._enter(
                self.files.ledger,
                f"{self.files.ledger} has epsilon {epsilon:.4f} at delta {self.statement.get('delta')}, "
                f"{self.files.privacy_json.name} states {stated:.4f}: one of them is damaged or was edited",
            )

    def ledger(self, view: str) -> StoredLedger:
        """Return what the clients released, in the view ``sound`` or ``published``. Raises ConfigError."""
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
        """The ledger as text, the names of its columns first."""
        return self._read(self.files.ledger, saved_rows, [])

    @cached_property
    def canaries(self) -> CanaryFile | None:
        """What observers of the run saw of its canaries; None where it has none."""
        from fedpriv.store.canary_file import read_canaries

        return self._read(self.files.canaries, read_canaries, None)

    def model(self, device: str | torch.device) -> dict[str, object]:
        """Return the last weights by name."""

        def weights(path: Path) -> dict[str, object]:
            return cast("dict[str, object]", saved_tensors(path, device))

        return self._read(self.files.model, weights, {}, optional=False)

    @cached_property
    def audits(self) -> list[StoredAudit]:
        """What audits of the run found."""
        if not self.files.audit.is_dir():
            return []
        paths = sorted(set(self.files.audit.glob("*.json")) - {self.files.canaries})[:_MOST_AUDITS]
        found = [(path, self._read(path, saved_json, None)) for path in paths]
        return [
            StoredAudit(path.stem, facts, saved_picture(path.with_suffix(".png"), _LARGEST_PICTURE))
            for path, facts in found
            if facts is not None
        ]

    @cached_property
    def trackers(self) -> dict[str, dict[str, str]]:
        """What the trackers of the run left in its folder: texts by tracker and name."""
        return {
            tracker: {key: value for key, value in facts.items() if isinstance(value, str)}
            for tracker, facts in self._read(self.files.trackers, saved_json, {}).items()
            if isinstance(facts, dict)
        }


def add_to_summary(folder: RunFolder, results: Mapping[str, object]) -> None:
    """Add results to the ``summary.json`` of a run that has ended, and the digests of what was written since.

    A summary that is damaged, or of an older version, stays without a digest that fits.
    """
    run = StoredRun(folder)
    summary = {key: value for key, value in run.summary.items() if key != KEY} | dict(results)
    if run.files.summary in run.damage:
        text = json_text({**summary, KEY: run.summary[KEY]})
    elif KEY in run.summary:
        text = sealed(summary, run.stated | folder.digests.written)[1]
    else:
        text = json_text(summary)
    write_text(folder.summary, text)


def _equal(one: object, other: object) -> bool:
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (one, other))
    return math.isclose(one, other, rel_tol=1e-9) if numbers else one == other  # type: ignore[arg-type]
