"""``fedpriv plot --points KEY``: values at the ends of runs, against a setting or another result.

KEY is a key of the configuration, such as ``epsilon`` (the budget asked for), or a result, such as
``epsilon_sound`` or ``spent`` (ε as the configured accountant counts it). Points over a result stand at its
mean over seeds, and those of one curve differ in one setting, by default in ``epsilon``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, did_you_mean, show
from fedpriv.common.words import counted
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.overlay import find_runs, override_settings, scale
from fedpriv.study.figures.plot_files import axis_label, hidden_words, write_plot
from fedpriv.study.figures.series import spread
from fedpriv.tools.report.labels import settings_labels
from fedpriv.tools.run_choice import as_number

_LABELS = {"epsilon": "ε asked for (privacy budget)", "spent": "ε enforced (worst client)"}
_RESULTS = {"spent": "epsilon"}  # names of results that are also names of settings


def run(options: SimpleNamespace) -> int:
    """Draw the ends of the runs, and return the exit status.

    The drawn values are written as CSV beside the picture. Runs that are not finished, or lack a number, are
    left out and named.

    Args:
        options: Flags of the command.

    Raises:
        ConfigError: A folder has no runs, or a key does not exist.
    """
    key, y = options.points, options.y
    runs = [run for folder in options.folders for run in find_runs(folder)]
    _refuse_unknown(runs, key, y)
    of_result = all(key not in run.values for run in runs)
    along = _along(runs, options.along) if of_result else key
    finished = [run for run in runs if _has_both(run, key, y)]
    if not finished:
        raise ConfigError(f"no finished run has numbers for both {key} and {y}")
    if len(finished) < len(runs):
        names = [run.path.name for run in runs if run not in finished]
        console().print(f"left out, not finished or without a number: {', '.join(names)}")
    lines = _lines(runs, finished, (key, along, y), options.band)
    last = key.rpartition(".")[2]
    x_label = _LABELS.get(key) or (COLUMNS[last].label if last in COLUMNS else key)
    counts = f"{counted(len(finished), 'run')}, {counted(len(lines), 'curve')}"
    each = f" Each point is a value of {along}." if of_result else ""
    caption = f"Ends of runs: {axis_label(y)} against {x_label}.{each}"
    warnings = hidden_words(finished)
    write_plot(options, lines, x_label, counts, caption, points=True, warnings=warnings)
    return 0


def _refuse_unknown(runs: Sequence[StoredRun], key: str, y: str) -> None:
    """Refuse keys that no run has, and a setting whose values are not numbers.

    Raises:
        ConfigError: A key does not exist or has other values than numbers.
    """
    keys = dict.fromkeys(name for run in runs for name in run.values)
    results = dict.fromkeys(name for run in runs for name in run.summary)
    known_x = {**keys, **dict.fromkeys(_RESULTS), **results}
    for flag, name, known, files in (
        ("--points", key, known_x, "a key of config.yaml or summary.json, or spent"),
        ("--y", y, results, "a key of summary.json"),
    ):
        if name not in known:
            raise ConfigError(flag, name or "nothing", files, did_you_mean(name, known))
    for run in runs:
        value = run.values.get(key)
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ConfigError("--points", key, f"a key whose values are numbers, not {show(value)}")


def _along(runs: Sequence[StoredRun], given: str | None) -> str:
    """Return the setting in which the points of a curve over a result differ.

    Raises:
        ConfigError: The setting does not differ between the runs, or several could be meant.
    """
    values: dict[str, set[float]] = {}
    for settings in _settings(runs, ""):
        for name, text in settings.items():
            number = as_number(text)
            if number is not None and name not in ("seed", "noise_seed"):
                values.setdefault(name.lstrip("+"), set()).add(number)
    differing = [name for name, numbers in values.items() if len(numbers) > 1]
    if given is not None:
        if given in differing:
            return given
        allowed = f"a setting in which the runs differ: {', '.join(differing) or 'there is none'}"
        raise ConfigError("--along", given, allowed, did_you_mean(given, differing))
    if "epsilon" in differing:
        return "epsilon"
    if len(differing) != 1:
        allowed = f"given, for the points of a curve: one of {', '.join(differing) or 'no setting'}"
        raise ConfigError("--along", "nothing", allowed)
    return differing[0]


def _has_both(run: StoredRun, key: str, y: str) -> bool:
    return run.finished and bool(np.isfinite([_x(run, key), _number(run.summary.get(y))]).all())


def _x(run: StoredRun, key: str) -> float:
    """Return a setting of a run, or a result; NaN where it is no number."""
    values: Mapping[str, object] = run.values if key in run.values else run.summary
    return _number(values.get(_RESULTS.get(key, key) if values is run.summary else key))


def _number(value: object) -> float:
    number = as_number(value)
    return math.nan if number is None else float(number)


def _lines(
    runs: Sequence[StoredRun],
    finished: Sequence[StoredRun],
    names: tuple[str, str, str],
    kind: str,
) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each curve.

    A failed cell, of which no run is finished, has n = 0 and no mean.

    Args:
        runs: All runs.
        finished: The runs that have both numbers.
        names: Keys of x, of the setting in which the points of a curve differ, and of y.
        kind: Kind of band; see :data:`~fedpriv.study.figures.series.BANDS`.
    """
    key, along, y = names
    labels = settings_labels(_settings(runs, along))
    cells: dict[str, dict[float, list[StoredRun]]] = {}
    for run, label in zip(runs, labels, strict=True):
        if not math.isnan(_x(run, along)):
            cells.setdefault(label or "all", {}).setdefault(_x(run, along), []).append(run)
    lines = {}
    for label, points in cells.items():
        rows = []
        for setting in sorted(points):
            done = [run for run in points[setting] if run in finished]
            if done:
                x = np.mean([_x(run, key) for run in done], keepdims=True)
                ends = np.array([[_number(run.summary.get(y))] for run in done])
                rows.append(spread(x, scale(y) * ends, kind))
            elif key == along:
                rows.append(pd.DataFrame({"x": [setting], "mean": math.nan, "n": 0}))
        if any(len(row) and row["n"].max() for row in rows):
            columns = ["x", "mean", "low", "high", "n"]
            lines[label] = pd.concat(rows, ignore_index=True).reindex(columns=columns)
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
