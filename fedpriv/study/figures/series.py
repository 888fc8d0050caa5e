"""What is drawn: the evaluated rounds of finished runs, and mean and range over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import Axes, Points
from fedpriv.study.figures.jobs import DONE, Job

POINTS = 200
"""Most points of a line: more than a column of print can show."""


@dataclass(frozen=True)
class FigureRun:
    """A finished run of a figure."""

    job: Job
    summary: dict[str, Any]
    metrics: pd.DataFrame

    @property
    def without_guarantee(self) -> bool:
        """Whether the run is said to be private and its sound ε is infinite."""
        sound = self.summary.get("epsilon_sound")
        return sound is not None and math.isinf(sound)

    @property
    def diverged(self) -> str:
        """That it diverged, in words; empty if it did not."""
        if self.summary.get("stop_reason") != "diverged":
            return ""
        return (
            f"diverged in round {self.summary['rounds']}: a loss or weight is no longer finite; it is drawn "
            "to there and not run again"
        )

    @cached_property
    def stored(self) -> StoredRun:
        """The run's folder, for what few figures ask of it."""
        return StoredRun(self.job.folder)

    @property
    def stream_version(self) -> int:
        """The version of the random streams it was made with; 1 where it does not say."""
        version = self.stored.environment.get("stream_version", 1)
        return version if isinstance(version, int) else 1

    def end(self, column: str) -> float:
        """A column's value at the end: its last evaluated row, the number of rounds run, or what an audit
        found."""
        if column in AUDIT_COLUMNS:
            found = self.summary.get(column)
            return math.nan if found is None else float(found)
        if column == "round":
            return float(self.summary["rounds"])
        return float(self.metrics[column].iloc[-1]) if len(self.metrics) else math.nan


def read_runs(jobs: Iterable[Job]) -> list[FigureRun]:
    """The finished ones among ``jobs``, evaluated rounds only."""
    runs = []
    for job in jobs:
        if job.state == DONE:
            stored = StoredRun(job.folder)
            if "test_accuracy" not in stored.metrics:
                stored.refuse(stored.files.metrics, "it has no test_accuracy")
            evaluated = pd.DataFrame(stored.metrics.known("test_accuracy"))
            runs.append(FigureRun(job, stored.summary, evaluated))
    return runs


def over_seeds(runs: Sequence[FigureRun], axes: Axes) -> pd.DataFrame:
    """x, mean, low, high and n over the seeds of one curve, in the units shown."""
    return band([line for run in runs if len(line := _line(run.metrics, axes))], axes.band)


def over_points(runs: Sequence[FigureRun], axes: Axes, points: Points) -> pd.DataFrame:
    """x, mean, low, high and n of the ends of one curve's runs at each point, in the units shown.

    A curve that is run at no point in particular has the same values at each.
    """
    tables = []
    for point in points.values:
        values = np.array([run.end(axes.y) for run in runs if run.job.point in (point, None)])
        values = values[np.isfinite(values)] * COLUMNS[axes.y].scale
        if len(values):
            tables.append(spread(np.array([point]), values[:, np.newaxis], axes.band))
    return pd.concat(tables, ignore_index=True) if tables else band([])


def spread(x: np.ndarray, y: np.ndarray, kind: str) -> pd.DataFrame:
    """x, mean, low, high and n of seeds × x values."""
    mean, low, high = y.mean(0), y.min(0), y.max(0)
    if kind == "sd" and len(y) > 1:
        sd = y.std(0, ddof=1)
        low, high = mean - sd, mean + sd
    return pd.DataFrame({"x": x, "mean": mean, "low": low, "high": high, "n": len(y)})


def band(lines: Sequence[pd.DataFrame], kind: str = "range") -> pd.DataFrame:
    """x, mean, low, high and n of lines of x and y; of several, x must increase.

    ``kind``: the band from the lowest to the highest line (``range``), or one sample standard
    deviation to either side of the mean (``sd``).

    Lines with the same x are compared there; others, as with σ that adapts, are interpolated
    linearly on the range that all of them cover. A line alone stays as it is.
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
    """client, x, mean (the value itself), low, high, n for every client of one run."""
    clients = pd.DataFrame(run.stored.clients).astype({"client": int})
    tables = []
    for client, rows in clients.groupby("client"):
        rows = rows[rows[axes.y].notna()]
        kept = rows.iloc[_thin(len(rows))]
        value = kept[axes.y] * CLIENT_COLUMNS[axes.y].scale
        tables.append(
            pd.DataFrame(
                {
                    "client": client,
                    "x": kept[axes.x],
                    "mean": value,
                    "low": value,
                    "high": value,
                    "n": 1,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _line(metrics: pd.DataFrame, axes: Axes) -> pd.DataFrame:
    """x and y of one run in the units shown, where both are finite, x increasing."""
    x = metrics[axes.x].astype(float) * COLUMNS[axes.x].scale
    y = metrics[axes.y].astype(float) * COLUMNS[axes.y].scale
    kept = np.isfinite(x) & np.isfinite(y)
    line = pd.DataFrame({"x": x[kept], "y": y[kept]}).sort_values("x", kind="stable")
    return line.drop_duplicates("x", keep="last").reset_index(drop=True)


def _thin(count: int) -> np.ndarray:
    """Indices of at most POINTS of ``count`` rows, evenly, the last among them."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))
