"""``fedpriv plot --points KEY``: values at the ends of runs, against a key of their configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, did_you_mean, show
from fedpriv.common.files import write_csv
from fedpriv.common.words import counted
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.plots import draw_panels
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.overlay import (
    find_runs,
    first_lines,
    override_settings,
    panel_of,
    scale,
)
from fedpriv.study.figures.series import spread
from fedpriv.tools.report.labels import settings_labels
from fedpriv.tools.run_choice import as_number

_LABELS = {"epsilon": "ε, privacy budget"}


def run(options: SimpleNamespace) -> int:
    """Draw the ends of the runs, and return the exit status.

    The drawn values are written as CSV beside the picture. Runs that are not finished, or lack a number, are
    left out and named.

    Args:
        options: Flags of the command: ``folders``, ``points``, ``y`` and ``out``.

    Raises:
        ConfigError: A folder has no runs, or a key does not exist.
    """
    key, y, out = options.points, options.y, options.out
    runs = [run for folder in options.folders for run in find_runs(folder)]
    runs = _with_both(runs, key, y)
    lines = _lines(runs, key, y)
    drawn = pd.concat(lines.values(), keys=lines.keys(), names=["label", None])
    write_csv(out.with_suffix(".csv"), drawn.reset_index(0))
    last = key.rpartition(".")[2]
    x_label = _LABELS.get(key) or (COLUMNS[last].label if last in COLUMNS else key)
    panel = panel_of(lines, x_label, y, x_from_zero=False, marker="o")
    single = all(line["n"].max() == 1 for line in lines.values())
    caption = "Ends of runs."
    if not single:
        caption = "Ends of runs: mean over seeds; bands: ± one standard deviation."
    caption = " ".join([caption, *first_lines(lines)])
    draw_panels([out], [[panel]], "", caption, creator="fedpriv plot")
    console().print(
        f"{counted(len(runs), 'run')}, {counted(len(lines), 'curve')}: {out} and {out.with_suffix('.csv')}"
    )
    return 0


def _with_both(runs: Sequence[StoredRun], key: str, y: str) -> list[StoredRun]:
    """Return the finished runs that have a number for both keys, and print the names of the others.

    Raises:
        ConfigError: A key does not exist or has other values than numbers, or no run has both numbers.
    """
    keys = dict.fromkeys(name for run in runs for name in run.values)
    results = dict.fromkeys(name for run in runs for name in run.summary)
    for flag, name, known, file in (
        ("--points", key, keys, "config.yaml"),
        ("--y", y, results, "summary.json"),
    ):
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(flag, name or "nothing", f"a key of {file}", hint)
    for run in runs:
        value = run.values.get(key)
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ConfigError("--points", key, f"a key whose values are numbers, not {show(value)}")
    drawable = [
        run for run in runs if run.finished and np.isfinite([_x(run, key), _end(run, y)]).all()
    ]
    if not drawable:
        raise ConfigError(f"no finished run has numbers for both {key} and {y}")
    if len(drawable) < len(runs):
        names = [run.path.name for run in runs if run not in drawable]
        console().print(f"left out, not finished or without a number: {', '.join(names)}")
    return drawable


def _x(run: StoredRun, key: str) -> float:
    number = as_number(run.values.get(key))
    return math.nan if number is None else float(number)


def _end(run: StoredRun, y: str) -> float:
    number = as_number(run.summary.get(y))
    return math.nan if number is None else float(number)


def _lines(runs: Sequence[StoredRun], key: str, y: str) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each curve, with the standard deviation as band."""
    labels = settings_labels(_settings(runs, key))
    curves: dict[str, dict[float, list[float]]] = {}
    for run, label in zip(runs, labels, strict=True):
        curves.setdefault(label or "all", {}).setdefault(_x(run, key), []).append(_end(run, y))
    lines = {}
    for label, points in curves.items():
        rows = [
            spread(np.array([x]), scale(y) * np.array(points[x])[:, np.newaxis], "sd")
            for x in sorted(points)
        ]
        lines[label] = pd.concat(rows, ignore_index=True)
    return lines


def _settings(runs: Sequence[StoredRun], key: str) -> list[dict[str, str]]:
    """Return the settings that tell curves apart.

    The settings are the overrides if these are known of all runs. Else they are the keys of the configuration
    that differ between runs with the same value on the axis, since other keys follow from this value.
    """
    overrides = [known for known in map(override_settings, runs) if known is not None]
    if len(overrides) == len(runs):
        return [
            {k: v for k, v in settings.items() if k.lstrip("+") != key} for settings in overrides
        ]
    values = [{k: show(v) for k, v in run.values.items() if v is not None} for run in runs]
    values_at: dict[tuple[str, str], set[str]] = {}  # (key, value on the axis) → values of the key
    for settings in values:
        for name in {n for other in values for n in other}:
            values_at.setdefault((name, settings[key]), set()).add(settings.get(name, ""))
    free = {name for (name, _), different in values_at.items() if len(different) > 1}
    return [{k: v for k, v in settings.items() if k in free} for settings in values]
