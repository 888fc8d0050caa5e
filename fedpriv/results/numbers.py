"""Columns of numbers, read from a run's CSV without pandas, whose import takes as long as drawing them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.results.saved import LARGEST_TABLE, refuse_no_file


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


def read_columns(path: Path) -> Columns:
    """A CSV whose cells are numbers or empty. Raises ConfigError."""
    refuse_no_file(path, LARGEST_TABLE)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
        cells = np.array([[float(c) if c else np.nan for c in row] for row in rows], dtype=float)
        columns = cells.reshape(len(rows), len(names)).T
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a table of numbers"
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    return Columns(zip(names, columns, strict=True))


def between_known(values: np.ndarray) -> np.ndarray:
    """The values [n], with what is unknown between two known ones on the line between those."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return values
    places = np.arange(len(values))
    return np.interp(places, known, values[known], left=np.nan, right=np.nan)
