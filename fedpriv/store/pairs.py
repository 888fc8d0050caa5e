"""Differences between paired runs: runs of one seed with the same lots, cohorts and noise.

What two such runs have in common cancels in their difference, so its interval over seeds is usually much
shorter than the means and standard deviations of the two would suggest. Those of the two say nothing about
it: the runs are not independent.

Seeds are the independent units. Pairs of one seed under several names, or with several noise seeds, share
partition and initial weights, so their differences are averaged before the interval is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pandas as pd

from fedpriv.common.files import write_csv
from fedpriv.store.table import Table

PAIRED = "paired"
LEVEL = 0.95
FEWEST = 3
"""Seeds of an interval: with two, Student's quantile is 12.7 and the interval says nothing."""
TOO_FEW, EQUAL = "too few pairs for an interval", "all differences equal"
BEYOND = "reaches beyond ±100 %: too few pairs"
TOGETHER = (
    "Paired runs: each ε holds if one run of a pair is seen. Together their ε is infinite, for those with "
    "privacy, because the difference of two such runs has no noise."
)
_UNITS = (PAIRED, "seed", "noise_seed")
"""What two runs of a pair have in common, and two pairs do not."""
_NO_SPREAD = 1e-9  # differences of shares are equal up to rounding


def paired_differences(
    runs: pd.DataFrame, settings: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Return the differences to the first setting, a row for each other setting and column.

    Args:
        runs: A row for each run, with its results, its seed and the name of its pair.
        settings: The columns that tell runs of one pair apart; those of the first row are the baseline.
        columns: The results that are compared.

    Returns:
        The settings, ``column``, ``pairs`` (how many seeds both were run with), ``mean``, ``low`` and
        ``high`` (Student's interval of level 0.95 for the mean difference over seeds, or nan), ``note``
        (why there is no interval, or what is wrong with it) and ``differences`` (one for each seed);
        the attribute ``baseline`` names the first setting.
    """
    units = [unit for unit in _UNITS if unit in runs]
    told_apart = [setting for setting in settings if setting not in units]
    paired = runs.dropna(subset=units[:2])
    if paired.empty or not told_apart:
        return pd.DataFrame()
    groups = list(paired.groupby(told_apart, dropna=False, sort=False))
    baseline = groups[0][1].drop_duplicates(units).set_index(units)
    rows = []
    for values, group in groups[1:]:
        other = group.drop_duplicates(units).set_index(units)
        common = other.index.intersection(baseline.index)
        for column in columns:
            here, there = (frame.loc[common, column].astype(float) for frame in (other, baseline))
            differences = here - there
            of_seeds = differences.dropna().groupby(level="seed").mean()
            named = dict(zip(told_apart, values, strict=True))
            rows.append({**named, "column": column, **_interval([*of_seeds], column)})
    found = pd.DataFrame(rows)
    first = zip(told_apart, groups[0][0], strict=True)
    found.attrs["baseline"] = " ".join(f"{key}={value}" for key, value in first)
    return found


def share_noise(runs: pd.DataFrame) -> bool:
    """Return whether two private runs are of one pair: seen together, they have no noise."""
    units = [unit for unit in _UNITS if unit in runs]
    private = runs[runs["epsilon_sound"].notna()].dropna(subset=units[:2])
    return bool(private.duplicated(units).any())


def _interval(differences: Sequence[float], column: str) -> dict[str, Any]:
    """Return the mean m of n differences and the interval m ± t s / √n, t of n - 1 degrees of freedom."""
    from scipy.special import stdtrit

    values, low, high, note = pd.Series(differences, dtype=float), math.nan, math.nan, ""
    if len(values) < FEWEST:
        note = TOO_FEW
    elif values.max() - values.min() < _NO_SPREAD:
        note = EQUAL
    elif not values.map(math.isfinite).all():
        note = "a difference is not finite"
    else:
        quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
        half = quantile * float(values.std()) / math.sqrt(len(values))
        low, high = float(values.mean()) - half, float(values.mean()) + half
        if column.endswith("accuracy") and max(-low, high) > 1:
            note = BEYOND
    return {
        "pairs": len(values), "mean": float(values.mean()), "low": low, "high": high, "note": note,
        "differences": tuple(differences),
    }  # fmt: skip


class Differences(Protocol):
    """A row of :func:`paired_differences`."""

    low: float
    high: float
    note: str
    pairs: int
    differences: tuple[float, ...]


def interval_words(row: Differences, shown: Callable[[float], str], unit: str = "") -> str:
    """Return a row's interval as text, or why there is none; of too few differences, each of them.

    Args:
        row: A row of :func:`paired_differences`.
        shown: Formats a difference, without its unit.
        unit: What follows the numbers.
    """
    if not math.isnan(row.low):
        interval = f"{shown(row.low)} … {shown(row.high)}{unit}"
        return f"{interval} ({row.note})" if row.note else interval
    if row.note != TOO_FEW or row.pairs < 2:
        return row.note
    return f"{row.note} ({', '.join(map(shown, row.differences))}{unit})"


def table_of(differences: pd.DataFrame) -> Table:
    """Return the differences of shares as a table of percentage points."""
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
        told = (row.column.replace("_", " "), str(row.pairs), mean)
        table.add(*map(str, values), *told, interval_words(row, percent, " points"))
    return table


def write_differences(differences: pd.DataFrame, path: Any) -> None:
    """Write the differences as CSV, those of single seeds in one cell."""
    single = [" ".join(f"{value:.6g}" for value in each) for each in differences["differences"]]
    write_csv(path, differences.assign(differences=single))
