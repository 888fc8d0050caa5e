"""``fedpriv plot``: any runs in one picture, and the picture of a sweep.

Lines are whole runs, any column of metrics.csv against any other, or the ends of runs against a KEY: a key of
the configuration, such as ``epsilon`` (the budget asked for), or a result, such as ``epsilon_sound`` or
``spent`` (ε as the configured accountant counts it). Points over a result stand at its mean over seeds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError, FedprivError, did_you_mean, show
from fedpriv.common.files import write_csv
from fedpriv.common.notices import notice
from fedpriv.common.words import counted, in_short, printable
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.columns import BY_LABELS, COLUMNS, OWN, Quantity
from fedpriv.store.display import console
from fedpriv.store.pairs import BANDS, band, spread
from fedpriv.store.plots import FONT_SIZE, WIDTHS, Line, Panel, distinct, draw_panels
from fedpriv.store.run_folders import runs_below
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.report.gather import SEEDS
from fedpriv.tools.report.labels import ALL, labels, settings_of
from fedpriv.tools.run_choice import as_number

MOST_LINES = 100  # of a picture: nobody can tell more apart, and the legend would exceed a page
_LABELS = {"epsilon": "ε asked for (privacy budget)", "spent": "ε enforced (worst client)"}
_WIDE = 50  # from this ratio of its values on, the swept key of a sweep has a logarithmic axis
Lines = Mapping[str, pd.DataFrame]  # label → x, mean, low, high and n
Runs = Sequence[StoredRun]


def run(options: SimpleNamespace) -> int:
    """Draw the runs, or with ``options.points`` their ends, and return the exit status.

    The drawn values are written as CSV beside the picture. Runs without values are left out and named;
    unfinished ones are drawn as far as they are, or left out of the ends.

    Args:
        options: Flags of the command.

    Raises:
        ConfigError: A folder has no runs, or a column, key or label does not exist.
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
    if options.points is None:
        lines, drawn = _rounds(runs, options)
    else:
        frame = _ends(runs, options.points, options.y)
        lines = _over(frame, options.band)
        drawn = [one for one, done in zip(runs, frame["done"], strict=True) if done]
        if not lines:
            both = f"{options.points} and {options.y}"
            raise ConfigError(f"no finished run has numbers for both {both}")
    for text in options.label:
        old, _, new = text.rpartition(":")
        if old not in lines or new.strip() in lines:
            hint = did_you_mean(old or text, lines)
            allowed = f"OLD:NEW, OLD being one of {'; '.join(lines)}, and NEW none of them"
            raise ConfigError("--label", text, allowed, hint)
        lines = {new.strip() if label == old else label: line for label, line in lines.items()}
    sentences = _draw(options, lines, drawn)
    csv = options.out[0].with_suffix(".csv")
    table = pd.concat(lines.values(), keys=lines.keys(), names=["label", None]).reset_index(0)
    write_csv(csv, table)
    if left_out := [one.path.name for one in runs if one not in drawn]:
        console().print(f"left out, without values or not finished: {', '.join(left_out)}")
    written = ", ".join(map(str, [*options.out, csv]))
    console().print(f"{counted(len(drawn), 'run')}, {counted(len(lines), 'line')}: {written}")
    for sentence in sentences:
        console().print(sentence)
    return 0


def _rounds(runs: Runs, options: SimpleNamespace) -> tuple[Lines, list[StoredRun]]:
    """Return a line for the runs that differ only in their seeds, or for each run; and the drawn runs.

    Raises:
        ConfigError: A column does not exist, or no run has values of both.
    """
    x, y = options.x, options.y
    read = [_sorted_clients(run) if x == "clients" else run.metrics for run in runs]
    known = dict.fromkeys(column for table in read for column in table)
    if x == "clients" and y == "test_accuracy":  # the default of --y
        y = options.y = next((name for name in (OWN, BY_LABELS) if name in known), y)
    for flag, column in (("--x", x), ("--y", y)):
        if column not in known:
            hint = did_you_mean(column, known)
            raise ConfigError(flag, column, f"one of the columns {', '.join(known)}", hint)
    points = [table.reindex(columns=[x, y]).set_axis(["x", "y"], axis=1) for table in read]
    points = [rows[np.isfinite(rows).all(axis=1)] for rows in points]
    drawn = [run for run, rows in zip(runs, points, strict=True) if len(rows)]
    if not drawn:
        raise ConfigError(f"no run has finite values of both {x} and {y}")
    names = [run.path.name for run in drawn]
    if len({*names}) < len(names):  # as in two sweeps
        names = [str(run.path) for run in drawn]
    scales = [_column(x).scale, _column(y).scale]
    lines: dict[str, list[pd.DataFrame]] = {}
    given = zip(filter(len, points), names, labels(drawn), strict=True)
    for rows, name, label in given:
        if options.each or len(drawn) == 1:
            label = name if label == ALL else f"{label} ({name})"
        lines.setdefault(label, []).append(rows * scales)
    return _ordered({label: band(members, options.band) for label, members in lines.items()}), drawn


def _sorted_clients(run: StoredRun) -> pd.DataFrame:
    """Return the last round of clients.csv, each column sorted, over the percentage of the clients."""
    if not run.files.clients.exists():
        return pd.DataFrame()
    last = run.clients[run.clients["round"] == run.clients["round"].max()]
    last = last.apply(lambda column: np.sort(column.to_numpy(dtype=float)))  # nan comes last
    return last.assign(clients=100 * np.arange(1, len(last) + 1) / len(last))


def _ends(runs: Runs, key: str, y: str) -> pd.DataFrame:
    """Return a row for each run: label of its curve, x, the setting in which the points differ, y, and done.

    A run is done that is finished and has numbers for x and y. Values are in the units shown.

    Raises:
        ConfigError: A key does not exist or has other values than numbers.
    """
    keys = {name for run in runs for name in run.values}
    results = dict.fromkeys(name for run in runs for name in run.summary)
    for flag, name, known, files in (
        ("--points", key, keys | {*results, "spent"}, "config.yaml or summary.json, or spent"),
        ("--y", y, results, "summary.json"),
    ):
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(flag, name or "nothing", f"a key of {files}", hint)
    for value in (run.values.get(key) for run in runs):
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ConfigError("--points", key, f"a key whose values are numbers, not {show(value)}")
    along = key
    if key not in keys:  # a result, which every run has another of
        swept = _swept(runs)
        along = swept[0] if len(swept) == 1 else "epsilon"
    of_result = {"spent": "epsilon"}.get(key, key)
    setting = [run.values.get(along) for run in runs]
    x = setting if key in keys else [run.summary.get(of_result) for run in runs]
    columns = {"x": x, "setting": setting, "y": [run.summary.get(y) for run in runs]}
    frame = pd.DataFrame({name: [*map(as_number, column)] for name, column in columns.items()})
    frame = frame.astype(float)
    frame["y"] *= _column(y).scale
    frame["label"] = labels(runs, without=along)
    frame["done"] = [run.finished for run in runs]
    frame["done"] &= np.isfinite(frame[["x", "y"]]).all(axis=1)
    return frame


def _over(frame: pd.DataFrame, kind: str) -> dict[str, pd.DataFrame]:
    """Return label → x, mean, low, high and n of each curve over the ends of its runs."""
    lines: dict[str, list[pd.DataFrame]] = {}
    done = frame[frame["done"]].fillna({"setting": 0.0})
    for (label, _), cell in done.groupby(["label", "setting"], sort=True):
        x = np.array([cell["x"].mean()])
        lines.setdefault(label, []).append(spread(x, cell[["y"]].to_numpy(), kind))
    return _ordered({label: pd.concat(c, ignore_index=True) for label, c in lines.items()})


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
        frame = _ends(runs, key, "test_accuracy")
        lines, x = _over(frame, "t"), frame.loc[frame["done"], "x"]
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
        _draw(look, lines, runs)
    except FedprivError as error:
        notice(f"warning: the sweep has no picture: {error}")
        return
    console().print(f"picture: {picture}")


def _swept(runs: Runs) -> list[str]:
    """Return the settings in which the runs differ by numbers, without the seeds."""
    frame = pd.DataFrame(settings_of(runs)).drop(columns=[*SEEDS], errors="ignore")
    return [name for name in frame if frame[name].map(as_number).nunique() > 1]


def _draw(options: SimpleNamespace, lines: Lines, runs: Runs) -> list[str]:
    """Draw a line for each label, with a band where the line is a mean over seeds.

    Args:
        options: Flags of the command.
        lines: The lines.
        runs: The drawn runs.

    Returns:
        The sentences below the picture: on bands, on lines that are not shown, on runs that have not ended,
        and on runs whose attackers see what the trust model hides.
    """
    points, sentences, drawn = options.points is not None, list[str](), list[Line]()
    for index, (label, line) in enumerate([*lines.items()][:MOST_LINES]):
        colour, marker, dotted = distinct(index)
        banded = line["n"].max() > 1 and options.band != "none"
        drawn.append(
            Line(
                printable(label) if len(lines) > 1 else "_",
                colour,
                x=line["x"],
                y=line["mean"],
                low=line["low"] if banded else None,
                high=line["high"] if banded else None,
                dotted=dotted,
                marker=marker if points or len(lines) > 1 else None,
                sparse=not points,
            )
        )
    x = options.points or options.x
    last = x.rpartition(".")[2] if points else x
    panel = Panel(
        title="",
        x_label=options.x_label or (points and _LABELS.get(x)) or _column(last, x).label,
        y_label=options.y_label or _column(options.y).label,
        lines=tuple(drawn),
        x_from_zero=not points and not x.startswith("epsilon"),
        y_from_zero=_column(options.y).from_zero,
        x_log="x" in (options.log or ""),
        y_log="y" in (options.log or ""),
    )
    most = max(line["n"].max() for line in lines.values())
    if most > 1:
        sentences.append(f"Means over up to {most} seeds; bands: {BANDS[options.band]}.")
    if len(lines) > MOST_LINES:
        sentences.append(f"Drawn are the first {MOST_LINES} of {len(lines)} lines.")
    if unfinished := [run.path.name for run in runs if not run.finished]:
        sentences.append(f"Not finished, drawn as far as they are: {in_short(unfinished)}.")
    allowed = [run.summary.get("omniscient", run.values.get("attack.omniscient")) for run in runs]
    if hidden := [run.path.name for run, seen in zip(runs, allowed, strict=True) if seen]:
        sentences.append(f"In these runs {SEES_HIDDEN}: {in_short(hidden)}.")
    width, note = WIDTHS.get(options.width), " ".join(sentences)
    draw_panels(options.out, [[panel]], options.title or "", note, "", width, options.font_size)
    return sentences


def _column(name: str, other: str = "") -> Quantity:
    return COLUMNS.get(name, Quantity(other or name, from_zero=False))


def _ordered(lines: Lines) -> dict[str, pd.DataFrame]:
    """Return the lines ordered by the numbers in their labels: σ=2 comes before σ=10."""

    def rank(label: str) -> list[str | float]:
        parts = re.split(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
        return [float(part) if i % 2 else part for i, part in enumerate(parts)]

    return {label: lines[label] for label in sorted(lines, key=rank)}
