"""Run folders below a folder, and what each of them says in a list of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import RUN_FILES
from fedpriv.common.groups import GROUPS, option_of_target
from fedpriv.store.digests import KEY
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun

DAMAGED, UNFINISHED = "damaged", "unfinished"
_RESULTS = ("rounds", "epsilon", "epsilon_published", "epsilon_sound", "test_accuracy")
"""Results that share a name with a setting, or that metrics.csv has of a run without an end."""
_RUN, _SEARCH = "run", "search"
CONFIG, SUMMARY = "config.", "summary."
_SEEDS = {"seed", "noise_seed", "partition.seed", "model.seed"}
_NO_SETTING = ("runtime.", "protocol.", "resume", "dry_run", "dataset.path")
_TOLD = {"algorithm", "algorithm.name", "dataset"}  # by every table


class ListedRun:
    """A run among many: its state, and every key that it can be asked for.

    Attributes:
        name: Its path below the folder that was asked for.
        state: The stop reason, ``unfinished`` without one, ``damaged`` where a file is damaged.
        problem: The first damage, in a sentence; empty if there is none.
        config: The configuration's values by dotted key, and the option of each group.
        results: The summary; of a run without an end the last round in ``metrics.csv``.
    """

    def __init__(self, name: str, path: Path):
        run = StoredRun(path, tolerant=True)
        self.name, self.config = name, dict(run.values)
        self.results = {key: value for key, value in run.summary.items() if key != KEY}
        if self.config:
            options = {g: option_of_target(g, self.config.get(f"{g}._target_")) for g in GROUPS}
            self.config = options | self.config
        reason = self.results.get("stop_reason")
        self.state = reason if isinstance(reason, str) else UNFINISHED
        if not run.stated and self.results:
            _ = run.statement  # without digests the two are compared
        run.check_all()
        if run.went_on:
            self.state, self.results = UNFINISHED, {}  # the summary is of before
        if self.config and not self.results:
            same = {"algorithm": self.config["algorithm.name"], "dataset": self.config["dataset"]}
            self.results = {**same, "seed": self.config.get("seed"), **dict.fromkeys(_RESULTS)}
            if not os.path.lexists(run.files.summary) or run.went_on:
                self.results |= run.last_round
        self.problem = next(iter(run.damage.values()), "")
        self.state = DAMAGED if self.problem else self.state

    def values(self) -> dict[str, object]:
        """Return every key it can be asked for; where both files have a name, it is that of the result."""
        return {
            **self.config,
            **{f"{CONFIG}{key}": value for key, value in self.config.items()},
            **self.results,
            **{f"{SUMMARY}{key}": value for key, value in self.results.items()},
            "run": self.name,
            "state": self.state,
            "problem": self.problem,
        }

    def settings(self) -> dict[str, object]:
        """Return what may set it apart from other runs, without seeds, by the name it can be asked for."""
        return {
            f"{CONFIG}{key}" if key in self.results else key: value
            for key, value in self.config.items()
            if key not in _SEEDS | _TOLD
            and not key.endswith("_target_")
            and not key.startswith(_NO_SETTING)
        }


def run_folders(given: str) -> list[tuple[str, Path]]:
    """(name, path) of the run folders at or below ``given``; not those inside run folders.

    Raises ConfigError where there is no such folder or none of a run.
    """
    top = Path(given)
    if not top.is_dir():
        raise ConfigError(f"there is no folder {given}")
    found = [path for path, kind in _below(str(top)) if kind == _RUN]
    if not found and not search_folders(given):
        raise ConfigError(f"{given}: no run folder is there or below it")
    if found == [str(top)]:
        return [(top.resolve().name, top)]
    return [(os.path.relpath(path, top), Path(path)) for path in found]


def search_folders(given: str) -> list[Path]:
    """The folders of searches at or below ``given``."""
    return [Path(path) for path, kind in _below(str(given)) if kind == _SEARCH]


def _below(folder: str) -> Iterator[tuple[str, str]]:
    """(path, what is there) of the runs, and of the searches, which hold runs."""
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if len(RUN_FILES & names) > 1:
            yield here, _RUN
            continue
        if RECORD in names:
            yield here, _SEARCH
        folders += [
            entry.path
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
