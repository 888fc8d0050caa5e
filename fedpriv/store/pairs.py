"""Differences between paired runs: runs of one seed with the same lots, cohorts and noise.

The randomness that two paired runs share cancels in their difference. So the confidence interval of the
difference over seeds is usually much shorter than the standard deviations of the two runs suggest. These
standard deviations say nothing about the difference, because paired runs are not independent.

Seeds are the independent units. Pairs of one seed under several names, or with several noise seeds, share
partition and initial weights, so their differences are averaged before the interval is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedpriv.common.files import write_csv
from fedpriv.store.table import Table

PAIRED = "paired"
LEVEL = 0.95
FEWEST = 3
"""Smallest number of seeds for an interval. With two seeds Student's quantile is 12.7, and the interval says
nothing."""
TOO_FEW, EQUAL = "too few pairs for an interval", "all differences equal"
BEYOND = "reaches beyond ±100 %: too few pairs"
TOGETHER = (
    "Paired runs: each ε holds if one run of a pair is seen. Together their ε is infinite, for those with "
    "privacy, because the difference of two such runs has no noise."
)
_UNITS = (PAIRED, "seed", "noise_seed")
"""Columns that are equal within a pair of runs and differ between pairs."""
POINTS = 200  # most points of a line: a column of print cannot show more
_NO_SPREAD = 1e-9  # differences of shares this close are equal up to rounding


def paired_differences(
    runs: pd.DataFrame, settings: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Return the differences of each setting to the first setting.

    Args:
        runs: A row for each run, with its results, its seed and the name of its pair.
        settings: The columns that distinguish runs of one pair; the values in the first row are the baseline.
        columns: The results that are compared.

    Returns:
        A row for each other setting and each result: the settings, ``column`` (the result), ``pairs`` (number
        of seeds that both settings were run with), ``mean``, ``low`` and ``high`` (Student's interval of
        level 0.95 for the mean difference over seeds, or nan), ``note`` (the reason why the interval is
        absent or doubtful) and ``differences`` (one for each seed). ``attrs["baseline"]`` names the first
        setting. The table is empty without paired runs.
    """
    units = [unit for unit in _UNITS if unit in runs]
    distinguishing = [setting for setting in settings if setting not in units]
    paired = runs.dropna(subset=units[:2])
    if paired.empty or not distinguishing:
        return pd.DataFrame()
    groups = list(paired.groupby(distinguishing, dropna=False, sort=False))
    baseline = groups[0][1].drop_duplicates(units).set_index(units)
    rows = []
    for setting_values, group in groups[1:]:
        other = group.drop_duplicates(units).set_index(units)
        # Only units that both settings were run with can be compared.
        common = other.index.intersection(baseline.index)
        for column in columns:
            other_values, baseline_values = (
                frame.loc[common, column].astype(float) for frame in (other, baseline)
            )
            differences = other_values - baseline_values
            seed_means = differences.dropna().groupby(level="seed").mean()
            setting_columns = dict(zip(distinguishing, setting_values, strict=True))
            rows.append({**setting_columns, "column": column, **_interval([*seed_means], column)})
    result = pd.DataFrame(rows)
    first = zip(distinguishing, groups[0][0], strict=True)
    result.attrs["baseline"] = " ".join(f"{key}={value}" for key, value in first)
    return result


def share_noise(runs: pd.DataFrame) -> bool:
    """Return whether two private runs are a pair, whose joint ε is infinite.

    Args:
        runs: A row for each run, as in :func:`paired_differences`. A run without privacy has no
            ``epsilon_sound``.
    """
    units = [unit for unit in _UNITS if unit in runs]
    private = runs[runs["epsilon_sound"].notna()].dropna(subset=units[:2])
    return bool(private.duplicated(units).any())


def student_half_width(values: np.ndarray) -> np.ndarray:
    """Return half the width of Student's interval of level 0.95 for means.

    The half width is t s / √n with the standard deviation s, and t the quantile of Student's distribution
    with n - 1 degrees of freedom.

    Args:
        values: Values of n >= 2 seeds [n, ...].
    """
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    return quantile * values.std(0, ddof=1) / math.sqrt(len(values))


def interval(mean: np.ndarray, half: np.ndarray, scale: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of mean ± half on a scale of :func:`spread`."""
    if scale == "linear":
        return mean - half, mean + half
    with np.errstate(divide="ignore", invalid="ignore"):
        part = mean / 100 if scale == "share" else np.zeros_like(mean)
        factor = np.exp(half / (mean * (1 - part)))
        low, high = (mean * f / (1 - part + part * f) for f in (1 / factor, factor))
    return np.where(half > 0, low, mean), np.where(half > 0, high, mean)


INTERVALS = f"{LEVEL:.0%} intervals for the mean (Student's t; of 2 seeds lowest to highest)"
"""Kind of interval in all tables of means over seeds."""
BANDS = {
    "t": INTERVALS,
    "range": "lowest to highest seed",
    "sd": "± one sample standard deviation over seeds",
    "none": "none",
}
"""Kinds of bands, and their meaning in a caption."""


def spread(x: np.ndarray, y: np.ndarray, kind: str, scale: str = "linear") -> pd.DataFrame:
    """Return x, mean, low, high and n of values over seeds.

    Args:
        x: Positions [p].
        y: Values [seeds, p].
        kind: A kind of :data:`BANDS`. With too few seeds for an interval it is lowest to highest.
        scale: ``share`` (of 100) or ``log``: the interval is one of logits, or of logarithms, by the delta
            method, so that it ends within 0 and 100, or above 0.
    """
    mean, low, high = y.mean(0), y.min(0), y.max(0)
    if kind == "none":
        low = high = mean
    elif (kind == "sd" and len(y) > 1) or (kind == "t" and len(y) >= FEWEST):
        half_width = y.std(0, ddof=1) if kind == "sd" else student_half_width(y)
        low, high = interval(mean, half_width, scale)
    return pd.DataFrame({"x": x, "mean": mean, "low": low, "high": high, "n": len(y)})


def band(lines: Sequence[pd.DataFrame], kind: str = "t", scale: str = "linear") -> pd.DataFrame:
    """Return x, mean, low, high and n over several lines.

    Lines with the same x are averaged at each x. Lines with different x, as with a σ that adapts, are
    interpolated linearly on the range that all lines cover. A single line stays as it is, but for points
    beyond the first :data:`POINTS`: then evenly spaced ones remain.

    Args:
        lines: Columns x and y of each line. Points that are not finite are left out, and of several points
            with one x all but the last.
        kind: A kind of :data:`BANDS`.
        scale: As in :func:`spread`.
    """
    finite = (line[np.isfinite(line).all(axis=1)] for line in lines)
    lines = [
        line.sort_values("x", kind="stable").drop_duplicates("x", keep="last")
        for line in finite
        if len(line)
    ]
    if not lines:
        return pd.DataFrame(columns=["x", "mean", "low", "high", "n"], dtype=float)
    x = lines[0]["x"].to_numpy()
    if all(len(line) == len(x) and np.allclose(line["x"], x) for line in lines):
        x = x[thin(len(x))]
    else:
        begin = max(line["x"].iloc[0] for line in lines)
        end = min(line["x"].iloc[-1] for line in lines)
        x = np.linspace(begin, max(begin, end), POINTS)
    return spread(x, np.stack([np.interp(x, line["x"], line["y"]) for line in lines]), kind, scale)


def thin(count: int) -> np.ndarray:
    """Return indices of at most :data:`POINTS` of ``count`` rows, evenly spaced, including the last row."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))


def spread_words(values: np.ndarray, shown: Callable[[float], str]) -> str:
    """Return what follows a mean over seeds, such as `` ± 0.35``, or `` (91.75 to 92.45)`` of two seeds.

    The result is empty for one seed, and for two seeds that read the same.

    Args:
        values: Finite values of the seeds [n].
        shown: Writes a number.
    """
    if len(values) >= FEWEST:
        return f" ± {shown(float(student_half_width(values)))}"
    low, high = shown(float(values.min())), shown(float(values.max()))
    return "" if low == high else f" ({low} to {high})"


def _interval(differences: Sequence[float], column: str) -> dict[str, Any]:
    """Return mean and confidence interval of n differences."""
    values, low, high, note = pd.Series(differences, dtype=float), math.nan, math.nan, ""
    if len(values) < FEWEST:
        note = TOO_FEW
    elif values.max() - values.min() < _NO_SPREAD:
        note = EQUAL
    elif not values.map(math.isfinite).all():
        note = "a difference is not finite"
    else:
        half = float(student_half_width(values.to_numpy()))
        low, high = float(values.mean()) - half, float(values.mean()) + half
        if column.endswith("accuracy") and max(-low, high) > 1:
            note = BEYOND
    return {
        "pairs": len(values), "mean": float(values.mean()), "low": low, "high": high, "note": note,
        "differences": tuple(differences),
    }  # fmt: skip


class Differences(Protocol):
    """A row of :func:`paired_differences`.

    Attributes:
        low: Lower end of the confidence interval, or nan.
        high: Upper end of the confidence interval, or nan.
        note: The reason why the interval is absent or doubtful; else empty.
        pairs: Number of seeds that both settings were run with.
        differences: The difference of each seed.
    """

    low: float
    high: float
    note: str
    pairs: int
    differences: tuple[float, ...]


def interval_words(row: Differences, shown: Callable[[float], str], unit: str = "") -> str:
    """Return the interval of a row as text, or the reason why there is none.

    With too few seeds for an interval the text lists the single differences.

    Args:
        row: A row of :func:`paired_differences`.
        shown: Function that formats a difference without its unit.
        unit: Unit that is appended to the numbers.
    """
    if not math.isnan(row.low):
        interval = f"{shown(row.low)} … {shown(row.high)}{unit}"
        return f"{interval} ({row.note})" if row.note else interval
    if row.note != TOO_FEW or row.pairs < 2:
        return row.note
    return f"{row.note} ({', '.join(map(shown, row.differences))}{unit})"


def table_of(differences: pd.DataFrame) -> Table:
    """Return differences of shares as a table in percentage points."""
    baseline = differences.attrs["baseline"]
    title = f"Paired differences to {baseline}, the first row ({LEVEL:.0%} intervals over seeds)"
    settings = list(differences.columns[: differences.columns.get_loc("column")])
    table = Table(title, (*map(str, settings), "column", "pairs", "difference", "interval"))

    def percent(share: float) -> str:
        return f"{100 * share:+.2f}"

    for values, row in zip(
        differences[settings].itertuples(index=False), differences.itertuples(), strict=True
    ):
        mean = "-" if math.isnan(row.mean) else f"{percent(row.mean)} points"
        cells = (row.column.replace("_", " "), str(row.pairs), mean)
        table.add(*map(str, values), *cells, interval_words(row, percent, " points"))
    return table


def write_differences(differences: pd.DataFrame, path: Any) -> None:
    """Write the differences as CSV; the differences of single seeds share one cell."""
    single = [" ".join(f"{value:.6g}" for value in each) for each in differences["differences"]]
    write_csv(path, differences.assign(differences=single))
