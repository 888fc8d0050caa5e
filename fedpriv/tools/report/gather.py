"""What a report says of a run, read from its folder, which may be damaged or somebody else's.

A file that is absent is passed over, one that cannot be read is a note on the page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpriv.common.errors import ConfigError
from fedpriv.common.notices import notice
from fedpriv.store.folder import RunFolder
from fedpriv.store.numbers import Columns
from fedpriv.store.searches import is_search
from fedpriv.store.stored_run import StoredAudit, StoredRun

SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")
MOST_RUNS = 20_000


@dataclass
class ReportedRun:
    """What a report says of a run. Its files may be damaged or absent: then their parts are empty.

    Attributes:
        stored: The run folder.
        metrics: Without rows for a run that has not begun, or where curves are left out.
        ledger: The rows of ledger.csv, the first their names; without details empty, as are audits and the
            statement (privacy.txt).
        notes: What is damaged, a sentence each.
    """

    stored: StoredRun
    metrics: Columns = field(default_factory=Columns)
    ledger: list[list[str]] = field(default_factory=list)
    audits: list[StoredAudit] = field(default_factory=list)
    statement: str = ""
    notes: list[str] = field(default_factory=list)

    @cached_property
    def settings(self) -> dict[str, object]:
        """The values that can change a result."""
        return self.stored.identity

    @cached_property
    def runtime(self) -> dict[str, object]:
        """The values that can change no result."""
        return {key: v for key, v in self.stored.values.items() if key.startswith("runtime.")}

    @property
    def folder(self) -> RunFolder:
        return self.stored.files

    @property
    def summary(self) -> dict[str, Any]:
        return self.stored.summary

    @property
    def privacy(self) -> dict[str, Any]:
        """The facts of the statement."""
        return self.stored.statement

    @property
    def environment(self) -> dict[str, Any]:
        return self.stored.environment

    @property
    def overrides(self) -> list[str] | None:
        return self.stored.overrides

    @property
    def name(self) -> str:
        """The folder's name; of a job of a sweep, which is called by its number, the sweep's as well."""
        path = self.folder.path.absolute()
        return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name

    @property
    def seed(self) -> object:
        return self.settings.get("seed", self.summary.get("seed"))

    @property
    def resumable(self) -> bool:
        """Return whether there is something left to run."""
        folder = self.folder
        stored = folder.checkpoint.is_file() and folder.environment.is_file()
        return stored and self.summary.get("stop_reason") in (None, "interrupted")

    def end(self, column: str) -> float | None:
        """Return a number of summary.json, or the last one of metrics.csv."""
        found = as_number(self.summary.get(column))
        if found is None and not self.summary and self.metrics.has(column):
            found = float(self.metrics.known(column)[column][-1])
        return found

    def reason(self, name: str) -> str:
        """Return why an ε is what it is; empty where the statement does not say."""
        reasons = self.privacy.get("reasons")
        found = reasons.get(name) if isinstance(reasons, dict) else None
        return found.rstrip(".") if isinstance(found, str) else ""

    @property
    def rounds(self) -> float | None:
        return as_number(self.summary.get("rounds")) or self.end("round")


def as_number(value: object) -> float | None:
    """The number that a JSON value is, perhaps infinite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return None if math.isnan(found) else found


def is_run(path: Path) -> bool:
    folder = RunFolder(path)
    return any(os.path.lexists(p) for p in (folder.config, folder.metrics, folder.summary))


def is_figure(path: Path) -> bool:
    return os.path.lexists(path / "comparison.md")


def find(given: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The run folders and the figure folders among those given, and in them. Raises ConfigError."""
    runs: dict[Path, None] = {}
    figures: dict[Path, None] = {}
    for one in given:
        path = Path(one)
        if not path.is_dir():
            raise ConfigError(f"fedpriv report: there is no folder {one}")
        itself = is_run(path) or is_figure(path)
        inside = [path] if itself else sorted(_folders(path), key=_in_order)
        found = [p for p in inside if is_run(p) or is_figure(p)]
        if not found and not is_search(path):
            raise ConfigError(
                f"{one}: no run (a folder with config.yaml) and no figure (one with comparison.md) is there "
                "or in it"
            )
        figures.update(dict.fromkeys(p for p in found if is_figure(p)))
        runs.update(dict.fromkeys(p for p in found if not is_figure(p)))
    if len(runs) > MOST_RUNS:
        raise ConfigError("fedpriv report", len(runs), f"at most {MOST_RUNS} runs")
    return list(runs), list(figures)


def _folders(path: Path) -> Iterator[Path]:
    """The folders in it; not those that links lead to, which may be anywhere."""
    try:
        yield from (p for p in path.iterdir() if p.is_dir() and not p.is_symlink())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def _in_order(path: Path) -> tuple[int, int | str]:
    """Jobs of a sweep by their number, others by their names."""
    digits = path.name.isascii() and path.name.isdigit()
    return (0, int(path.name[:9])) if digits else (1, path.name)


def read_run(path: Path, in_full: bool = True, curves: bool = True) -> ReportedRun:
    """Read a run. Of one among very many, ``in_full=False`` leaves out statement, ledger and audits, and
    ``curves=False`` the metrics, unless they alone tell where the run is."""
    stored = StoredRun(path, tolerant=True)
    run = ReportedRun(stored)
    _ = stored.values, stored.statement, stored.overrides  # their damage is a note on the page
    if curves or not run.summary:
        run.metrics = stored.metrics
    if in_full:
        _compare_ledger(stored)
        run.statement, run.ledger, run.audits = (
            stored.statement_text,
            stored.ledger_rows,
            stored.audits,
        )
    run.notes += filter(None, [*stored.damage.values(), stored.lost])
    for note in run.notes:
        notice(f"warning: {note}")
    return run


def _compare_ledger(stored: StoredRun) -> None:
    """Enter where the ledger has another epsilon than the statement: for files that no digest vouches for."""
    from fedpriv.tools.accounting.account import compare_ledger

    paths = (stored.files.ledger, stored.files.privacy_json)
    if not stored.statement.get("private") or not all(map(os.path.lexists, paths)):
        return
    if stored.vouches_for(*paths):
        return
    with suppress(ConfigError):  # it is entered
        compare_ledger(stored)
