"""CSV files that grow with the run, and stay consistent with its checkpoint if the process is killed."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import csv_text, saying_where
from fedpriv.store.saved import saved_text, unreadable

METRICS = (
    "round",
    "epsilon",
    "noise_multiplier",
    "clip_norm",
    "clip_norm_min",
    "clip_norm_max",
    "gradient_norm",
    "train_loss",
    "validation_loss",
    "test_loss",
    "test_accuracy",
    "seconds",
    "epsilon_published",
    "epsilon_sound",
    "planned_rounds",
    "reported_loss",
)
ATTACK_METRICS = ("backdoor_accuracy", "update_norm_honest", "update_norm_malicious")
CLIENTS = ("round", "client", "gradient_norm", "clip_norm", "epsilon")
_EPSILONS = ("epsilon", "epsilon_published", "epsilon_sound")
PARTICIPATION = ("first_round", "last_round", "clients")


class GrowingTable:
    """A CSV file to which rows are appended.

    Rows stay in memory until ``flush``. A checkpoint stores ``position``. Resuming cuts the file back to this
    length, so that rows which a killed process wrote after the checkpoint do not appear twice.

    Args:
        path: The file.
        columns: Names of the columns.
        position: Length of the file in the checkpoint; None begins a new file.

    Attributes:
        path: The file.
        columns: Names of the columns. A resumed table keeps the columns it has.
        position: Length of the file in bytes after the last flush.

    Raises:
        ConfigError: The file is not the table that the checkpoint was written with.
        WriteError: The file cannot be written.
    """

    def __init__(self, path: Path, columns: Sequence[str], position: int | None = None):
        self.path, self.columns = path, tuple(columns)
        self._rows: list[str] = []
        if position is None:
            with saying_where(path):
                path.write_text(",".join(self.columns) + "\n", encoding="utf-8")
            self.position = path.stat().st_size
        else:
            self._resume(position)

    def _resume(self, position: int) -> None:
        """Cut the file back to its length in the checkpoint. Raise ConfigError if it is another table."""
        names: list[str] = []
        if self.path.is_file() and self.path.stat().st_size >= position:
            with open(self.path, "rb") as file:
                names = file.readline().decode("utf-8", "replace").strip().split(",")
        if names[:1] != [self.columns[0]] or not set(names) <= set(self.columns):
            raise ConfigError(
                f"resume: {self.path} is not the table that its checkpoint was written with; it was changed "
                "since, start anew"
            )
        self.columns = tuple(names)  # fewer in a run that was begun without diagnostics
        self.position = position
        with open(self.path, "r+b") as file:
            file.truncate(position)

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row by column; absent or None values give empty cells."""
        self._rows.append(csv_text([[row.get(column) for column in self.columns]]))

    def flush(self) -> int:
        """Write all pending rows to disk, and return the length of the file in bytes."""
        if self._rows:
            rows = "".join(self._rows).encode()
            with saying_where(self.path), open(self.path, "ab") as file:
                file.write(rows)
                file.flush()
                # The checkpoint that is written next counts on these rows, even if the machine fails.
                os.fsync(file.fileno())
                self.position = file.tell()
            self._rows.clear()
        return self.position


class ParticipationTable(GrowingTable):
    """The cohorts, with one row for each stretch of rounds with the same cohort.

    The last stretch is open: it is written only when another cohort follows, or by ``finish``. So the
    checkpoint holds the open stretch, too.

    Args:
        path: The file.
        state: State from the checkpoint; None begins a new file.
    """

    def __init__(self, path: Path, state: Mapping[str, object] | None = None):
        saved: Mapping[str, Any] = state or {}
        super().__init__(path, PARTICIPATION, saved.get("position"))
        self._open = None if state is None else saved["open"]

    def enter(self, round_number: int, clients: Iterable[int]) -> None:
        """Enter the cohort of a round.

        Args:
            round_number: 1, 2, …, one more than in the call before.
            clients: Numbers of the clients, ascending.
        """
        cohort = ranges(clients)
        if self._open is not None and self._open[2] == cohort:
            self._open = (self._open[0], round_number, cohort)
            return
        self._close()
        self._open = (round_number, round_number, cohort)

    def _close(self) -> None:
        if self._open is not None:
            self.append(dict(zip(PARTICIPATION, self._open, strict=True)))

    def finish(self) -> None:
        """Write the open stretch at the end of the run."""
        self._close()
        self._open = None
        self.flush()

    def state_dict(self) -> dict[str, object]:
        """Flush the table, and return its position and the open stretch for the checkpoint."""
        return {"position": self.flush(), "open": self._open}


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending whole numbers as text, with consecutive numbers joined.

    >>> ranges([0, 1, 2, 5])
    '0-2 5'
    """
    array = np.fromiter(numbers, dtype=np.int64)
    if not len(array):
        return ""
    breaks = np.flatnonzero(np.diff(array) != 1)
    firsts = array[np.append(0, breaks + 1)].tolist()
    lasts = array[np.append(breaks, len(array) - 1)].tolist()
    pairs = zip(firsts, lasts, strict=True)
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def parse_ranges(text: str) -> list[int]:
    """Return the whole numbers of a text that :func:`ranges` wrote.

    >>> parse_ranges("0-2 5")
    [0, 1, 2, 5]

    Raises:
        ValueError: The text has another form.
    """
    numbers: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def last_round(path: Path) -> dict[str, float]:
    """Return the results in the last whole row of ``metrics.csv``, and the accuracy evaluated last.

    Raises:
        ConfigError: The file cannot be read, or is no table of numbers.
    """
    text = saved_text(path)
    # A process that is writing, or was killed, leaves half a row.
    names, *cells = [*csv.reader(text[: text.rfind("\n") + 1].splitlines())] or [[]]
    rows = [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
    results: dict[str, float] = {}
    evaluated = [row["test_accuracy"] for row in rows if row.get("test_accuracy")]
    try:
        for row in rows[-1:]:
            results = {key: float(row[key]) for key in _EPSILONS if row.get(key)}
            results["rounds"] = int(row["round"])
        if evaluated:
            results["test_accuracy"] = float(evaluated[-1])
    except (KeyError, ValueError):
        raise unreadable(path, "it is not a table of numbers") from None
    return results
