"""Differences between paired runs: runs of one seed with the same lots, cohorts and noise.

What two such runs have in common cancels in their difference, so its interval over seeds is usually much
shorter than the means and standard deviations of the two would suggest. Those of the two say nothing about
it: the runs are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from rich.table import Table

PAIRED = "paired"
LEVEL = 0.95
_UNITS = (PAIRED, "seed", "noise_seed")
"""What two runs of a pair have in common, and two pairs do not."""


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
        ``high``: Student's interval of level 0.95 for the mean difference, nan for a single pair.
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
            found = (
                (other.loc[common, column] - baseline.loc[common, column]).astype(float).dropna()
            )
            numbers = zip(("pairs", "mean", "low", "high"), _interval(found), strict=True)
            named = zip(told_apart, values, strict=True)
            rows.append({**dict(named), "column": column, **dict(numbers)})
    return pd.DataFrame(rows)


def _interval(differences: pd.Series) -> tuple[int, float, float, float]:
    """Return (count, mean, low, high): m ± t s / √n, t of n - 1 degrees of freedom."""
    from scipy.special import stdtrit

    count, mean = len(differences), float(differences.mean())
    if count < 2:
        return count, mean, math.nan, math.nan
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2) * differences.std() / math.sqrt(count))
    return count, mean, mean - half, mean + half


def table_of(differences: pd.DataFrame) -> Table:
    """Return the differences of shares as a table of points of a percent."""
    title = f"Paired differences to the first row ({LEVEL:.0%} intervals over seeds)"
    table = Table(title=title, title_justify="left", title_style="bold")
    last = differences.columns.get_loc("column")
    for name in (*differences.columns[:last], "of", "pairs", "difference", "interval"):
        table.add_column(str(name), overflow="fold")
    for row in differences.itertuples(index=False):
        *settings, column, pairs, mean, low, high = row
        shown = "-" if math.isnan(low) else f"{100 * low:+.2f} … {100 * high:+.2f} %"
        table.add_row(
            *map(str, settings), column.replace("_", " "), str(pairs), f"{100 * mean:+.2f} %", shown
        )
    return table
