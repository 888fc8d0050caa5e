"""Run folders below a folder, and what each of them says, however damaged or foreign it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import RUN_FILES
from fedpriv.common.groups import GROUPS, option_of_target
from fedpriv.store.agreement import stated_apart
from fedpriv.store.digests import KEY
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import LARGEST_SUMMARY, refuse_no_file, saved_json, saved_values
from fedpriv.store.searches import RECORD

DAMAGED, UNFINISHED = "damaged", "unfinished"
_INTERRUPTED = "interrupted"
_RESULTS = ("rounds", "epsilon", "epsilon_published", "epsilon_sound", "test_accuracy")
"""Results that share a name with a setting, or that metrics.csv has of a run without an end."""
_ROW, _TAIL = 1 << 14, 1 << 16  # bytes
_RUN, _SEARCH = "run", "search"
CONFIG, SUMMARY = "config.", "summary."
_SEEDS = {"seed", "noise_seed", "partition.seed", "model.seed"}
_NO_SETTING = ("runtime.", "protocol.", "resume", "dry_run", "dataset.path")
_TOLD = {"algorithm", "algorithm.name", "dataset"}  # by every table


@dataclass(frozen=True)
class StoredRun:
    """What a run folder says.

    Attributes:
        name: Its path below the folder that was asked for.
        state: The stop reason, ``unfinished`` without one, ``damaged`` where something cannot be read.
        problem: What cannot be read, in a sentence; empty if nothing.
        config: The configuration's values by dotted key, and the option of each group.
        summary: What ``summary.json`` holds.
    """

    name: str
    state: str
    problem: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    summary: Mapping[str, object] = field(default_factory=dict)

    def values(self) -> dict[str, object]:
        """Every key it can be asked for; where both files have a name, it is that of the result."""
        return {
            **self.config,
            **{f"{CONFIG}{key}": value for key, value in self.config.items()},
            **self.summary,
            **{f"{SUMMARY}{key}": value for key, value in self.summary.items()},
            "run": self.name,
            "state": self.state,
            "problem": self.problem,
        }

    def settings(self) -> dict[str, object]:
        """What may set it apart from other runs, without seeds, by the name it can be asked for."""
        return {
            f"{CONFIG}{key}" if key in self.summary else key: value
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
        raise ConfigError(f"fedpriv runs: there is no folder {given}")
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


def read_run(name: str, path: Path) -> StoredRun:
    """Read what the folder says, and what is damaged in it.

    The results of a run without an end are those of the last round in ``metrics.csv``.
    """
    folder, problems = RunFolder(path), []
    folder.digests.quiet = True
    config: dict[str, object] = {}
    summary: dict[str, object] = {}
    try:
        config = saved_values(folder.checked(folder.config))
        config = {**{g: option_of_target(g, config.get(f"{g}._target_")) for g in GROUPS}, **config}
    except ConfigError as error:
        problems.append(str(error))
    state = UNFINISHED
    if os.path.lexists(folder.summary):
        try:
            summary = saved_json(folder.checked(folder.summary), LARGEST_SUMMARY)
            if summary.pop(KEY, None) is None and os.path.lexists(folder.privacy_json):
                privacy = saved_json(folder.privacy_json, LARGEST_SUMMARY)
                problems += filter(None, [stated_apart(folder, summary, privacy)])
            reason = summary.get("stop_reason")
            state = reason if isinstance(reason, str) else DAMAGED
            if state == DAMAGED:
                problems.append(f"{folder.summary} cannot be read: it has no stop_reason")
        except ConfigError as error:
            state = DAMAGED
            problems.append(str(error))
    folder.digests.check_all()
    problems += folder.digests.problems
    if state == _INTERRUPTED and folder.digests.grown(folder.metrics.name):
        state, summary = UNFINISHED, {}  # it was resumed, and what it says is of before
    if config and not summary:
        same = {"algorithm": config["algorithm.name"], "dataset": config["dataset"]}
        summary = {**same, "seed": config.get("seed"), **dict.fromkeys(_RESULTS)}
        if state == UNFINISHED:
            try:
                summary |= _last_round(folder.metrics)
            except ConfigError as error:
                problems.append(str(error))
    problem = problems[0] if problems else ""
    return StoredRun(name, DAMAGED if problem else state, problem, config, summary)


def _last_round(path: Path) -> dict[str, object]:
    """Return the results of the last whole row of ``metrics.csv``, and the accuracy evaluated last.

    An epsilon that the last row does not have stays unknown: one of an earlier row is less than was spent.
    """
    if not os.path.lexists(path):
        return {}
    refuse_no_file(path)
    with open(path, "rb") as file:
        header = file.readline(_ROW).decode(errors="replace").strip().split(",")
        file.seek(max(file.tell(), path.stat().st_size - _TAIL))
        lines = (
            file.read(_TAIL).decode(errors="replace").split("\n")[:-1]
        )  # what follows is half a row
    rows = [dict(zip(header, line.split(","), strict=False)) for line in lines]
    rows = [row for row in rows if len(row) == len(header)]
    results: dict[str, object] = {}
    evaluated = [row["test_accuracy"] for row in rows if row.get("test_accuracy")]
    try:
        for row in rows[-1:]:
            results = {key: float(row[key]) for key in _RESULTS if row.get(key)}
            results["rounds"] = int(row["round"])
        if evaluated:
            results["test_accuracy"] = float(evaluated[-1])
    except (KeyError, ValueError):
        raise ConfigError(f"{path} cannot be read: it is not a table of numbers") from None
    return results
