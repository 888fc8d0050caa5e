"""Reader of stored runs for the report. Their folders may be damaged or untrusted.

An absent file is passed over. A file that cannot be read becomes a note on the page.
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
    """A stored run as a report shows it. Damaged or absent files read as empty.

    Args:
        path: Folder of the run.
    """

    def __init__(self, path: str | Path):
        super().__init__(path, tolerant=True)

    @property
    def runtime(self) -> dict[str, object]:
        """Values of the configuration that cannot change a result."""
        return {key: v for key, v in self.values.items() if key.startswith("runtime.")}

    @property
    def notes(self) -> list[str]:
        """Sentences about damaged files."""
        return [*self.damage.values(), *filter(None, [self.lost])]

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
        if value is None and not self.summary and self.metrics.has(column):
            value = float(self.metrics.known(column)[column][-1])
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


def read_run(path: Path, in_full: bool = True, curves: bool = True) -> ReportedRun:
    """Read the files of a run that the report shows, so that all damage is known before the page is made.

    Damage raises nothing. It is in ``notes`` of the result, and each sentence is shown as a warning.

    Args:
        path: Folder of the run.
        in_full: False to leave out statement text, ledger and audits, for a run among very many.
        curves: False to leave out the metrics, unless the run has no summary.
    """
    run = ReportedRun(path)
    # Each of these is read when it is first asked for, and then kept.
    _ = run.values, run.statement, run.overrides
    if curves or not run.summary:
        _ = run.metrics
    if in_full:
        # Without a digest, the ledger is counted again: it may have another ε than the statement.
        paths = (run.files.ledger, run.files.privacy_json)
        complete = run.statement.get("private") and all(map(os.path.lexists, paths))
        if complete and not run.vouches_for(*paths):
            from fedpriv.tools.accounting.account import compare_ledger

            # The error is suppressed: the difference is already entered in the run's damage.
            with suppress(ConfigError):
                compare_ledger(run)
        _ = run.statement_text, run.ledger_rows, run.audits
    for note in run.notes:
        notice(f"warning: {note}")
    return run
