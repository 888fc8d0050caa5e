"""``fedpriv plot``: any runs in one picture, and the picture of a sweep.

Lines are whole runs, any column of metrics.csv against any other, or the ends of runs against a KEY: a key of
the configuration, such as ``epsilon`` (the budget asked for), or a result, such as ``epsilon_sound`` or
``spent`` (ε as the configured accountant counts it). Points over a result stand at its mean over seeds, and
those of one curve differ in one setting, by default in ``epsilon``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, FedprivError, did_you_mean, show
from fedpriv.common.files import write_csv, write_text
from fedpriv.common.notices import notice
from fedpriv.common.words import counted, in_short, printable
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.plots import WIDTHS, Line, Panel, distinct, draw_panels
from fedpriv.store.run_folders import runs_below
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.series import BANDS, band, spread
from fedpriv.tools.report.labels import settings_labels
from fedpriv.tools.run_choice import as_number

MOST_LINES = 100  # of a picture: nobody can tell more apart, and the legend would exceed a page
_NOT_IN_LABELS = ("resume", "dry_run")
_NOT_FINISHED = "not finished, drawn as far as they are: "
_FAILED = "×: a run failed or is not finished."
_LABELS = {"epsilon": "ε asked for (privacy budget)", "spent": "ε enforced (worst client)"}
_RESULTS = {"spent": "epsilon"}  # names of results that are also names of settings
_WIDE = 50  # from this ratio of its values on, the swept key of a sweep has a logarithmic axis


def run(options: SimpleNamespace) -> int:
    """Draw the runs, or with ``options.points`` their ends, and return the exit status.

    The drawn values are written as CSV beside the picture. Runs without values are left out and named;
    unfinished ones are drawn as far as they are, or left out of the ends.

    Args:
        options: Flags of the command.

    Raises:
        ConfigError: A folder has no runs, or a column or key does not exist.
        WriteError: A file cannot be written.
    """
    runs = [stored for folder in options.folders for stored in _find_runs(folder)]
    if options.points is not None:
        _draw_ends(runs, options)
        return 0
    x, y = options.x, options.y
    if not any(len(run.metrics) for run in runs):
        raise ConfigError(f"{runs[0].path} has no round yet")
    known = dict.fromkeys(column for run in runs for column in run.metrics)
    for flag, column in (("--x", x), ("--y", y)):
        if column not in known:
            hint = did_you_mean(column, known)
            raise ConfigError(flag, column, f"one of the columns {', '.join(known)}", hint)
    points = {run: _points(run, x, y) for run in runs}
    drawn = [run for run in runs if len(points[run])]
    if not drawn:
        raise ConfigError(f"no run has finite values of both {x} and {y}")
    _name_left_out(f"no finite {x} or {y}", runs, drawn)
    groups: dict[str, list[StoredRun]] = {}
    for run, label in zip(drawn, _labels(drawn, options.each), strict=True):
        groups.setdefault(label, []).append(run)
    lines: dict[str, pd.DataFrame] = {}
    for label, members in groups.items():
        if all((points[run]["x"].diff().iloc[1:] > 0).all() for run in members):
            lines[label] = band([points[run] for run in members], options.band)
        else:  # where x goes back and forth, there is no mean over seeds
            for run in members:
                name = f"{label} ({run.path.name})" if len(members) > 1 else label
                lines[name] = band([points[run]])
    lines = {label: line for label, line in lines.items() if len(line)}
    unfinished = [run.path.name for run in drawn if not run.finished]
    warnings = [f"{_NOT_FINISHED.capitalize()}{in_short(unfinished)}."] if unfinished else []
    counts = f"{counted(len(drawn), 'run')}, {counted(len(lines), 'line')}"
    caption = f"{_axis_label(y).capitalize()} against {_axis_label(x)}."
    _write(options, lines, _axis_label(x), counts, caption, [*warnings, *_hidden_words(drawn)])
    if unfinished:
        console().print(f"{_NOT_FINISHED}{', '.join(unfinished)}")
    return 0


def _find_runs(given: str) -> list[StoredRun]:
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


def _points(run: StoredRun, x: str, y: str) -> pd.DataFrame:
    """Return the rows of x and y of a run where both are finite, in the units shown."""
    metrics = run.metrics
    if not {x, y} <= set(metrics):
        return pd.DataFrame({"x": [], "y": []})
    finite = np.isfinite(metrics[x]) & np.isfinite(metrics[y])
    return pd.DataFrame({"x": metrics[x][finite] * _scale(x), "y": metrics[y][finite] * _scale(y)})


def _scale(column: str) -> float:
    return COLUMNS[column].scale if column in COLUMNS else 1.0


def _axis_label(column: str) -> str:
    return COLUMNS[column].label if column in COLUMNS else column


def _name_left_out(why: str, runs: Sequence[StoredRun], drawn: Sequence[StoredRun]) -> None:
    names = [run.path.name for run in runs if run not in drawn]
    if names:
        console().print(f"left out, {why}: {', '.join(names)}")


def _override_settings(run: StoredRun) -> dict[str, str] | None:
    """Return the overrides of a run that can change its result, or None for a run begun from Python."""
    if run.overrides is None:
        return None
    pairs = (o.partition("=")[::2] for o in run.overrides)
    return {k: v for k, v in pairs if k not in _NOT_IN_LABELS and not k.startswith("runtime.")}


def _labels(runs: Sequence[StoredRun], each: bool) -> list[str]:
    """Return a label for each run: the settings that set it apart, as overrides if these are known."""
    overrides = [_override_settings(run) for run in runs]
    settings = [known for known in overrides if known is not None]
    if len(settings) < len(runs):
        settings = [{k: show(v) for k, v in r.identity.items() if v is not None} for r in runs]
    labels = []
    for run, differences in zip(runs, settings_labels(settings), strict=True):
        name = run.path.name
        label = differences or ("all" if len(runs) > 1 and not each else name)
        labels.append(f"{label} ({name})" if each and differences else label)
    return labels


# ---- ends of runs


def _draw_ends(runs: Sequence[StoredRun], options: SimpleNamespace) -> None:
    """Draw the ends of the runs against ``options.points``.

    Raises:
        ConfigError: A key does not exist or has other values than numbers, or no run has both numbers.
    """
    key, y = options.points, options.y
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
    of_result = all(key not in run.values for run in runs)
    along = _along(runs, options.along) if of_result else key
    frame = _ends(runs, key, along, y)
    finished = [run for run, done in zip(runs, frame["done"], strict=True) if done]
    if not finished:
        raise ConfigError(f"no finished run has numbers for both {key} and {y}")
    _name_left_out("not finished or without a number", runs, finished)
    lines = _end_lines(frame, key == along, options.band)
    x_label = _key_label(key)
    counts = f"{counted(len(finished), 'run')}, {counted(len(lines), 'curve')}"
    each = f" Each point is a value of {along}." if of_result else ""
    caption = f"Ends of runs: {_axis_label(y)} against {x_label}.{each}"
    _write(options, lines, x_label, counts, caption, _hidden_words(finished), points=True)


def _key_label(key: str) -> str:
    last = key.rpartition(".")[2]
    return _LABELS.get(key) or (COLUMNS[last].label if last in COLUMNS else key)


def _swept(runs: Sequence[StoredRun]) -> list[str]:
    """Return the settings in which the runs differ by numbers, without the seeds."""
    values: dict[str, set[float]] = {}
    for settings in _settings(runs, ""):
        for name, text in settings.items():
            number = as_number(text)
            if number is not None and name not in ("seed", "noise_seed"):
                values.setdefault(name.lstrip("+"), set()).add(number)
    return [name for name, numbers in values.items() if len(numbers) > 1]


def _along(runs: Sequence[StoredRun], given: str | None) -> str:
    """Return the setting in which the points of a curve over a result differ.

    Raises:
        ConfigError: The setting does not differ between the runs, or several could be meant.
    """
    differing = _swept(runs)
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


def _ends(runs: Sequence[StoredRun], key: str, along: str, y: str) -> pd.DataFrame:
    """Return a row for each run: label of its curve, x, the setting in which the points differ, y, and done.

    A run is done that is finished and has numbers for x and y. Values are in the units shown.
    """

    def number(values: Mapping[str, object], name: str) -> float:
        found = as_number(values.get(name))
        return math.nan if found is None else float(found)

    def x(run: StoredRun, name: str) -> float:
        if name in run.values:
            return number(run.values, name)
        return number(run.summary, _RESULTS.get(name, name))

    frame = pd.DataFrame({
        "label": [label or "all" for label in settings_labels(_settings(runs, along))],
        "x": [x(run, key) for run in runs],
        "setting": [x(run, along) for run in runs],
        "y": [_scale(y) * number(run.summary, y) for run in runs],
    })  # fmt: skip
    finished = np.array([run.finished for run in runs])
    frame["done"] = finished & np.isfinite(frame["x"]) & np.isfinite(frame["y"])
    return frame


def _end_lines(frame: pd.DataFrame, of_setting: bool, kind: str) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each curve.

    A failed cell over a setting, of which no run is done, has n = 0 and no mean.
    """
    lines = {}
    for label, curve in frame.dropna(subset="setting").groupby("label", sort=False):
        rows = []
        for setting, cell in curve.groupby("setting"):
            done = cell[cell["done"]]
            if len(done):
                x = np.array([done["x"].mean()])
                rows.append(spread(x, done[["y"]].to_numpy(), kind))
            elif of_setting:
                rows.append(pd.DataFrame({"x": [setting], "mean": math.nan, "n": 0}))
        if any(row["n"].max() for row in rows):
            columns = ["x", "mean", "low", "high", "n"]
            lines[label] = pd.concat(rows, ignore_index=True).reindex(columns=columns)
    return lines


def _settings(runs: Sequence[StoredRun], key: str) -> list[dict[str, str]]:
    """Return the settings that tell curves apart.

    The settings are the overrides if these are known of all runs. Else they are the keys of the configuration
    that differ between runs with the same value on the axis, since other keys follow from this value.
    """
    overrides = [known for known in map(_override_settings, runs) if known is not None]
    if len(overrides) == len(runs):
        return [{k: v for k, v in given.items() if k.lstrip("+") != key} for given in overrides]
    values = [{k: show(v) for k, v in run.values.items() if v is not None} for run in runs]
    values_at: dict[tuple[str, str], set[str]] = {}  # (key, value on the axis) → values of the key
    for settings in values:
        for name in {n for other in values for n in other}:
            values_at.setdefault((name, settings[key]), set()).add(settings.get(name, ""))
    free = {name for (name, _), different in values_at.items() if len(different) > 1}
    return [{k: v for k, v in settings.items() if k in free} for settings in values]


def draw_sweep(folder: Path) -> None:
    """Draw the test accuracy at the ends of a sweep's runs against the swept key, in ``sweep.png``.

    The key is ``epsilon`` if it is swept, else the first key that is swept over numbers; all other swept keys
    make the curves, each with its mean and interval over seeds. Runs without the key, as those without
    privacy, are level lines. Nothing is drawn where no key is swept over numbers, or of a search. A picture
    that cannot be drawn is told in a warning.

    Args:
        folder: The folder of the sweep.
    """
    try:
        runs = [StoredRun(path) for _, path in runs_below(folder)]
        runs = [run for run in runs if run.finished and run.overrides is not None]
        keys = _swept(runs) if runs and not (folder / RECORD).exists() else []
        if not keys:
            return
        key = "epsilon" if "epsilon" in keys else keys[0]
        frame = _ends(runs, key, key, "test_accuracy")
        lines = _end_lines(frame, True, "t")
        x = frame.loc[frame["done"], "x"]
        if x.nunique() < 2:
            return
        without = frame[frame["x"].isna() & np.isfinite(frame["y"])]
        for label, level in without.groupby("label", sort=False):
            ends = np.array([x.min(), x.max()])
            values = np.repeat(level[["y"]].to_numpy(), 2, axis=1)
            lines[f"{label}, without {key}" if label in lines else label] = spread(
                ends, values, "t"
            )
        log = "x" if x.min() > 0 and x.max() / x.min() >= _WIDE else ""
        look = SimpleNamespace(x_label=None, y_label=None, y="test_accuracy", log=log, band="t")
        panel = _panel(look, _ordered(lines, "setting"), _key_label(key), points=True)
        note = " ".join([*_first_lines(lines), *_hidden_words(runs)])
        draw_panels([folder / "sweep.png"], [[panel]], note=note)
    except FedprivError as error:
        notice(f"warning: the sweep has no picture: {error}")
        return
    console().print(f"picture: {folder / 'sweep.png'}")


# ---- the files


def _write(
    options: SimpleNamespace,
    lines: Mapping[str, pd.DataFrame],
    x_label: str,
    counted_runs: str,
    caption: str,
    warnings: Sequence[str],
    points: bool = False,
) -> None:
    """Write the pictures, their values (.csv) and their caption (.txt), and print where they are.

    Args:
        options: Flags of the command.
        lines: Label → x, mean, low, high and n of each line; a row without a mean is a failed cell.
        x_label: Label of the x axis, unless the options name another.
        counted_runs: The number of runs and of lines in words.
        caption: What a line is.
        warnings: Sentences that belong on the face of the picture.
        points: True for lines that join measured points, each with a marker.

    Raises:
        ConfigError: A label to be renamed is not there.
    """
    lines = _renamed(_ordered(lines, options.order), options.label)
    csv = options.out[0].with_suffix(".csv")
    table = pd.concat(lines.values(), keys=lines.keys(), names=["label", None]).reset_index(0)
    write_csv(csv, table)
    warnings = [*_first_lines(lines), *warnings]
    if (table["n"] == 0).any():
        warnings.append(_FAILED)
    most = int(table["n"].max())
    seeds = f"{most}" if table["n"].nunique() == 1 else f"up to {most}"
    means = f"Mean over {seeds} seeds; bands: {BANDS[options.band]}."
    text = " ".join([caption, *[means] * (most > 1), *warnings])
    write_text(csv.with_suffix(".txt"), f"{options.command}\n\n{text}\n")
    draw_panels(
        options.out, [[_panel(options, lines, x_label, points)]], options.title or "",
        note=" ".join(warnings), width=WIDTHS.get(options.width),
        font_size=options.font_size,
    )  # fmt: skip
    written = [*options.out, csv, csv.with_suffix(".txt")]
    console().print(f"{counted_runs}: {', '.join(map(str, written))}")
    for sentence in _first_lines(lines):
        console().print(f"{sentence} {csv} has all.")


def _panel(
    options: SimpleNamespace, lines: Mapping[str, pd.DataFrame], x_label: str, points: bool
) -> Panel:
    """Return a panel with a line for each label, with a band where the line is a mean over seeds."""
    drawn = []
    for index, (label, line) in enumerate(list(lines.items())[:MOST_LINES]):
        colour, marker, dotted = distinct(index)
        measured, failed = line[line["n"] > 0], line.loc[line["n"] == 0, "x"]
        has_band = len(measured) > 0 and measured["n"].max() > 1 and options.band != "none"
        drawn.append(
            Line(
                label="_all" if label == "all" and len(lines) == 1 else printable(label),
                colour=colour,
                x=measured["x"],
                y=measured["mean"],
                low=measured["low"] if has_band else None,
                high=measured["high"] if has_band else None,
                dotted=dotted,
                marker=marker if points or len(lines) > 1 else None,
                sparse=not points,
            )
        )
        if len(failed):
            drawn.append(
                Line("_failed", colour, failed, failed, marker="x", joined=False, at_bottom=True)
            )
    return Panel(
        title="",
        x_label=options.x_label or x_label,
        y_label=options.y_label or _axis_label(options.y),
        lines=tuple(drawn),
        x_from_zero=not points and not options.x.startswith("epsilon"),
        y_from_zero=options.y in COLUMNS and COLUMNS[options.y].from_zero,
        x_log="x" in (options.log or ""),
        y_log="y" in (options.log or ""),
    )


def _hidden_words(runs: Sequence[StoredRun]) -> list[str]:
    """Return a sentence for a picture of runs whose attackers see what the trust model hides, else nothing.

    A run without a summary counts if its configuration allows it.
    """
    hidden = [
        run.path.name
        for run in runs
        if (run.summary.get("omniscient") if run.finished else run.values.get("attack.omniscient"))
    ]
    return [f"In these runs {SEES_HIDDEN}: {in_short(hidden)}."] if hidden else []


def _first_lines(lines: Mapping[str, object]) -> list[str]:
    """Return a sentence for a picture that does not show all lines, else nothing."""
    if len(lines) <= MOST_LINES:
        return []
    return [f"Drawn are the first {MOST_LINES} of {len(lines)} lines."]


def _ordered(lines: Mapping[str, pd.DataFrame], by: str) -> dict[str, pd.DataFrame]:
    """Return the lines ordered by the numbers in their labels (``setting``), or from the highest ``end``."""

    def natural(label: str) -> list[tuple[int, float, str]]:  # σ=2 comes before σ=10
        parts = re.split(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
        return [(0, float(p), "") if i % 2 else (1, 0.0, p) for i, p in enumerate(parts)]

    if by == "end":
        ends = {label: line["mean"].dropna().iloc[-1:].max() for label, line in lines.items()}
        return {label: lines[label] for label in sorted(lines, key=lambda one: -ends[one])}
    return {label: lines[label] for label in sorted(lines, key=natural)}


def _renamed(lines: Mapping[str, pd.DataFrame], names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the lines under the labels that ``OLD:NEW`` texts give them.

    Raises:
        ConfigError: A text has no colon or names no label, or two lines would have one label.
    """
    new = {label: label for label in lines}
    for name in names:
        olds = [label for label in lines if name.startswith(f"{label}:")]
        if not olds:
            old = name.partition(":")[0]
            allowed = f"OLD:NEW, OLD being one of {'; '.join(lines)}"
            raise ConfigError("--label", name, allowed, did_you_mean(old, lines))
        old = max(olds, key=len)
        new[old] = name[len(old) + 1 :].strip()
    if len(set(new.values())) < len(new):
        raise ConfigError("--label", ", ".join(names), "a different label for each line")
    return {new[label]: line for label, line in lines.items()}
