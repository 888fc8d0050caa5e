"""Numbers from elsewhere that a figure's file states or names a CSV of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.store.saved import saved_rows
from fedpriv.study.figures.definition import Axes


@dataclass(frozen=True)
class StatedPoint:
    """A number of a baseline in the units shown; ``x`` is None for a number that holds everywhere."""

    x: float | None
    y: float
    low: float | None = None
    high: float | None = None


def read_numbers(name: str, path: Path) -> list[StatedPoint]:
    """Return the numbers of a CSV with the columns x and y, and optionally low and high, or seed.

    With ``seed``, the rows of one x are averaged, and low and high are the interval over the seeds.

    Args:
        name: Key of the file, for the error.
        path: The CSV.

    Raises:
        ArgumentError: There is no such file, a column is missing or unknown, or a cell is no number.
    """
    if not path.is_file():
        raise ArgumentError(
            name, str(path), "an existing CSV file", "paths are relative to the YAML"
        )
    name = f"{name} ({path.name})"
    columns, *cells = saved_rows(path) or [[]]
    columns = [column.strip() for column in columns]
    allowed = "a CSV with the columns x and y, and low and high, or seed, if there are any"
    ranged, seeded = {"x", "y", "low", "high"}, {"x", "y", "seed"}
    known = len(set(columns)) == len(columns) and set(columns) in ({"x", "y"}, ranged, seeded)
    if not known or not cells:
        got = ", ".join(columns) or "nothing"
        raise ArgumentError(name, f"{got}{'' if cells else ' and no row'}", allowed)
    numbers: dict[float, list[dict[str, float]]] = {}
    for line, row in enumerate(cells, start=2):
        values: dict[str, float] = {}
        for column, cell in zip_longest(columns, row[: len(columns)], fillvalue=""):
            value = checks.parsed(cell.strip())
            if not checks.is_number(value) or not math.isfinite(value):
                where = f"{value} in line {line}, column {column}"
                raise ArgumentError(name, where, "a number in every cell")
            values[column] = float(value)
        numbers.setdefault(values["x"], []).append(values)
    return [_number_at(name, x, numbers[x]) for x in sorted(numbers)]


def _number_at(name: str, x: float, rows: list[dict[str, float]]) -> StatedPoint:
    """Return the number at one x: the only row, or the mean over seeds with its interval."""
    if "seed" in rows[0]:
        from fedpriv.study.figures.series import spread  # imported late: this imports pandas

        seeds = [row["seed"] for row in rows]
        if len(set(seeds)) < len(seeds):
            raise ArgumentError(
                name, f"{x:g} twice with one seed", "another seed in each row of an x"
            )
        values = np.array([[row["y"]] for row in rows])
        (mean,) = spread(np.array([x]), values, Axes.band).itertuples()
        return StatedPoint(x, mean.mean, mean.low, mean.high)
    if len(rows) > 1:
        raise ArgumentError(
            name, f"{x:g} {len(rows)} times", "each x once, unless there is a column seed"
        )
    (row,) = rows
    low, high = row.get("low"), row.get("high")
    if low is not None and high is not None and not low <= row["y"] <= high:
        raise ArgumentError(
            name, f"{low:g}, {row['y']:g}, {high:g}", "low <= y <= high in each row"
        )
    return StatedPoint(x, row["y"], low, high)
