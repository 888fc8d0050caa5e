"""Tables that any program reads: what the other trackers get, with nothing to install."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedpriv.common import checks
from fedpriv.common.files import write_text
from fedpriv.trackers.base import TrackedRun, Tracker

METRICS = ("round", "metric", "value")


class CsvTracker(Tracker):
    """``metrics.csv`` (a row for each round and metric), ``parameters.csv``, ``summary.csv``, the statement.

    ``folder``: where runs have a folder each; null: ``tracked/`` in the run folder.
    """

    notes_times = False

    def __init__(self, folder: str | None):
        self._parent = None if folder is None else checks.text("folder", folder)
        self._rows: list[tuple[object, ...]] = []

    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        self._folder = run.place(self._parent, "tracked")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._metrics = self._folder / "metrics.csv"
        write_text(self._metrics, _lines([METRICS, *_up_to(self._metrics, run.rounds_done)]))
        _write(self._folder / "parameters.csv", run.parameters)
        return {"name": self._folder.name}

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        self._rows += [(round_number, name, value) for name, value in values.items()]

    def flush(self) -> None:
        with open(self._metrics, "a", encoding="utf-8", newline="") as file:
            file.write(_lines(self._rows))
        self._rows.clear()

    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        self.flush()
        _write(self._folder / "summary.csv", summary)
        for file in files:
            shutil.copyfile(file, self._folder / file.name)


def _up_to(path: Path, rounds: int) -> list[list[str]]:
    """The rows of the first rounds of a table that a process before has written."""
    if not rounds or not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    whole = (row for row in rows if len(row) == len(METRICS) and row[0].isdigit())
    return [row for row in whole if int(row[0]) <= rounds]


def _lines(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _write(path: Path, values: Mapping[str, object]) -> None:
    write_text(path, _lines([("name", "value"), *values.items()]))
