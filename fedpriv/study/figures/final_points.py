"""``fedpriv plot --points KEY``: where runs end, against a key of their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    panel_of,
    scale,
    settings_labels,
    told_settings,
)
from fedpriv.study.figures.series import spread
from fedpriv.tools.run_choice import as_number

_LABELS = {"epsilon": "ε, privacy budget"}


def run(options: SimpleNamespace) -> int:
    """Draw the ends of the runs. Raises ConfigError for folders without runs and unknown keys."""
    key, y, out = options.points, options.y, options.out
    runs = [run for given in options.folders for run in find_runs(given)]
    kept = _with_both(runs, key, y)
    lines = _lines(kept, key, y)
    drawn = pd.concat(lines.values(), keys=lines.keys(), names=["label", None])
    write_csv(out.with_suffix(".csv"), drawn.reset_index(0))
    last = key.rpartition(".")[2]
    x_label = _LABELS.get(key) or (COLUMNS[last].label if last in COLUMNS else key)
    panel = panel_of(lines, x_label, y, x_from_zero=False, marker="o")
    draw_panels([out], [[panel]], "", _caption(lines), creator="fedpriv plot")
    console().print(
        f"{counted(len(kept), 'run')}, {counted(len(lines), 'curve')}: {out} and {out.with_suffix('.csv')}"
    )
    return 0


def _with_both(runs: Sequence[StoredRun], key: str, y: str) -> list[StoredRun]:
    """The runs that ended and have a number for both; says which are left out. Raises ConfigError."""
    keys = dict.fromkeys(name for one in runs for name in one.values)
    if key not in keys:
        raise _unknown("--points", key, keys, "a key of config.yaml")
    results = dict.fromkeys(name for one in runs for name in one.summary)
    if y not in results:
        raise _unknown("--y", y, results, "a key of summary.json")
    for one in runs:
        value = one.values.get(key)
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ConfigError("--points", key, f"a key whose values are numbers, not {show(value)}")
    kept = [one for one in runs if one.finished and _finite(one, key, y)]
    if not kept:
        raise ConfigError(f"no finished run has numbers for both {key} and {y}")
    if len(kept) < len(runs):
        left = [one.path.name for one in runs if one not in kept]
        console().print(f"left out, not finished or without a number: {', '.join(left)}")
    return kept


def _unknown(flag: str, name: str, known: Mapping[str, object], allowed: str) -> ConfigError:
    return ConfigError(flag, name or "nothing", allowed, did_you_mean(name, known))


def _finite(one: StoredRun, key: str, y: str) -> bool:
    numbers = (as_number(one.values.get(key)), as_number(one.summary.get(y)))
    return all(number is not None and np.isfinite(number) for number in numbers)


def _lines(runs: Sequence[StoredRun], key: str, y: str) -> dict[str, pd.DataFrame]:
    """Curve → x, mean, low, high, n: mean and standard deviation over the seeds at each value."""
    labels = settings_labels(_settings(runs, key))
    curves: dict[str, dict[float, list[float]]] = {}
    for one, label in zip(runs, labels, strict=True):
        x, end = as_number(one.values[key]), as_number(one.summary[y])
        assert x is not None  # _finite has seen to it
        assert end is not None
        curves.setdefault(label or "all", {}).setdefault(float(x), []).append(float(end))
    lines = {}
    for label, points in curves.items():
        rows = [
            spread(np.array([x]), scale(y) * np.array(points[x])[:, np.newaxis], "sd")
            for x in sorted(points)
        ]
        lines[label] = pd.concat(rows, ignore_index=True)
    return lines


def _settings(runs: Sequence[StoredRun], key: str) -> list[dict[str, str]]:
    """What tells curves apart: overrides if all are known; else the configuration, without the keys that
    follow from the one on the axis."""
    told = [own for own in map(told_settings, runs) if own is not None]
    if len(told) == len(runs):
        return [{k: v for k, v in one.items() if k.lstrip("+") != key} for one in told]
    values = [{k: show(v) for k, v in one.values.items() if v is not None} for one in runs]
    at: dict[tuple[str, str], set[str]] = {}  # (key, value of the axis) → values
    for one in values:
        for name in {n for other in values for n in other}:
            at.setdefault((name, one[key]), set()).add(one.get(name, ""))
    free = {name for (name, _), found in at.items() if len(found) > 1}
    return [{k: v for k, v in one.items() if k in free} for one in values]


def _caption(lines: Mapping[str, pd.DataFrame]) -> str:
    words = "Ends of runs: mean over seeds; bands: ± one standard deviation."
    if all(line["n"].max() == 1 for line in lines.values()):
        words = "Ends of runs."
    return " ".join([words, *first_lines(lines)])
