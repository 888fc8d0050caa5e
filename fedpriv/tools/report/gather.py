"""What a report says of a run, read from its folder, which may be damaged or somebody else's.

A file that is absent is passed over, one that cannot be read is a note on the page.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.notices import notice
from fedpriv.store.folder import RunFolder
from fedpriv.store.searches import is_search
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools import run_choice

SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")
MOST_RUNS = 20_000


class ReportedRun(StoredRun):
    """A run as a report shows it. What is damaged or absent is empty."""

    def __init__(self, path: str | Path):
        super().__init__(path, tolerant=True)

    @property
    def runtime(self) -> dict[str, object]:
        """The values of the configuration that can change no result."""
        return {key: v for key, v in self.values.items() if key.startswith("runtime.")}

    @property
    def notes(self) -> list[str]:
        """What is damaged, a sentence each."""
        return [*self.damage.values(), *filter(None, [self.lost])]

    @property
    def name(self) -> str:
        """The folder's name; of a job of a sweep, which is called by its number, the sweep's as well."""
        path = self.path.absolute()
        return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name

    @property
    def seed(self) -> object:
        return self.identity.get("seed", self.summary.get("seed"))

    @property
    def resumable(self) -> bool:
        """Return whether there is something left to run."""
        stored = self.files.checkpoint.is_file() and self.files.environment.is_file()
        return stored and self.summary.get("stop_reason") in (None, "interrupted")

    def end(self, column: str) -> float | None:
        """Return a number of summary.json, or the last one of metrics.csv."""
        found = as_number(self.summary.get(column))
        if found is None and not self.summary and self.metrics.has(column):
            found = float(self.metrics.known(column)[column][-1])
        return found

    def reason(self, name: str) -> str:
        """Return why an ε is what it is; empty where the statement does not say."""
        reasons = self.statement.get("reasons")
        found = reasons.get(name) if isinstance(reasons, dict) else None
        return found.rstrip(".") if isinstance(found, str) else ""

    @property
    def rounds(self) -> float | None:
        return as_number(self.summary.get("rounds")) or self.end("round")


def as_number(value: object) -> float | None:
    """Return the number that a JSON value is, perhaps infinite; None for anything else, texts too."""
    return None if isinstance(value, str) else run_choice.as_number(value)


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
            raise ConfigError(f"there is no folder {one}")
        found = [path]
        if not (is_run(path) or is_figure(path)):
            try:  # not those that links lead to, which may be anywhere
                inside = [p for p in path.iterdir() if p.is_dir() and not p.is_symlink()]
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
            found = [p for p in sorted(inside, key=_in_order) if is_run(p) or is_figure(p)]
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


def _in_order(path: Path) -> tuple[int, int | str]:
    """Jobs of a sweep by their number, others by their names."""
    digits = path.name.isascii() and path.name.isdigit()
    return (0, int(path.name[:9])) if digits else (1, path.name)


def read_run(path: Path, in_full: bool = True, curves: bool = True) -> ReportedRun:
    """Read what the report shows of a run, so that all damage is known.

    Of a run among very many, ``in_full=False`` leaves out statement, ledger and audits, and ``curves=False``
    the metrics, unless they alone tell where the run is.
    """
    run = ReportedRun(path)
    _ = run.values, run.statement, run.overrides
    if curves or not run.summary:
        _ = run.metrics
    if in_full:
        _compare_ledger(run)
        _ = run.statement_text, run.ledger_rows, run.audits
    for note in run.notes:
        notice(f"warning: {note}")
    return run


def _compare_ledger(run: ReportedRun) -> None:
    """Enter where the ledger has another epsilon than the statement: for files that no digest vouches for."""
    from fedpriv.tools.accounting.account import compare_ledger

    paths = (run.files.ledger, run.files.privacy_json)
    if not run.statement.get("private") or not all(map(os.path.lexists, paths)):
        return
    if run.vouches_for(*paths):
        return
    with suppress(ConfigError):  # it is entered
        compare_ledger(run)
