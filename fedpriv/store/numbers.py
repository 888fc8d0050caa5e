"""Columns of numbers, read from a run's CSV without pandas, whose import takes as long as drawing them."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.store.saved import LARGEST_TABLE, refuse_no_file


class Columns(dict[str, np.ndarray]):
    """Columns [n] of floats by name; what is empty is NaN."""

    def where(self, rows: np.ndarray) -> Columns:
        """Those rows alone: a mask or indices."""
        return Columns({name: values[rows] for name, values in self.items()})

    def known(self, name: str) -> Columns:
        """The rows that have a value of this column."""
        return self.where(~np.isnan(self[name]))

    def has(self, name: str) -> bool:
        """Whether there is a column of this name with any value."""
        return name in self and not np.isnan(self[name]).all()

    @property
    def rows(self) -> int:
        return len(next(iter(self.values()), ()))


def read_columns(
    path: Path,
    names: Collection[str] | None = None,
    lowest: tuple[str, int] | None = None,
) -> Columns:
    """Read a CSV whose cells are numbers or empty, row by row: only numbers that are asked for are kept.

    Args:
        names: Columns to read; None: all.
        lowest: A column and a count: rows are left out unless the value of this column is among so many
            lowest ones in the file.

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
            kept = range(len(header)) if names is None else [header.index(name) for name in names]
            cells = _cells(rows, len(header), kept, lowest and (header.index(lowest[0]), lowest[1]))
        columns = np.frombuffer(cells).reshape(-1, len(kept)) if cells else np.empty((0, len(kept)))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a table of numbers"
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    read = Columns(zip((header[i] for i in kept), columns.T, strict=True))
    if lowest is None:
        return read
    values = read[lowest[0]]
    return read.where(np.isin(values, np.unique(values)[: lowest[1]]))


def _cells(
    rows: Iterable[list[str]], width: int, kept: Sequence[int], lowest: tuple[int, int] | None
) -> array[float]:
    """Return the numbers of the kept columns, row after row."""
    cells = array("d")
    shown: set[float] = set()
    for row in rows:
        numbers = [float(cell) if cell else math.nan for cell in row]
        if len(numbers) != width:
            raise ValueError("a row of another length")
        if lowest is not None:
            value = numbers[lowest[0]]
            if value not in shown:
                shown = set(sorted({*shown, value})[: lowest[1]])
            if value not in shown:
                continue
        cells.extend([numbers[i] for i in kept])
    return cells


def between_known(values: np.ndarray) -> np.ndarray:
    """The values [n], with what is unknown between two known ones on the line between those."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return values
    places = np.arange(len(values))
    return np.interp(places, known, values[known], left=np.nan, right=np.nan)
