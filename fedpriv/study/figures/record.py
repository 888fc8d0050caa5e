"""runs.csv of a figure: its runs, how far they are, and why those that failed did; kept from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import csv_text, write_text
from fedpriv.store.saved import saved_rows
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    from fedpriv.study.figures.jobs import Job

_FILE = "runs.csv"
_COLUMNS = ("group", "curve", "point", "seed", "state", "why", "run")


def write_record(folder: Path, jobs: Sequence[Job], why: Mapping[str, str]) -> None:
    """Write the record of a figure's jobs; ``why``: label → what went wrong with it."""
    rows: list[tuple[object, ...]] = [_COLUMNS]
    for job in jobs:
        point = "" if job.point is None else f"{job.point:g}"
        place = (job.group.name, job.curve.name, point, job.seed)
        rows.append((*place, job.state, why.get(job.label, ""), job.folder.path))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _FILE, csv_text(rows))


def read_failures(folder: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """Label → what went wrong when it was last tried, of the jobs that are not done."""
    from fedpriv.study.figures.jobs import (
        DONE,  # brings Hydra, which the list of all figures does without
    )

    known = {Path(row["run"]).name: row["why"] for row in _rows(folder) if row.get("why")}
    found = {job.label: known.get(job.folder.path.name) for job in jobs if job.state != DONE}
    return {label: why for label, why in found.items() if why}


def finished_words(folder: Path, expected: int) -> str:
    """``3/20`` runs are done of a figure that was made here; empty where its runs are not known."""
    rows = _rows(folder)
    if len(rows) != expected:  # never made, or the figure was another one then
        return ""
    return f"{sum(_is_done(row.get('run')) for row in rows)}/{expected}"


def _is_done(run: str | None) -> bool:
    with suppress(ConfigError):  # a damaged summary
        return run is not None and run != "" and StoredRun(run).finished
    return False


def _rows(folder: Path) -> list[dict[str, str]]:
    with suppress(ConfigError):
        names, *rows = saved_rows(folder / _FILE) or [[]]
        return [dict(zip(names, row, strict=False)) for row in rows]
    return []
