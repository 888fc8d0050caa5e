"""``fedpriv runs diff A B``: the keys in which two runs differ, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.groups import OPTION, TARGET
from fedpriv.common.words import round_up
from fedpriv.store.run_folders import ListedRun
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table

_RESULTS = (
    "state", "rounds", "test_accuracy", "test_loss", "backdoor_accuracy", "epsilon",
    "epsilon_published", "epsilon_sound", "delta",
)  # fmt: skip
_NOT_COMPARED = ("protocol.", "runtime.run_dir", "algorithm.name")  # stated by other keys already
_ABSENT = "–"


def show_difference(first: str, second: str) -> None:
    """Print the keys of the configuration that differ between two runs, and their results.

    Args:
        first: A run folder.
        second: Another run folder.

    Raises:
        ConfigError: One of the folders is no run, or its configuration cannot be read.
    """
    runs = [_read(folder) for folder in (first, second)]
    stored = [StoredRun(Path(folder)) for folder in (first, second)]
    configs = [run.config for run in runs]
    out = console()
    columns = (Column("key", style="cyan"), Column("first", first), Column("second", second))
    table = Table("", columns)
    for key in differing_keys(*configs):
        table.add(key, *(_cell(config, key) for config in configs))
    if table.rows:
        out.print(table)
    else:
        out.print("the configurations are the same")
    versions = [run.versions for run in stored]
    ends = Table("Results and versions", columns)
    for key in _RESULTS:
        values = [run.state if key == "state" else run.results.get(key) for run in runs]
        if any(value is not None for value in values):
            ends.add(key, *(_result(key, value) for value in values))
    for name in dict.fromkeys(name for own in versions for name in own):
        if versions[0].get(name) != versions[1].get(name):
            ends.add(name, *(_cell(own, name) for own in versions))
    out.print(ends)


def differing_keys(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Return the keys whose values differ, those of the first configuration first.

    The class of a part is left out beside the name of its option.
    """
    keys = dict.fromkeys([*first, *second])
    return [
        key
        for key in keys
        if _cell(first, key) != _cell(second, key)
        and not key.startswith(_NOT_COMPARED)
        and not key.endswith((TARGET, OPTION))
    ]


def _result(key: str, value: object) -> str:
    if isinstance(value, float):
        return round_up(value) if key.startswith("epsilon") else f"{value:.4g}"
    return _ABSENT if value is None else show(value)


def _cell(values: Mapping[str, object], key: str) -> str:
    return show(values[key]) if key in values else _ABSENT


def _read(folder: str) -> ListedRun:
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    run = ListedRun(folder, path)
    if not run.config:
        problem = f": {run.problem}" if run.problem else ""
        raise ConfigError(f"{folder} is no run folder (one with config.yaml){problem}")
    return run
