"""Record of a figure (runs.csv): the state of each run and the reason of each failure.

The record keeps the reasons from one call of ``fedpriv figure`` to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import csv_text, write_text
from fedpriv.store.saved import saved_records
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    from fedpriv.study.figures.jobs import Job

_FILE = "runs.csv"
_COLUMNS = ("group", "curve", "point", "seed", "state", "why", "run")


def write_record(folder: Path, jobs: Sequence[Job], why: Mapping[str, str]) -> None:
    """Write the record of a figure's jobs. Their states are read from the run folders now.

    Args:
        folder: Folder of the figure; it is made.
        jobs: All jobs of the figure.
        why: Label of each failed job → reason.
    """
    rows: list[tuple[object, ...]] = [_COLUMNS]
    for job in jobs:
        names = (job.group.name, job.curve.name, job.at, job.seed)
        rows.append((*names, job.state, why.get(job.label, ""), job.folder.path))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _FILE, csv_text(rows))


def read_failures(folder: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """Return label → reason of the last failure, for the jobs that are not done."""
    # Imported late: this imports Hydra, which the list of all figures does not need.
    from fedpriv.study.figures.jobs import DONE

    reason_of = {Path(row["run"]).name: row["why"] for row in _rows(folder) if row.get("why")}
    reasons = {job.label: reason_of.get(job.folder.path.name) for job in jobs if job.state != DONE}
    return {label: reason for label, reason in reasons.items() if reason}


def finished_words(folder: Path, expected: int) -> str:
    """Return ``3/20`` for a figure with 3 of 20 runs done; empty where the runs are not known."""
    rows = _rows(folder)
    if len(rows) != expected:  # never made, or made when the figure had other runs
        return ""
    done = 0
    for row in rows:
        with suppress(ConfigError):  # a summary that cannot be read
            done += bool(row.get("run")) and StoredRun(row["run"]).finished
    return f"{done}/{expected}"


def _rows(folder: Path) -> list[dict[str, str]]:
    with suppress(ConfigError):
        return saved_records(folder / _FILE)
    return []
