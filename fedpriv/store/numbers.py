"""Columns of numbers, read from a run's CSV without pandas. Importing pandas takes as long as drawing."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from fedpriv.store.saved import LARGEST_TABLE, refuse_no_file, unreadable


class Columns(dict[str, np.ndarray]):
    """Columns of floats [n] by name; an empty cell is NaN."""

    def where(self, rows: np.ndarray) -> Columns:
        """Return only the given rows, which are a mask [n] or indices."""
        return Columns({name: values[rows] for name, values in self.items()})

    def known(self, name: str) -> Columns:
        """Return only the rows with a value in this column."""
        return self.where(~np.isnan(self[name]))

    def has(self, name: str) -> bool:
        """Return whether the column exists and has any value."""
        return name in self and not np.isnan(self[name]).all()

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(next(iter(self.values()), ()))


def read_columns(
    path: Path,
    names: Collection[str] | None = None,
    lowest: tuple[str, int] | None = None,
) -> Columns:
    """Read a CSV of numbers and empty cells.

    The file is read row by row, and only the requested numbers stay in memory.

    Args:
        path: The file.
        names: Columns to read; None: all.
        lowest: A column and a count n. Only rows whose value in the column is among the n lowest distinct
            values are kept; with ``("client", 10)`` the rows of ten clients.

    Raises:
        ConfigError: The file cannot be read or is no table of numbers.
    """
    refuse_no_file(path, LARGEST_TABLE)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = next(rows, None)
            if header is None:
                raise ValueError("no header")
            # A column that is absent raises ValueError, too.
            indices = [*range(len(header))] if names is None else [*map(header.index, names)]
            limit = lowest and (header.index(lowest[0]), lowest[1])
            cells = _cells(rows, len(header), indices, limit)
        columns = np.asarray(cells).reshape(-1, len(indices))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a table of numbers"
        raise unreadable(path, reason) from None
    read = Columns(zip((header[index] for index in indices), columns.T, strict=True))
    if lowest is None:
        return read
    values = read[lowest[0]]
    return read.where(np.isin(values, np.unique(values)[: lowest[1]]))


def _cells(
    rows: Iterable[list[str]], width: int, indices: Sequence[int], lowest: tuple[int, int] | None
) -> array[float]:
    """Return the numbers of the columns at ``indices``, row after row.

    ``lowest_values`` only ever shrinks towards the lowest values of the file. So some early rows remain that
    the caller must drop at the end.
    """
    # Eight bytes a number. Lists of floats would take four times the memory.
    cells = array("d")
    lowest_values: set[float] = set()
    for row in rows:
        numbers = [float(cell) if cell else math.nan for cell in row]
        if len(numbers) != width:
            raise ValueError("a row of another length")
        if lowest is not None:
            value = numbers[lowest[0]]
            if value not in lowest_values:
                lowest_values = set(sorted({*lowest_values, value})[: lowest[1]])
            if value not in lowest_values:
                continue
        cells.extend([numbers[index] for index in indices])
    return cells


def between_known(values: np.ndarray) -> np.ndarray:
    """Return the values [n] with each NaN between two known values replaced by linear interpolation.

    NaN before the first and after the last known value stays.
    """
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return values
    return np.interp(np.arange(len(values)), known, values[known], left=np.nan, right=np.nan)
