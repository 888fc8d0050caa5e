"""Reader of stored runs for the report. An absent file is passed over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedpriv.common.errors import ConfigError
from fedpriv.common.notices import notice
from fedpriv.store.folder import RunFolder
from fedpriv.store.searches import is_search
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools import run_choice

SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")
MOST_RUNS = 20_000


class ReportedRun(StoredRun):
    """A stored run as a report shows it."""

    @property
    def metrics(self) -> pd.DataFrame:  # cached there
        """The rounds; none without ``metrics.csv``, as of the best trial of a search by random stopping."""
        return super().metrics if self.files.metrics.exists() else pd.DataFrame()

    @property
    def runtime(self) -> dict[str, object]:
        """Values of the configuration that cannot change a result."""
        return {key: v for key, v in self.values.items() if key.startswith("runtime.")}

    @property
    def name(self) -> str:
        """Name of the folder; for a job of a sweep, whose folder is a number, with the sweep's name."""
        path = self.path.absolute()
        return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name

    @property
    def seed(self) -> object:
        """Seed of the run, or None where it is not known."""
        return self.identity.get("seed", self.summary.get("seed"))

    @property
    def resumable(self) -> bool:
        """True where a checkpoint allows the run to go on, and the run has not ended."""
        stored = self.files.checkpoint.is_file() and self.files.environment.is_file()
        return stored and self.summary.get("stop_reason") in (None, "interrupted")

    def end(self, column: str) -> float | None:
        """Return a number of summary.json; for a run without a summary the last value in metrics.csv."""
        value = as_number(self.summary.get(column))
        # Only for a run that goes on: of a finished one, an entry that its summary withholds stays withheld.
        if value is None and not self.summary and column in self.metrics:
            value = as_number(next(iter(self.metrics[column].dropna()[::-1]), None))
        return value

    def reason(self, name: str) -> str:
        """Return the statement's reason for the value of an ε, empty where there is none."""
        reasons = self.statement.get("reasons")
        reason = reasons.get(name) if isinstance(reasons, dict) else None
        return reason.rstrip(".") if isinstance(reason, str) else ""

    @property
    def rounds(self) -> float | None:
        """Number of rounds run, or None where it is not known."""
        return as_number(self.summary.get("rounds")) or self.end("round")


def as_number(value: object) -> float | None:
    """Return a number in JSON, which may be infinite; None for anything else, a text included."""
    return None if isinstance(value, str) else run_choice.as_number(value)


def is_run(path: Path) -> bool:
    """Return whether the folder holds a file of a run."""
    folder = RunFolder(path)
    return any(os.path.lexists(p) for p in (folder.config, folder.metrics, folder.summary))


def is_figure(path: Path) -> bool:
    """Return whether the folder is that of a figure: it holds ``comparison.md``."""
    return os.path.lexists(path / "comparison.md")


def find(given: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Find runs and figures among the folders given, and directly in these folders.

    A folder that is itself a run or a figure is not looked into. Each folder counts once. A search may have
    no run yet.

    Args:
        given: Folders as the user typed them; of a figure below ``outputs/figures`` its name is enough.

    Returns:
        The run folders and the figure folders.

    Raises:
        ConfigError: A folder does not exist, or holds neither run nor figure, or there are too many runs.
    """
    runs: dict[Path, None] = {}
    figures: dict[Path, None] = {}
    for folder in given:
        path = Path(folder)
        if not path.is_dir() and (figure := Path("outputs", "figures", folder)).is_dir():
            path = figure
        if not path.is_dir():
            raise ConfigError(f"there is no folder {folder}")
        paths = [path]
        if not (is_run(path) or is_figure(path)):
            try:
                # Links are not followed, since they may lead anywhere.
                inside = [p for p in path.iterdir() if p.is_dir() and not p.is_symlink()]
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
            paths = [p for p in sorted(inside, key=_in_order) if is_run(p) or is_figure(p)]
        # A search whose first trial has not ended has a statement of its own, but no run yet.
        if not paths and not is_search(path):
            raise ConfigError(
                f"{folder}: no run (a folder with config.yaml) and no figure (one with comparison.md) is "
                "there or in it"
            )
        figures.update(dict.fromkeys(p for p in paths if is_figure(p)))
        runs.update(dict.fromkeys(p for p in paths if not is_figure(p)))
    if len(runs) > MOST_RUNS:
        raise ConfigError("fedpriv report", len(runs), f"at most {MOST_RUNS} runs")
    return list(runs), list(figures)


def _in_order(path: Path) -> tuple[int, int | str]:
    """Return the key that sorts jobs of a sweep by number, and other folders by name."""
    digits = path.name.isascii() and path.name.isdigit()
    return (0, int(path.name[:9])) if digits else (1, path.name)


def read_runs(paths: Sequence[Path], in_full: int, curves: int) -> list[ReportedRun]:
    """Read the files of runs that the report shows. A run that cannot be read is left out, with a warning.

    Args:
        paths: Folders of the runs.
        in_full: Number of runs with statement text, ledger and audits.
        curves: Number of runs whose metrics are read; of others only without a summary.

    Raises:
        ConfigError: No run can be read.
    """
    runs, errors = [], dict[Path, ConfigError]()
    for index, path in enumerate(paths):
        run = ReportedRun(path)
        try:
            # Each of these is read when it is first asked for, and then kept.
            _ = run.values, run.summary, run.statement, run.overrides
            if index < curves or not run.summary:
                _ = run.metrics
            if index < in_full:
                _ = run.statement_text, run.ledger_rows, run.audits
        except ConfigError as error:
            errors[path] = error
        else:
            runs.append(run)
    if paths and not runs:
        raise errors[paths[0]]
    for path, reason in errors.items():
        notice(f"warning: {path} is left out: {reason}")
    return runs
