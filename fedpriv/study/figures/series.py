"""The data frame of a figure's finished runs, and the drawn values: means and bands over seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.store.pairs import FEWEST, PAIRED, band, spread, thin
from fedpriv.store.saved import unreadable
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import SOUND, Axes, CurveGroup, Figure, Mark, Points
from fedpriv.study.figures.jobs import DONE, Job

END = "end "  # before the name of a result in summary.json, in the columns of the frame
QUANTITIES = {**STATED_COLUMNS, "epsilon": COLUMNS["epsilon"]}
MARGIN = 5.0  # a vacuous ε is drawn at this multiple of the largest ε that is not


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
        return int(self.stored.environment.get("stream_version", 1))


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
    scales = [COLUMNS[axes.x].scale, COLUMNS[axes.y].scale]
    lines = [
        run[[axes.x, axes.y]].set_axis(["x", "y"], axis=1).astype(float) * scales
        for _, run in rows.groupby("run", sort=False)
    ]
    return band(lines, axes.band, scale_of(axes))


def scale_of(axes: Axes) -> str:
    """Return the scale of the bands around means on these axes."""
    return "share" if COLUMNS[axes.y].scale == 100 else axes.y_scale


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
            tables.append(
                spread(np.array([x]), y.to_numpy()[:, np.newaxis], axes.band, scale_of(axes))
            )
    if not tables:
        return band([])
    table = pd.concat(tables, ignore_index=True)
    if axes.x == SOUND:
        table = table.drop_duplicates().sort_values("x", kind="stable", ignore_index=True)
    return table


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
        rows = rows.iloc[thin(len(rows))]
        value = rows[axes.y] * CLIENT_COLUMNS[axes.y].scale
        columns = {"x": rows[axes.x], "mean": value, "low": value, "high": value, "n": 1}
        tables.append(pd.DataFrame({"client": client, **columns}))
    return pd.concat(tables, ignore_index=True)


def figure_table(figure: Figure, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the drawn points, the content of figure.csv.

    Returns:
        Columns group, axes, curve, client (where each client has a line), x, mean, low, high, n and band,
        the kind of low and high: t, range, sd or none, as in :data:`BANDS`. A mark has n = 0, and ``stated``
        where low and high are from its source. A mark that is a level line goes from the first to the last
        point of the figure, or x that is drawn.
    """
    rows_of = dict(list(frame.groupby(["panel", "curve"], sort=False)))
    tables: list[pd.DataFrame] = []

    def add(group: CurveGroup, axes: Axes, curve: str, drawn: pd.DataFrame) -> None:
        names = {"group": group.name, "axes": axes.name, "curve": curve}
        tables.append(pd.concat([pd.DataFrame(names, drawn.index), drawn], axis=1))

    for group, axes in itertools.product(figure.groups, figure.axes):
        positions: list[float] = []
        for curve in group.curves:
            rows = rows_of.get((group.name, curve.name))
            if rows is None:
                continue
            if figure.points is not None:
                drawn = over_points(rows, axes, figure.points)
            elif axes.kind == "lines":
                drawn = over_seeds(rows, axes)
            else:
                drawn = per_client(rows["run"].iloc[0], axes)
            few = "range" if axes.band == "t" else axes.band
            kinds = ["none" if n < 2 else few if n < FEWEST else axes.band for n in drawn["n"]]
            add(group, axes, curve.name, drawn.assign(band=kinds))
            positions += [*drawn["x"]]
        if figure.points is not None:
            positions = [*figure.points.values]
        for mark in marks_on(figure, group, axes):
            ends = positions or (0.0, 1.0)
            row = {
                "x": [*{min(ends), max(ends)}] if mark.point is None else [mark.point],
                "mean": mark.value,
                "low": mark.value if mark.low is None else mark.low,
                "high": mark.value if mark.high is None else mark.high,
                "n": 0,
                "band": "none" if mark.low is None else "stated",
            }
            add(group, axes, mark.label, pd.DataFrame(row).sort_values("x"))
    columns = ["group", "axes", "curve", "x", "mean", "low", "high", "n", "band"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def marks_on(figure: Figure, group: CurveGroup, axes: Axes) -> list[Mark]:
    """Return the marks of a group about the quantity y of the axes. A map has no marks."""
    if axes.kind != "lines":
        return []
    return [mark for mark in figure.marks if (mark.group, mark.column) == (group.name, axes.y)]
