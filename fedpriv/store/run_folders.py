"""Search for run folders, and the row that each run has in a list of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fedpriv.common.errors import ConfigError, did_you_mean
from fedpriv.common.files import RUN_FILES
from fedpriv.common.groups import GROUPS, OPTION, TARGET, option_name
from fedpriv.store.saved import saved_records
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun

DAMAGED, UNFINISHED = "damaged", "unfinished"
_RESULTS = ("rounds", "epsilon", "epsilon_published", "epsilon_sound", "test_accuracy")
"""Results that share a name with a setting, or that metrics.csv holds before a run has ended."""
_RUN, _SEARCH = "run", "search"
CONFIG, SUMMARY = "config.", "summary."
_SEEDS = {"seed", "noise_seed", "partition.seed", "model.seed"}
_NO_SETTING = ("runtime.", "protocol.", "resume", "dry_run", "dataset.path")
_IN_EVERY_TABLE = {"algorithm", "algorithm.name", "dataset"}


class ListedRun:
    """One run in a list of runs: its state, and a value for every key that a user can ask for.

    A run with a file that cannot be read raises nothing; it is listed as damaged.

    Args:
        name: Path of the run below the folder that the user gave.
        path: The run folder.

    Attributes:
        name: Path of the run below the folder that the user gave.
        path: The run folder.
        state: The stop reason, with a mark if the run diverged; ``unfinished`` without one, ``damaged``
            where a file cannot be read.
        problem: The reason why a file cannot be read, in a sentence; else empty.
        config: Values of the configuration by dotted key, and the chosen option of each group.
        results: The summary; for a run that has not ended, the last round in ``metrics.csv``.
    """

    def __init__(self, name: str, path: Path):
        run = StoredRun(path)
        self.name, self.path, self.state, self.problem = name, path, UNFINISHED, ""
        self.config: dict[str, object] = {}
        self.results: dict[str, object] = {}
        try:
            values = run.values
            options = {g: option_name(values, g) for g in GROUPS}
            self.config = options | dict(values)
            # A key that names a result too is no result before the end.
            same = {"algorithm": values["algorithm.name"], "dataset": self.config["dataset"]}
            self.results = {**same, "seed": values.get("seed"), **dict.fromkeys(_RESULTS)}
            reason = run.summary.get("stop_reason")
            so_far = run.last_round if reason in (None, "interrupted") else {}
            # The summary of an interrupted run that was resumed describes an earlier end.
            if reason is None or (so_far and so_far["rounds"] > run.summary.get("rounds", 0)):
                self.results |= so_far
            else:
                mark = ", diverging" if run.summary.get("diverging") else ""
                self.state, self.results = reason + mark, run.summary
        except ConfigError as error:
            self.state, self.problem = DAMAGED, str(error)

    def values(self) -> dict[str, object]:
        """Return the value of every key that a user can ask for.

        A name that configuration and summary share stands for the result. The prefixes ``config.`` and
        ``summary.`` choose between the two.
        """
        return {
            **self.config,
            **{f"{CONFIG}{key}": value for key, value in self.config.items()},
            **self.results,
            **{f"{SUMMARY}{key}": value for key, value in self.results.items()},
            "run": self.name,
            "state": self.state,
            "problem": self.problem,
        }

    def settings_by_name(self) -> dict[str, object]:
        """Return every result and setting once; a setting that shares its name with a result has a prefix."""
        settings = {
            f"{CONFIG}{key}" if key in self.results else key: value
            for key, value in self.config.items()
        }
        return {**self.results, **settings}

    def settings(self) -> dict[str, object]:
        """Return the settings that may distinguish this run from others, without seeds, by their key."""
        return {
            f"{CONFIG}{key}" if key in self.results else key: value
            for key, value in self.config.items()
            if key not in _SEEDS | _IN_EVERY_TABLE
            and not key.endswith((TARGET, OPTION))
            and not key.startswith(_NO_SETTING)
        }


def run_folders(given: str) -> list[tuple[str, Path]]:
    """Return the run folders at or below a folder, or those of the figure whose folder it is.

    Run folders inside run folders are not searched. Neither are hidden folders and links to folders.

    Args:
        given: The folder as the user typed it; of a figure below ``outputs/figures`` its name is enough.

    Returns:
        (path below ``given``, path) of each run, in the order of the names. For a folder that is itself a
        run, the former is its own name.

    Raises:
        ConfigError: There is no such folder, or it holds neither a run nor a search.
    """
    folder = _folder_of(given)
    if not folder.is_dir():
        figures = Path("outputs", "figures")
        names = [
            path.name for place in (Path(), figures) for path in place.glob("*") if path.is_dir()
        ]
        raise ConfigError(f"there is no folder {given}{did_you_mean(given, names, '; ')}")
    runs = runs_below(folder)
    if not runs and (folder / "runs.csv").is_file():
        runs = [(path.name, path) for path in runs_of_figure(folder)]
    if not runs and not search_folders(given):
        raise ConfigError(f"{given}: no run folder is there or below it")
    return runs


def _folder_of(given: str) -> Path:
    """Return a folder, or that of the figure with this name."""
    folder, figure = Path(given), Path("outputs", "figures", given)
    return figure if figure.is_dir() and not folder.is_dir() else folder


def figure_folder(given: str) -> Path | None:
    """Return the folder of a figure, given by its path or name; None for a folder that has runs itself."""
    folder = _folder_of(given)
    return folder if (folder / "runs.csv").is_file() and not runs_below(folder) else None


def runs_below(folder: Path) -> list[tuple[str, Path]]:
    """Return the same runs as :func:`run_folders`; an absent folder holds none."""
    paths = [path for path, kind in _below(str(folder)) if kind == _RUN]
    if paths == [str(folder)]:
        return [(folder.resolve().name, folder)]
    return [(os.path.relpath(path, folder), Path(path)) for path in paths]


def runs_of_figure(folder: Path) -> list[Path]:
    """Return the run folders that a figure's ``runs.csv`` names, each once; only those that exist.

    The paths are those of the folder where the figure was made, and hold there alone.
    """
    rows = saved_records(folder / "runs.csv")
    paths = dict.fromkeys(Path(row["run"]) for row in rows if row.get("run"))
    return [path for path in paths if path.is_dir()]


def search_folders(given: str) -> list[Path]:
    """Return the folders of hyper-parameter searches at or below a folder."""
    return [Path(path) for path, kind in _below(str(given)) if kind == _SEARCH]


def _below(folder: str) -> Iterator[tuple[str, str]]:
    """Yield (path, kind) of the runs and searches below a folder; the runs of a search are among them."""
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            entries = sorted(os.scandir(current), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        # One such name alone may be a file of the user's; two are a run, even a damaged one.
        if len(RUN_FILES & names) > 1:
            yield current, _RUN
            continue  # a run folder may hold copies of its files, which are no runs
        if RECORD in names:
            yield current, _SEARCH
        folders += [
            entry.path
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
