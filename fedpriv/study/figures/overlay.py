"""``fedpriv plot``: any runs in one picture, any column of metrics.csv against any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, did_you_mean, show
from fedpriv.common.words import counted, in_short
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.plot_files import axis_label, hidden_words, write_plot
from fedpriv.study.figures.series import band
from fedpriv.tools.report.labels import settings_labels

_NOT_IN_LABELS = ("resume", "dry_run")
_NOT_FINISHED = "not finished, drawn as far as they are: "


@dataclass(frozen=True, eq=False)
class _Run:
    """A stored run, and its rows of x and y where both are finite."""

    stored: StoredRun
    points: pd.DataFrame


def run(options: SimpleNamespace) -> int:
    """Draw the runs, and return the exit status.

    The drawn values are written as CSV beside the picture. Runs without finite values are left out and named;
    unfinished ones are drawn as far as they are.

    Args:
        options: Flags of the command.

    Raises:
        ConfigError: A folder has no runs, or a column does not exist.
        WriteError: A file cannot be written.
    """
    stored_runs = [stored for folder in options.folders for stored in find_runs(folder)]
    runs = [_Run(stored, _points(stored.metrics, options.x, options.y)) for stored in stored_runs]
    if not any(len(stored.metrics) for stored in stored_runs):
        raise ConfigError(f"{stored_runs[0].path} has no round yet")
    runs = _with_columns(runs, options.x, options.y)
    lines = _lines(runs, options.each, options.band)
    unfinished = [run.stored.path.name for run in runs if not run.stored.finished]
    warnings = [f"{_NOT_FINISHED.capitalize()}{in_short(unfinished)}."] if unfinished else []
    warnings += hidden_words(run.stored for run in runs)
    write_plot(
        options, lines, axis_label(options.x), f"{counted(len(runs), 'run')}, {counted(len(lines), 'line')}",
        f"{axis_label(options.y).capitalize()} against {axis_label(options.x)}.", warnings=warnings,
    )  # fmt: skip
    if unfinished:
        console().print(f"{_NOT_FINISHED}{', '.join(unfinished)}")
    return 0


def find_runs(given: str) -> list[StoredRun]:
    """Return the folder itself if it is a run, else the runs in the folder.

    Raises:
        ConfigError: There is no such folder, no run in it, or a run cannot be read.
    """
    path = Path(given)
    if not path.is_dir():
        raise ConfigError(f"there is no folder {given}")
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    runs = [run for run in map(StoredRun, folders) if run.files.metrics.exists()]
    if not runs:
        raise ConfigError(f"{given}: no run folder (one with metrics.csv) is there or in it")
    for run in runs:
        _ = run.identity, run.overrides  # read both, so that a run that cannot be read is refused
    return runs


def override_settings(run: StoredRun) -> dict[str, str] | None:
    """Return the overrides of a run that can change its result, or None for a run begun from Python.

    Raises:
        ConfigError: The run cannot be read.
    """
    if run.overrides is None:
        return None
    pairs = (o.partition("=")[::2] for o in run.overrides)
    return {k: v for k, v in pairs if k not in _NOT_IN_LABELS and not k.startswith("runtime.")}


def _with_columns(runs: Sequence[_Run], x: str, y: str) -> list[_Run]:
    """Return the runs that have finite values of both columns, and print the names of the others.

    Raises:
        ConfigError: A column does not exist, or no run has finite values of both.
    """
    known = dict.fromkeys(column for run in runs for column in run.stored.metrics)
    for flag, column in (("--x", x), ("--y", y)):
        if column not in known:
            hint = did_you_mean(column, known)
            raise ConfigError(flag, column, f"one of the columns {', '.join(known)}", hint)
    drawable = [run for run in runs if len(run.points)]
    if not drawable:
        raise ConfigError(f"no run has finite values of both {x} and {y}")
    if len(drawable) < len(runs):
        names = [run.stored.path.name for run in runs if run not in drawable]
        console().print(f"left out, no finite {x} or {y}: {', '.join(names)}")
    return drawable


def _lines(runs: Sequence[_Run], each: bool, kind: str) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each line."""
    groups: dict[str, list[_Run]] = {}
    for run, label in zip(runs, _labels(runs, each), strict=True):
        groups.setdefault(label, []).append(run)
    lines = {}
    for label, members in groups.items():
        points = {run.stored.path.name: run.points for run in members}
        if all((p["x"].diff().iloc[1:] > 0).all() for p in points.values()):
            lines[label] = band(list(points.values()), kind)
        else:  # where x goes back and forth, there is no mean over seeds
            several = len(points) > 1
            for name, p in points.items():
                lines[f"{label} ({name})" if several else label] = band([p])
    return {label: line for label, line in lines.items() if len(line)}


def _points(metrics: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    if not {x, y} <= set(metrics):
        return pd.DataFrame({"x": [], "y": []})
    finite = np.isfinite(metrics[x]) & np.isfinite(metrics[y])
    return pd.DataFrame({"x": metrics[x][finite] * scale(x), "y": metrics[y][finite] * scale(y)})


def scale(column: str) -> float:
    """Return the factor from a column's values to the units shown."""
    return COLUMNS[column].scale if column in COLUMNS else 1.0


def _labels(runs: Sequence[_Run], each: bool) -> list[str]:
    """Return a label for each run: the settings that set it apart, as overrides if these are known."""
    overrides = [override_settings(run.stored) for run in runs]
    settings = [known for known in overrides if known is not None]
    if len(settings) < len(runs):
        identities = [run.stored.identity for run in runs]
        settings = [{k: show(v) for k, v in i.items() if v is not None} for i in identities]
    labels = []
    for run, differences in zip(runs, settings_labels(settings), strict=True):
        name = run.stored.path.name
        label = differences or ("all" if len(runs) > 1 and not each else name)
        labels.append(f"{label} ({name})" if each and differences else label)
    return labels
