"""Drawn values of a figure: evaluated rounds of finished runs, with mean and band over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError
from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS
from fedpriv.store.pairs import FEWEST, INTERVALS, LEVEL, student_half_width
from fedpriv.store.saved import unreadable
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import SOUND, Axes, Points
from fedpriv.study.figures.jobs import DONE, Job

MARGIN = 5.0  # a vacuous ε is drawn at this multiple of the largest ε that is not
POINTS = 200  # most points of a line: a column of print cannot show more
FEWEST_RESAMPLED = 5
"""Smallest number of seeds for a bootstrap. With fewer its intervals are far too short."""
BANDS = {
    "t": INTERVALS,
    "range": "lowest to highest seed",
    "sd": "± one sample standard deviation over seeds",
    "bootstrap": f"{LEVEL:.0%} bootstrap intervals for the mean (percentiles of 2,000 resamples)",
    "none": "none",
}
"""Kinds of bands, and their meaning in a caption."""


@dataclass(frozen=True)
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

    def end(self, column: str) -> float:
        """Return a column's value at the end of the run, nan where there is none.

        The value is the last evaluated one, the number of rounds run for the column ``round``, or the result
        of an audit.
        """
        if column in AUDIT_COLUMNS:
            result = self.summary.get(column)
            return math.nan if result is None else float(result)
        if column == "round":
            return float(self.summary["rounds"])
        if column not in self.metrics or not len(
            self.metrics
        ):  # a run without a backdoor has no such column
            return math.nan
        return float(self.metrics[column].iloc[-1])


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


def over_seeds(runs: Sequence[FigureRun], axes: Axes) -> pd.DataFrame:
    """Return x, mean, low, high and n over the seeds of one curve, in the units shown."""
    return band([line for run in runs if len(line := _line(run.metrics, axes))], axes.band)


def over_points(runs: Sequence[FigureRun], axes: Axes, points: Points) -> pd.DataFrame:
    """Return x, mean, low, high and n of the ends of a curve's runs at each point, in the units shown.

    A curve that is run at no point in particular has the same values at each point. Over the sound ε of the
    runs, a curve has a point where its runs have a guarantee that is not vacuous, and one at the margin for
    all others; a curve that is run at no point has its end at the margin alone.
    """
    tables = []
    for point in points.values:
        at_point = [run for run in runs if run.job.point in (point, None)]
        values = np.array([run.end(axes.y) for run in at_point])
        finite = np.isfinite(values)
        values = values[finite] * COLUMNS[axes.y].scale
        x = point
        if axes.x == SOUND:
            x = shown_epsilon([run.summary.get(SOUND) for run in at_point], axes)
        if len(values):
            tables.append(spread(np.array([x]), values[:, np.newaxis], axes.band))
    if not tables:
        return band([])
    table = pd.concat(tables, ignore_index=True)
    if axes.x == SOUND:
        table = table.drop_duplicates().sort_values("x", kind="stable", ignore_index=True)
    return table


def shown_epsilon(sound: Sequence[float | None], axes: Axes) -> float:
    """Return where runs with these sound ε are drawn: the largest ε, or the margin where it is vacuous.

    Args:
        sound: Sound ε of the runs; None: the run claims no privacy.
        axes: Axes over the sound ε.
    """
    assert axes.vacuous_above is not None
    largest = max(
        (math.inf if epsilon is None else float(epsilon) for epsilon in sound), default=math.inf
    )
    return largest if largest <= axes.vacuous_above else MARGIN * axes.vacuous_above


def spread(x: np.ndarray, y: np.ndarray, kind: str) -> pd.DataFrame:
    """Return x, mean, low, high and n of values over seeds.

    Args:
        x: Positions [p].
        y: Values [seeds, p].
        kind: A kind of :data:`BANDS`. With too few seeds for an interval it is lowest to highest.
    """
    mean, low, high = y.mean(0), y.min(0), y.max(0)
    if kind == "none":
        low = high = mean
    elif kind == "sd" and len(y) > 1:
        sd = y.std(0, ddof=1)
        low, high = mean - sd, mean + sd
    elif kind == "t" and len(y) >= FEWEST:
        half_width = student_half_width(y)
        low, high = mean - half_width, mean + half_width
    elif kind == "bootstrap" and len(y) > 1:
        low, high = _resampled(y)
    return pd.DataFrame({"x": x, "mean": mean, "low": low, "high": high, "n": len(y)})


def band_of(kind: str, seeds: int) -> str:
    """Return the kind of band that :func:`spread` makes of so many seeds; ``none`` of a single one."""
    if seeds < 2:
        return "none"
    return "range" if kind == "t" and seeds < FEWEST else kind


def _resampled(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of percentile bootstrap intervals for the means of values [seeds, p].

    Raises:
        ConfigError: There are too few seeds.
    """
    if len(y) < FEWEST_RESAMPLED:
        allowed = f"t, range or sd below {FEWEST_RESAMPLED} seeds; a curve has {len(y)}"
        raise ConfigError("--band", "bootstrap", allowed)
    from scipy.stats import bootstrap  # imported late: it takes a second

    result = bootstrap(
        (y,), np.mean, n_resamples=2000, vectorized=True, axis=0, confidence_level=LEVEL,
        method="percentile", random_state=0,
    )  # fmt: skip
    return result.confidence_interval.low, result.confidence_interval.high


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


def _line(metrics: pd.DataFrame, axes: Axes) -> pd.DataFrame:
    """Return x and y of one run in the units shown, where both are finite, with x increasing."""
    x = metrics[axes.x].astype(float) * COLUMNS[axes.x].scale
    y = metrics[axes.y].astype(float) * COLUMNS[axes.y].scale
    finite = np.isfinite(x) & np.isfinite(y)
    line = pd.DataFrame({"x": x[finite], "y": y[finite]}).sort_values("x", kind="stable")
    return line.drop_duplicates("x", keep="last").reset_index(drop=True)


def _thin(count: int) -> np.ndarray:
    """Return indices of at most POINTS of ``count`` rows, evenly spaced, including the last row."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))
