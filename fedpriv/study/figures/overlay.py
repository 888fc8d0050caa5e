"""``fedpriv plot``: any runs in one picture, any column against any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, did_you_mean, show
from fedpriv.common.files import write_csv
from fedpriv.common.words import counted, in_short
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.numbers import Columns
from fedpriv.store.plots import CYCLE, Line, Panel, draw_panels
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.series import band

_SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")
_NOT_TOLD = ("resume", "dry_run")
MOST_LINES = 100
"""Lines of a picture. More than this nobody can tell apart, and their legend is larger than a page."""
_NOT_FINISHED = "not finished, drawn as far as they are: "


@dataclass(frozen=True, eq=False)
class _Run:
    stored: StoredRun
    points: pd.DataFrame  # x and y, where both are finite


def run(options: SimpleNamespace) -> int:
    """Draw the runs. Raises ConfigError for folders without runs and unknown columns."""
    out = options.out
    found = [stored for given in options.folders for stored in find_runs(given)]
    runs = [_Run(stored, _points(stored.metrics, options.x, options.y)) for stored in found]
    if not any(one.stored.metrics.rows for one in runs):
        raise ConfigError(f"{found[0].path} has no round yet")
    runs = _with_columns(runs, options.x, options.y)
    lines = _lines(runs, options.each)
    drawn = pd.concat(lines.values(), keys=lines.keys(), names=["label", None])
    write_csv(out.with_suffix(".csv"), drawn.reset_index(0))
    unfinished = [one.stored.path.name for one in runs if not one.stored.finished]
    from_zero = not options.x.startswith("epsilon")
    panel = panel_of(lines, _axis_label(options.x), options.y, from_zero)
    draw_panels([out], [[panel]], "", _caption(lines, unfinished), creator="fedpriv plot")
    console().print(
        f"{counted(len(runs), 'run')}, {counted(len(lines), 'line')}: {out} and {out.with_suffix('.csv')}"
    )
    for sentence in first_lines(lines):
        console().print(f"{sentence} {out.with_suffix('.csv')} has all.")
    if unfinished:
        console().print(f"{_NOT_FINISHED}{', '.join(unfinished)}")
    return 0


def first_lines(lines: Mapping[str, object]) -> list[str]:
    """Return a sentence where the picture does not show all lines."""
    if len(lines) <= MOST_LINES:
        return []
    return [f"Drawn are the first {MOST_LINES} of {len(lines)} lines."]


def find_runs(given: str) -> list[StoredRun]:
    """The folder itself if it is a run, else the runs in it."""
    path = Path(given)
    if not path.is_dir():
        raise ConfigError(f"there is no folder {given}")
    inside = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    found = [run for run in map(StoredRun, inside) if run.files.metrics.exists()]
    if not found:
        raise ConfigError(f"{given}: no run folder (one with metrics.csv) is there or in it")
    for run in found:
        _ = run.identity, run.overrides  # a damaged one is refused, even if its overrides tell all
    return found


def told_settings(run: StoredRun) -> dict[str, str] | None:
    """The overrides of a run that make it another; None for runs from Python. Raises ConfigError."""
    if run.overrides is None:
        return None
    pairs = (o.partition("=")[::2] for o in run.overrides)
    return {k: v for k, v in pairs if k not in _NOT_TOLD and not k.startswith("runtime.")}


def _with_columns(runs: Sequence[_Run], x: str, y: str) -> list[_Run]:
    """The runs that have a finite value of both columns; says which are left out.

    Raises ConfigError if none has.
    """
    for flag, column in (("--x", x), ("--y", y)):
        known = dict.fromkeys(c for one in runs for c in one.stored.metrics)
        if column not in known:
            hint = did_you_mean(column, known)
            raise ConfigError(flag, column, f"one of the columns {', '.join(known)}", hint)
    kept = [one for one in runs if len(one.points)]
    if not kept:
        raise ConfigError(f"no run has finite values of both {x} and {y}")
    if len(kept) < len(runs):
        out = [one.stored.path.name for one in runs if one not in kept]
        console().print(f"left out, no finite {x} or {y}: {', '.join(out)}")
    return kept


def _lines(runs: Sequence[_Run], each: bool) -> dict[str, pd.DataFrame]:
    """Label → x, mean, low, high, n."""
    groups: dict[str, list[_Run]] = {}
    for one, label in zip(runs, _labels(runs, each), strict=True):
        groups.setdefault(label, []).append(one)
    lines = {}
    for label, members in groups.items():
        points = {one.stored.path.name: one.points for one in members}
        if all((p["x"].diff().iloc[1:] > 0).all() for p in points.values()):
            lines[label] = band(list(points.values()))
        else:  # no mean over seeds where x goes back and forth
            several = len(points) > 1
            for name, p in points.items():
                lines[f"{label} ({name})" if several else label] = band([p])
    return {label: line for label, line in lines.items() if len(line)}


def _points(metrics: Columns, x: str, y: str) -> pd.DataFrame:
    if not {x, y} <= set(metrics):
        return pd.DataFrame({"x": [], "y": []})
    finite = np.isfinite(metrics[x]) & np.isfinite(metrics[y])
    return pd.DataFrame({"x": metrics[x][finite] * scale(x), "y": metrics[y][finite] * scale(y)})


def scale(column: str) -> float:
    return COLUMNS[column].scale if column in COLUMNS else 1.0


def _axis_label(column: str) -> str:
    return COLUMNS[column].label if column in COLUMNS else column


def _labels(runs: Sequence[_Run], each: bool) -> list[str]:
    """A label for each run: what sets it apart, as its overrides if they are known."""
    told = [own for own in (told_settings(one.stored) for one in runs) if own is not None]
    if len(told) < len(runs):
        identities = [one.stored.identity for one in runs]
        told = [{k: show(v) for k, v in own.items() if v is not None} for own in identities]
    labels = []
    for one, words in zip(runs, settings_labels(told), strict=True):
        label = words or ("all" if len(runs) > 1 and not each else one.stored.path.name)
        labels.append(f"{label} ({one.stored.path.name})" if each and words else label)
    return labels


def settings_labels(told: Sequence[Mapping[str, str]]) -> list[str]:
    """What sets each apart from the others but for seeds, as ``key=value``; empty for nothing."""
    told = [{k: v for k, v in settings.items() if k not in _SEEDS} for settings in told]
    common = {item for item in told[0].items() if all(item in other.items() for other in told)}
    short = _short_names({k for settings in told for k in settings})
    return [
        ", ".join(f"{short[k]}={v}" for k, v in settings.items() if (k, v) not in common)
        for settings in told
    ]


def _short_names(keys: Collection[str]) -> dict[str, str]:
    """The last part of each key, or all of it where that would be two keys' name."""
    last = {key: key.lstrip("+").rpartition(".")[2] for key in keys}
    counts = Counter(last.values())
    return {key: name if counts[name] == 1 else key.lstrip("+") for key, name in last.items()}


def panel_of(
    lines: Mapping[str, pd.DataFrame],
    x_label: str,
    y: str,
    x_from_zero: bool,
    marker: str | None = None,
) -> Panel:
    """Return a panel with a line for each label → x, mean, low, high, n; with seeds a band."""
    drawn = tuple(
        Line(
            label=label,
            colour=CYCLE[i % len(CYCLE)],
            x=line["x"],
            y=line["mean"],
            low=line["low"] if line["n"].max() > 1 else None,
            high=line["high"] if line["n"].max() > 1 else None,
            dotted=i >= len(CYCLE),
            marker=marker,
        )
        for i, (label, line) in enumerate(list(lines.items())[:MOST_LINES])
    )
    from_zero = y in COLUMNS and COLUMNS[y].from_zero
    label = _axis_label(y)
    return Panel("", x_label, label, drawn, x_from_zero=x_from_zero, y_from_zero=from_zero)


def _caption(lines: Mapping[str, pd.DataFrame], unfinished: Sequence[str]) -> str:
    words = []
    if any(line["n"].max() > 1 for line in lines.values()):
        words.append("Lines: mean over seeds; bands: lowest to highest seed.")
    words += first_lines(lines)
    if unfinished:
        words.append(f"{_NOT_FINISHED.capitalize()}{in_short(unfinished)}.")
    return " ".join(words)
