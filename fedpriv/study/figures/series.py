"""The data frame of a figure's finished runs, and the drawn values: means and bands over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.store.pairs import FEWEST, PAIRED, spread
from fedpriv.store.saved import unreadable
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import SOUND, Axes, CurveGroup, Figure, Mark, Points
from fedpriv.study.figures.jobs import DONE, Job

END = "end "  # before the name of a result in summary.json, in the columns of the frame
QUANTITIES = {**STATED_COLUMNS, "epsilon": COLUMNS["epsilon"]}
MARGIN = 5.0  # a vacuous ε is drawn at this multiple of the largest ε that is not
POINTS = 200  # most points of a line: a column of print cannot show more


@dataclass(frozen=True, eq=False)
class FigureRun:
    """A finished run of a figure.

    Attributes:
        job: The job that the run is of.
        summary: Content of summary.json.
        metrics: Evaluated rounds of metrics.csv, a row each.
    """

    job: Job
    summary: dict[str, Any]
    metrics: pd.DataFrame

    @property
    def without_guarantee(self) -> bool:
        """True where the run claims privacy, but its sound ε is infinite."""
        sound = self.summary.get("epsilon_sound")
        return sound is not None and math.isinf(sound)

    @property
    def omniscient(self) -> bool:
        """True where attackers see what the trust model hides."""
        return bool(self.summary.get("omniscient"))

    @property
    def diverged(self) -> str:
        """Sentence about the divergence of the run; empty for a run that did not diverge."""
        if self.summary.get("stop_reason") != "diverged":
            return ""
        return (
            f"diverged in round {self.summary['rounds']}: a loss or weight is no longer finite; it is drawn "
            "to there and not run again"
        )

    @cached_property
    def stored(self) -> StoredRun:
        """Folder of the run, read only for the figures that need more than summary and metrics."""
        return StoredRun(self.job.folder)

    @property
    def stream_version(self) -> int:
        """Version of the random streams of the run; 1 for old runs that do not record a version."""
        version = self.stored.environment.get("stream_version", 1)
        return version if isinstance(version, int) else 1


def read_runs(jobs: Iterable[Job]) -> list[FigureRun]:
    """Return the finished runs among ``jobs``, with their evaluated rounds only.

    Raises:
        ConfigError: A stored run cannot be read.
    """
    runs = []
    for job in jobs:
        if job.state == DONE:
            stored = StoredRun(job.folder)
            if "test_accuracy" not in stored.metrics:
                raise unreadable(stored.files.metrics, "it has no test_accuracy")
            evaluated = stored.metrics.dropna(subset="test_accuracy").reset_index(drop=True)
            runs.append(FigureRun(job, stored.summary, evaluated))
    return runs


def frame_of(runs: Sequence[FigureRun]) -> pd.DataFrame:
    """Return the one data frame from which everything about a figure's runs is made.

    Returns:
        A row for each evaluated round (one without numbers for a run without such a round): ``panel``,
        ``curve``, ``x`` (the point of the run; NaN for a run at no point), ``seed``, ``run`` (the
        :class:`FigureRun`), the columns of metrics.csv, and ``end <name>``: the results of summary.json,
        which are the same in all rows of a run. Values are as they are stored, not in the units shown.
    """
    if not runs:
        return pd.DataFrame(columns=["panel", "curve", "x", "seed", "run"])
    rounds = [
        (run.metrics if len(run.metrics) else run.metrics.reindex([0])).assign(
            panel=run.job.group.name,
            curve=run.job.curve.name,
            x=math.nan if run.job.point is None else run.job.point,
            seed=run.job.seed,
            run=run,
        )
        for run in runs
    ]
    frame = pd.concat(rounds, ignore_index=True)
    names = (*QUANTITIES, PAIRED)
    results = {END + n: [run.summary.get(n) for run in frame["run"]] for n in names}
    return pd.concat([frame, pd.DataFrame(results, dtype=object)], axis=1)


def ends_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each run."""
    return frame.drop_duplicates("run", keep="last")


def over_seeds(rows: pd.DataFrame, axes: Axes) -> pd.DataFrame:
    """Return x, mean, low, high and n over the seeds of one curve, in the units shown.

    Args:
        rows: Rows of the curve in the frame.
        axes: The drawn columns. Points that are not finite are left out.
    """
    lines = []
    for _, run in rows.groupby("run", sort=False):
        x, y = (run[name].astype(float) * COLUMNS[name].scale for name in (axes.x, axes.y))
        finite = np.isfinite(x) & np.isfinite(y)
        line = pd.DataFrame({"x": x[finite], "y": y[finite]}).sort_values("x", kind="stable")
        if len(line):
            lines.append(line.drop_duplicates("x", keep="last"))
    return band(lines, axes.band)


def over_points(rows: pd.DataFrame, axes: Axes, points: Points) -> pd.DataFrame:
    """Return x, mean, low, high and n of the ends of a curve's runs at each point, in the units shown.

    The value at the end of a run is the last evaluated one, the number of rounds run for the column
    ``round``, or the result of an audit. A curve that is run at no point in particular has the same values at
    each point. Over the sound ε of the runs, a curve has a point where its runs have a guarantee that is not
    vacuous, and one at the margin for all others; a curve that is run at no point has its end at the margin.

    Args:
        rows: Rows of the curve in the frame.
        axes: Axes over points.
        points: The points of the figure.
    """
    last, column = ends_of(rows), axes.y
    if column == "round" or column in AUDIT_COLUMNS:
        column = END + {"round": "rounds"}.get(column, column)
    values = last[column].astype(float) if column in last else pd.Series(math.nan, last.index)
    values = values[np.isfinite(values)] * COLUMNS[axes.y].scale
    tables = []
    for point in points.values:
        at_point = last[last["x"].isna() | (last["x"] == point)]
        x, y = point, values[values.index.intersection(at_point.index)]
        if axes.x == SOUND:
            assert axes.vacuous_above is not None
            sound = (math.inf if e is None else float(e) for e in at_point[END + SOUND])
            x = max(sound, default=math.inf)
            x = x if x <= axes.vacuous_above else MARGIN * axes.vacuous_above
        if len(y):
            tables.append(spread(np.array([x]), y.to_numpy()[:, np.newaxis], axes.band))
    if not tables:
        return band([])
    table = pd.concat(tables, ignore_index=True)
    if axes.x == SOUND:
        table = table.drop_duplicates().sort_values("x", kind="stable", ignore_index=True)
    return table


def band(lines: Sequence[pd.DataFrame], kind: str = "t") -> pd.DataFrame:
    """Return x, mean, low, high and n over several lines.

    Lines with the same x are averaged at each x. Lines with different x, as with a σ that adapts, are
    interpolated linearly on the range that all lines cover. A single line stays as it is, but for points
    beyond the first :data:`POINTS`: then evenly spaced ones remain.

    Args:
        lines: Columns x and y of each line; x increases unless there is one line only.
        kind: A kind of :data:`BANDS`.
    """
    if not lines:
        return pd.DataFrame(columns=["x", "mean", "low", "high", "n"], dtype=float)
    if len(lines) == 1:
        only = lines[0].iloc[_thin(len(lines[0]))]
        y = only["y"].to_numpy()
        return pd.DataFrame({"x": only["x"].to_numpy(), "mean": y, "low": y, "high": y, "n": 1})
    first = lines[0]["x"].to_numpy()
    if all(len(line) == len(first) and np.allclose(line["x"], first) for line in lines):
        x = first[_thin(len(first))]
    else:
        begin = max(line["x"].iloc[0] for line in lines)
        end = min(line["x"].iloc[-1] for line in lines)
        x = np.linspace(begin, max(begin, end), POINTS)
    y = np.stack([np.interp(x, line["x"], line["y"]) for line in lines])
    return spread(x, y, kind)


def per_client(run: FigureRun, axes: Axes) -> pd.DataFrame:
    """Return client, x, mean (the value itself), low, high and n for every client of one run.

    Args:
        run: The run, which must have ``clients.csv``, so one with ``runtime.diagnostics``.
        axes: The columns of ``clients.csv``.
    """
    clients = run.stored.clients.astype({"client": int})
    tables = []
    for client, rows in clients.groupby("client"):
        rows = rows[rows[axes.y].notna()]
        rows = rows.iloc[_thin(len(rows))]
        value = rows[axes.y] * CLIENT_COLUMNS[axes.y].scale
        columns = {"x": rows[axes.x], "mean": value, "low": value, "high": value, "n": 1}
        tables.append(pd.DataFrame({"client": client, **columns}))
    return pd.concat(tables, ignore_index=True)


def _thin(count: int) -> np.ndarray:
    """Return indices of at most POINTS of ``count`` rows, evenly spaced, including the last row."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))


def figure_table(figure: Figure, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the drawn points, the content of figure.csv.

    Returns:
        Columns group, axes, curve, client (where each client has a line), x, mean, low, high, n and band,
        the kind of low and high: t, range, sd or none, as in :data:`BANDS`. A mark has n = 0, and ``stated``
        where low and high are from its source.
    """
    rows_of = dict(list(frame.groupby(["panel", "curve"], sort=False)))
    tables: list[pd.DataFrame] = []
    for group in figure.groups:
        for axes in figure.axes:
            positions: list[float] = []
            for curve in group.curves:
                rows = rows_of.get((group.name, curve.name))
                if rows is None:
                    continue
                if figure.points is not None:
                    drawn = over_points(rows, axes, figure.points)
                elif axes.lines == "curves":
                    drawn = over_seeds(rows, axes)
                else:
                    drawn = per_client(rows["run"].iloc[0], axes)
                few = "range" if axes.band == "t" else axes.band
                drawn["band"] = [
                    "none" if n < 2 else few if n < FEWEST else axes.band for n in drawn["n"]
                ]
                for name, value in (
                    ("curve", curve.name),
                    ("axes", axes.name),
                    ("group", group.name),
                ):
                    drawn.insert(0, name, value)
                tables.append(drawn)
                positions += [*drawn["x"]]
            tables += _mark_rows(figure, group, axes, positions)
    columns = ["group", "axes", "curve", "x", "mean", "low", "high", "n", "band"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def marks_on(figure: Figure, group: CurveGroup, axes: Axes) -> list[Mark]:
    """Return the marks of a group about the quantity y of the axes. A map has no marks."""
    if axes.kind != "lines":
        return []
    return [mark for mark in figure.marks if (mark.group, mark.column) == (group.name, axes.y)]


def _mark_rows(
    figure: Figure, group: CurveGroup, axes: Axes, drawn: Sequence[float]
) -> Iterator[pd.DataFrame]:
    """Yield the rows of figure.csv for the marks, with ``n`` 0, as a mark is of no run.

    A level line goes from the first to the last point of the figure, or x that is ``drawn``.
    """
    for mark in marks_on(figure, group, axes):
        ends = figure.points.values if figure.points is not None else (drawn or (0.0, 1.0))
        low = mark.value if mark.low is None else mark.low
        high = mark.value if mark.high is None else mark.high
        x = dict.fromkeys((min(ends), max(ends)) if mark.point is None else (mark.point,))
        row = {
            "group": group.name,
            "axes": axes.name,
            "curve": mark.label,
            "x": [*x],
            "mean": mark.value,
        }
        kind = "none" if mark.low is None else "stated"
        yield pd.DataFrame({**row, "low": low, "high": high, "n": 0, "band": kind})
