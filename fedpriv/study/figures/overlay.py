"""``fedpriv plot``: any runs in one picture, and the picture of a sweep.

Lines are whole runs, any column of metrics.csv against any other, or the ends of runs against a KEY: a key of
the configuration, such as ``epsilon`` (the budget asked for), or a result, such as ``epsilon_sound`` or
``spent`` (ε as the configured accountant counts it). Points over a result stand at its mean over seeds, and
those of one curve differ in one setting, by default in ``epsilon``.
"""

from __future__ import annotations

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
from fedpriv.store.columns import COLUMNS, Quantity
from fedpriv.store.display import console
from fedpriv.store.pairs import BANDS, spread
from fedpriv.store.plots import FONT_SIZE, WIDTHS, Line, Panel, distinct, draw_panels
from fedpriv.store.run_folders import runs_below
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.series import band
from fedpriv.tools.report.gather import SEEDS
from fedpriv.tools.report.labels import settings_labels
from fedpriv.tools.run_choice import as_number

MOST_LINES = 100  # of a picture: nobody can tell more apart, and the legend would exceed a page
_NOT_IN_LABELS = re.compile(r"runtime\.|(resume|dry_run)$")
_LABELS = {"epsilon": "ε asked for (privacy budget)", "spent": "ε enforced (worst client)"}
_RESULTS = {"spent": "epsilon"}  # names of results that are also names of settings
Lines = Mapping[str, pd.DataFrame]  # label → x, mean, low, high and n; a failed cell has no mean
Runs = Sequence[StoredRun]
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
    runs: list[StoredRun] = []
    for folder in map(Path, options.folders):
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}")
        with_rounds = [StoredRun(path) for _, path in runs_below(folder)]
        with_rounds = [one for one in with_rounds if one.files.metrics.exists()]
        if not with_rounds:
            raise ConfigError(f"{folder}: no run folder (one with metrics.csv) is there or below")
        runs += with_rounds
    for one in runs:
        _ = one.identity, one.overrides  # read both, so that a run that cannot be read is refused
    (_draw_rounds if options.points is None else _draw_ends)(runs, options)
    return 0


def _draw_rounds(runs: Runs, options: SimpleNamespace) -> None:
    """Draw a line for the runs that differ only in their seeds, or for each run.

    Raises:
        ConfigError: A column does not exist, or no run has values of both.
    """
    x, y = options.x, options.y
    known = dict.fromkeys(column for run in runs for column in run.metrics)
    for flag, column in (("--x", x), ("--y", y)):
        if column not in known:
            hint = did_you_mean(column, known)
            raise ConfigError(flag, column, f"one of the columns {', '.join(known)}", hint)
    points: dict[StoredRun, pd.DataFrame] = {}
    for run in runs:
        rows = run.metrics.reindex(columns=[x, y]).set_axis(["x", "y"], axis=1)
        rows = rows[np.isfinite(rows).all(axis=1)] * [_column(x).scale, _column(y).scale]
        if len(rows):
            points[run] = rows
    if not points:
        raise ConfigError(f"no run has finite values of both {x} and {y}")
    drawn = list(points)
    # Where x goes back and forth, there is no mean over seeds.
    forth = all((rows["x"].diff().iloc[1:] > 0).all() for rows in points.values())
    names = [run.path.name for run in drawn]
    if len({*names}) < len(names):  # as in two sweeps
        names = [str(run.path) for run in drawn]
    groups: dict[str, list[pd.DataFrame]] = {}
    for run, name, label in zip(drawn, names, settings_labels(_settings(drawn)), strict=True):
        if options.each or len(drawn) == 1 or not forth:
            label = f"{label} ({name})" if label else name
        groups.setdefault(label or "all", []).append(points[run])
    lines = {label: band(members, options.band) for label, members in groups.items()}
    unfinished = in_short([run.path.name for run in drawn if not run.finished])
    warnings = [f"Not finished, drawn as far as they are: {unfinished}."] if unfinished else []
    _write(options, lines, runs, drawn, warnings)


def _draw_ends(runs: Runs, options: SimpleNamespace) -> None:
    """Draw the ends of the runs against ``options.points``.

    Raises:
        ConfigError: A key does not exist or has other values than numbers, or no run has both numbers.
    """
    key, y = options.points, options.y
    keys = dict.fromkeys(name for run in runs for name in run.values)
    results = dict.fromkeys(name for run in runs for name in run.summary)
    for flag, name, known, files in (
        ("--points", key, keys | _RESULTS | results, "config.yaml or summary.json, or spent"),
        ("--y", y, results, "summary.json"),
    ):
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(flag, name or "nothing", f"a key of {files}", hint)
    for value in (run.values.get(key) for run in runs):
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ConfigError("--points", key, f"a key whose values are numbers, not {show(value)}")
    along, sentences = key, []
    if key not in keys:
        swept = _swept(runs)
        along = options.along or (swept[0] if len(swept) == 1 else "epsilon")
        if along not in swept:
            allowed = f"a setting in which the runs differ: {', '.join(swept) or 'there is none'}"
            hint = did_you_mean(along, swept)
            raise ConfigError("--along", options.along or "nothing", allowed, hint)
        sentences = [f"Each point is a value of {along}."]
    frame = _ends(runs, key, along, y)
    finished = [run for run, done in zip(runs, frame["done"], strict=True) if done]
    if not finished:
        raise ConfigError(f"no finished run has numbers for both {key} and {y}")
    lines = _end_lines(frame, key == along, options.band)
    if any((line["n"] == 0).any() for line in lines.values()):
        sentences.append("×: a run failed or is not finished.")
    _write(options, lines, runs, finished, sentences)


def draw_sweep(folder: Path) -> None:
    """Draw the test accuracy at the ends of a sweep's runs against the swept key, in ``sweep.png``.

    The key is ``epsilon`` if it is swept, else the first key that is swept over numbers; all other swept keys
    make the curves, each with its mean and interval over seeds. Runs without the key, as those without
    privacy, are level lines. Nothing is drawn where no key is swept over numbers, or of a search. A picture
    that cannot be drawn is told in a warning.

    Args:
        folder: The folder of the sweep.
    """
    picture = folder / "sweep.png"
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
            values = np.repeat(level[["y"]].to_numpy(), 2, axis=1)
            name = f"{label}, without {key}" if label in lines else label
            lines[name] = spread(np.array([x.min(), x.max()]), values, "t")
        look = SimpleNamespace(
            points=key, y="test_accuracy", band="t", title="", x_label=None, y_label=None,
            log="x" if x.min() > 0 and x.max() / x.min() >= _WIDE else "", out=[picture], width=None,
            font_size=FONT_SIZE,
        )  # fmt: skip
        _draw(look, _ordered(lines, "setting"), runs, [])
    except FedprivError as error:
        notice(f"warning: the sweep has no picture: {error}")
        return
    console().print(f"picture: {picture}")


# ---- what runs differ in, and how they ended


def _settings(runs: Runs, key: str = "") -> list[dict[str, str]]:
    """Return the settings without ``key`` that tell runs apart.

    The settings are the overrides if these are known of all runs. Else they are the keys of the configuration
    that differ between runs with the same value of ``key``, since other keys follow from this value.
    """
    overrides = [run.overrides for run in runs if run.overrides is not None]
    if len(overrides) == len(runs):
        pairs = [[o.lstrip("+").partition("=")[::2] for o in given] for given in overrides]
        return [
            {k: v for k, v in given if k != key and not _NOT_IN_LABELS.match(k)} for given in pairs
        ]
    values = [{k: show(v) for k, v in run.identity.items() if v is not None} for run in runs]
    frame = pd.DataFrame(values).fillna("")
    at_key = frame[key] if key in frame else pd.Series("", frame.index)
    free = frame.groupby(at_key).nunique().gt(1).any()
    return [{k: v for k, v in row.items() if free.get(k)} for row in values]


def _swept(runs: Runs) -> list[str]:
    """Return the settings in which the runs differ by numbers, without the seeds."""
    frame = pd.DataFrame(_settings(runs)).drop(columns=[*SEEDS], errors="ignore")
    return [name for name in frame if frame[name].map(as_number).nunique() > 1]


def _ends(runs: Runs, key: str, along: str, y: str) -> pd.DataFrame:
    """Return a row for each run: label of its curve, x, the setting in which the points differ, y, and done.

    A run is done that is finished and has numbers for x and y. Values are in the units shown.
    """

    def numbers(name: str) -> list[float | None]:
        result = _RESULTS.get(name, name)
        return [as_number(run.values.get(name, run.summary.get(result))) for run in runs]

    ends = {
        "x": numbers(key),
        "setting": numbers(along),
        "y": [as_number(run.summary.get(y)) for run in runs],
    }
    frame = pd.DataFrame(ends, dtype=float)
    frame["y"] *= _column(y).scale
    frame["label"] = [label or "all" for label in settings_labels(_settings(runs, along))]
    frame["done"] = [run.finished for run in runs]
    frame["done"] &= np.isfinite(frame[["x", "y"]]).all(axis=1)
    return frame


def _end_lines(frame: pd.DataFrame, of_setting: bool, kind: str) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each curve.

    A failed cell over a setting, of which no run is done, has n = 0 and no mean.
    """
    lines = {}
    for label, curve in frame.dropna(subset="setting").groupby("label", sort=False):
        if not curve["done"].any():
            continue
        cells = []
        for setting, cell in curve.groupby("setting"):
            done = cell[cell["done"]]
            if len(done):
                x = np.array([done["x"].mean()])
                cells.append(spread(x, done[["y"]].to_numpy(), kind))
            elif of_setting:
                failed = spread(np.array([setting]), np.full((1, 1), np.nan), "none")
                cells.append(failed.assign(n=0))
        lines[str(label)] = pd.concat(cells, ignore_index=True)
    return lines


# ---- the files


def _write(
    options: SimpleNamespace, lines: Lines, runs: Runs, drawn: Runs, sentences: Sequence[str]
) -> None:
    """Write the pictures, their values (.csv) and their caption (.txt), and print where they are.

    Args:
        options: Flags of the command.
        lines: The lines.
        runs: All runs.
        drawn: The runs that the lines are of.
        sentences: Sentences that belong below the picture.

    Raises:
        ConfigError: A label to be renamed is not there, or two lines would have one label.
    """
    lines = _ordered(lines, options.order)
    labels = {label: label for label in lines}
    for text in options.label:
        old, _, new = text.rpartition(":")
        if old not in lines:
            hint = did_you_mean(old or text, lines)
            raise ConfigError(
                "--label", text, f"OLD:NEW, OLD being one of {'; '.join(lines)}", hint
            )
        labels[old] = new.strip()
    if len({*labels.values()}) < len(lines):
        raise ConfigError("--label", ", ".join(options.label), "a different label for each line")
    lines = {labels[label]: line for label, line in lines.items()}
    sentences = _draw(options, lines, drawn, sentences)
    csv, text = (options.out[0].with_suffix(ending) for ending in (".csv", ".txt"))
    table = pd.concat(lines.values(), keys=lines.keys(), names=["label", None]).reset_index(0)
    write_csv(csv, table)
    most = int(table["n"].max())
    if most > 1:
        seeds = f"{most}" if table["n"].nunique() == 1 else f"up to {most}"
        sentences = [f"Mean over {seeds} seeds; bands: {BANDS[options.band]}.", *sentences]
    kind = "Runs" if options.points is None else "Ends of runs"
    caption = f"{kind}: {_column(options.y).label} against {_x_label(options)}."
    write_text(text, f"{options.command}\n\n{' '.join([caption, *sentences])}\n")
    if left_out := [run.path.name for run in runs if run not in drawn]:
        console().print(f"left out, without values or not finished: {', '.join(left_out)}")
    written = ", ".join(map(str, [*options.out, csv, text]))
    console().print(f"{counted(len(drawn), 'run')}, {counted(len(lines), 'line')}: {written}")
    for sentence in sentences:
        console().print(sentence)


def _draw(
    options: SimpleNamespace, lines: Lines, runs: Runs, sentences: Sequence[str]
) -> list[str]:
    """Draw a line for each label, with a band where the line is a mean over seeds.

    Args:
        options: Flags of the command.
        lines: The lines.
        runs: The drawn runs.
        sentences: Sentences that belong below the picture.

    Returns:
        The sentences below the picture, also on lines that are not shown, and on runs whose attackers see
        what the trust model hides. A run that has not ended counts if its configuration allows this.
    """
    points, drawn = options.points is not None, list[Line]()
    for index, (label, line) in enumerate(list(lines.items())[:MOST_LINES]):
        colour, marker, dotted = distinct(index)
        shown = "_all" if label == "all" and len(lines) == 1 else printable(label)
        measured, failed = line[line["n"] > 0], line.loc[line["n"] == 0, "x"]
        x, mean, low, high, n = (measured[name] for name in ("x", "mean", "low", "high", "n"))
        low, high = (low, high) if n.max() > 1 and options.band != "none" else (None, None)
        symbol = marker if points or len(lines) > 1 else None
        drawn.append(
            Line(shown, colour, x, mean, low, high, dotted, marker=symbol, sparse=not points)
        )
        if len(failed):
            cross = Line("_", colour, failed, failed, marker="x", joined=False, at_bottom=True)
            drawn.append(cross)
    panel = Panel(
        "",
        options.x_label or _x_label(options),
        options.y_label or _column(options.y).label,
        tuple(drawn),
        x_from_zero=not points and not options.x.startswith("epsilon"),
        y_from_zero=_column(options.y).from_zero,
        x_log="x" in (options.log or ""),
        y_log="y" in (options.log or ""),
    )
    sentences = list(sentences)
    if len(lines) > MOST_LINES:
        sentences.append(f"Drawn are the first {MOST_LINES} of {len(lines)} lines.")
    allowed = [run.summary.get("omniscient", run.values.get("attack.omniscient")) for run in runs]
    if hidden := [run.path.name for run, seen in zip(runs, allowed, strict=True) if seen]:
        sentences.append(f"In these runs {SEES_HIDDEN}: {in_short(hidden)}.")
    width, note = WIDTHS.get(options.width), " ".join(sentences)
    draw_panels(options.out, [[panel]], options.title or "", note, "", width, options.font_size)
    return sentences


def _column(name: str) -> Quantity:
    return COLUMNS.get(name, Quantity(name, from_zero=False))


def _x_label(options: SimpleNamespace) -> str:
    if options.points is None:
        return _column(options.x).label
    last = options.points.rpartition(".")[2]
    return _LABELS.get(options.points) or (
        _column(last).label if last in COLUMNS else options.points
    )


def _ordered(lines: Lines, by: str) -> dict[str, pd.DataFrame]:
    """Return the lines ordered by the numbers in their labels (``setting``), or from the highest ``end``."""

    def rank(label: str) -> list[str | float]:
        if by == "end":
            return [-lines[label]["mean"].dropna().iloc[-1]]
        parts = re.split(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)  # σ=2 comes before σ=10
        return [float(part) if i % 2 else part for i, part in enumerate(parts)]

    return {label: lines[label] for label in sorted(lines, key=rank)}
