"""What a report says of a run, read from its folder, which may be damaged or somebody else's.

A file that is absent is passed over, one that cannot be read is a note on the page.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.notices import notice
from fedpriv.store.agreement import stated_apart
from fedpriv.store.folder import RunFolder
from fedpriv.store.numbers import Columns, read_columns
from fedpriv.store.saved import LARGEST_CONFIG, LARGEST_TABLE, saved_json, saved_text, saved_values
from fedpriv.store.searches import is_search

SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")
MOST_RUNS = 20_000
_MOST_AUDITS = 50
_LARGEST_PICTURE = 1 << 19
Read = TypeVar("Read")


@dataclass(frozen=True)
class Audit:
    """What one audit found, and its picture if there is one."""

    name: str
    facts: dict[str, Any]
    picture: bytes | None


@dataclass
class ReportedRun:
    """A run as far as its folder tells.

    Attributes:
        settings: Key → value of what can change a result; ``runtime``: of what cannot.
        metrics: Without rows for a run that has not begun.
        ledger: The rows of ledger.csv, the first their names.
        notes: What could not be read, a sentence each.
    """

    folder: RunFolder
    settings: dict[str, object] = field(default_factory=dict)
    runtime: dict[str, object] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    statement: str = ""
    metrics: Columns = field(default_factory=Columns)
    ledger: list[list[str]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The folder's name; of a job of a sweep, which is called by its number, the sweep's as well."""
        path = self.folder.path.absolute()
        return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name

    @property
    def seed(self) -> object:
        return self.settings.get("seed", self.summary.get("seed"))

    @cached_property
    def overrides(self) -> list[str] | None:
        """What the run was begun with; None where that is not known."""
        found = self.environment.get("overrides")
        known = isinstance(found, list) and all(isinstance(one, str) for one in found)
        return found if known else None

    @property
    def resumable(self) -> bool:
        """Whether there is something left to run."""
        folder = self.folder
        stored = folder.checkpoint.is_file() and folder.environment.is_file()
        return stored and self.summary.get("stop_reason") in (None, "interrupted")

    def end(self, column: str) -> float | None:
        """A number of summary.json, or the last one of metrics.csv."""
        found = as_number(self.summary.get(column))
        if found is None and not self.summary and self.metrics.has(column):
            found = float(self.metrics.known(column)[column][-1])
        return found

    def reason(self, name: str) -> str:
        """Why an ε is what it is; empty where the statement does not say."""
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
    folder = RunFolder(path)
    run = ReportedRun(folder)
    config = _read(saved_values, folder.checked(folder.config), run.notes)
    if config is not None:
        run.settings = configuration.identity_of_values(config)
        run.runtime = {key: value for key, value in config.items() if key.startswith("runtime.")}
    run.summary = _read(saved_json, folder.checked(folder.summary), run.notes) or {}
    run.privacy = _read(saved_json, folder.checked(folder.privacy_json), run.notes) or {}
    run.environment = _read(saved_json, folder.checked(folder.environment), run.notes) or {}
    if curves or not run.summary:
        run.metrics = _read(read_columns, folder.checked(folder.metrics), run.notes) or Columns()
    if "round" not in run.metrics:
        run.metrics = Columns()
    if in_full:
        run.statement = _read(_text, folder.checked(folder.privacy_text), run.notes) or ""
        run.ledger = _read(read_rows, folder.checked(folder.ledger), run.notes) or []
        run.audits = list(_audits(folder, run.notes))
        if not folder.digests.vouches_for(folder.ledger.name, folder.privacy_json.name):
            _compare_ledger(run)
    run.notes += filter(None, [*folder.digests.problems, folder.digests.unknown])
    if apart := stated_apart(folder, run.summary, run.privacy):
        run.notes.append(apart)
        notice(f"warning: {apart}")
    return run


def _text(path: Path) -> str:
    return saved_text(path, LARGEST_CONFIG)


def _read(read: Callable[[Path], Read], path: Path, notes: list[str]) -> Read | None:
    if not os.path.lexists(path):
        return None
    try:
        return read(path)
    except ConfigError as error:
        notes.append(str(error))
        notice(f"warning: {error}")
        return None


def _compare_ledger(run: ReportedRun) -> None:
    """Note where the ledger has another epsilon than the statement: for files that no digest vouches for."""
    from fedpriv.tools.accounting.account import ledger_against_statement

    if not run.ledger or not run.privacy.get("private"):
        return
    try:
        apart = ledger_against_statement(run.folder, run.privacy)
    except FedprivError as error:
        apart = str(error)
    if apart:
        run.notes.append(apart)
        notice(f"warning: {apart}")


def read_rows(path: Path) -> list[list[str]]:
    """A CSV as texts, the names first. Raises ConfigError."""
    text = saved_text(path, LARGEST_TABLE)
    try:
        return [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error:
        raise ConfigError(f"{path} cannot be read: it is not a table") from None


def _audits(folder: RunFolder, notes: list[str]) -> Iterator[Audit]:
    if not folder.audit.is_dir():
        return
    for path in sorted(set(folder.audit.glob("*.json")) - {folder.canaries})[:_MOST_AUDITS]:
        facts = _read(saved_json, folder.checked(path), notes)
        if facts is not None:
            yield Audit(path.stem, facts, picture_of(path.with_suffix(".png"), _LARGEST_PICTURE))


def picture_of(path: Path, largest: int) -> bytes | None:
    """A PNG of at most so many bytes, if there is one."""
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > largest:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if content.startswith(b"\x89PNG\r\n\x1a\n") else None
