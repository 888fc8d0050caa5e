"""``fedpriv bench --growth FOLDER``: time and memory against clients, records, rounds and parameters.

Each row is a run on synthetic users in a process of its own, so that its peak memory is that of one run:
from the composed configuration to the first round, some rounds, and one checkpoint. Start and rounds are
processor time of one thread, which other work on the machine hardly changes; a checkpoint waits for the disk.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from fedpriv.common import config as configuration
from fedpriv.common.console import console
from fedpriv.common.files import saying_where, write_csv
from fedpriv.store.panels import CYCLE, MARKERS, Line, Panel
from fedpriv.store.plots import draw_panels
from fedpriv.store.table import Column, Table

CREATOR = "fedpriv bench"
_COMMON = (
    "dataset=synthetic", "partition=natural", "epsilon=null", "evaluation_interval=1000000",
    "runtime.progress=none", "runtime.plots=false", "runtime.threads=1",
    "runtime.checkpoint_interval=1000000",
)  # fmt: skip
_MEGA = 1e6
MEASURES = {
    "start_seconds": "start [CPU s]",
    "round_ms": "round [CPU ms]",
    "checkpoint_ms": "checkpoint [ms]",
    "checkpoint_mb": "checkpoint [MB]",
    "peak_mb": "peak memory [MB]",
}
"""Columns of the measured numbers, with their labels."""
_DRAWN = ("start_seconds", "round_ms", "peak_mb", "checkpoint_mb")


@dataclass(frozen=True)
class Point:
    """A run that is measured.

    Attributes:
        kind: Algorithm, the name of a line of the picture.
        varied: Name of the number that grows.
        value: The number.
        overrides: The run, as on the command line.
        rounds: Rounds that are run; the last ``timed`` of them are timed.
        timed: Number of timed rounds.
    """

    kind: str
    varied: str
    value: int
    overrides: tuple[str, ...]
    rounds: int = 10
    timed: int = 5


def points() -> list[Point]:
    """Return the runs: to a million clients, 10,000 records a client, 1,000 rounds, 270,010 parameters."""
    made = []
    for clients in (10**power for power in range(2, 7)):
        users, cohort = f"dataset.users={clients}", min(1000, clients // 2)
        made += [
            Point("cdp_fedavg", "clients", clients, (users, *_central(cohort / clients))),
            Point("dp_ftrl", "clients", clients, (users, *_correlated(cohort))),
        ]
        if clients <= 100_000:  # all of them take part in every round
            more = (users, "dataset.records_per_user=12", "algorithm=dp_fl")
            made.append(Point("dp_fl", "clients", clients, more, rounds=3, timed=2))
    thousand = _central(0.1)
    for records in (10, 100, 1000, 10_000):
        overrides = (f"dataset.records_per_user={records}", *thousand)
        made.append(Point("cdp_fedavg", "records of a client", records, overrides))
    for rounds in (10, 100, 1000):
        overrides = ("dataset.users=100", *thousand)
        made.append(Point("cdp_fedavg", "rounds", rounds, overrides, rounds=rounds))
    for hidden in (10, 100, 1000, 10_000):
        overrides = ("model=mlp", f"model.hidden={hidden}", *thousand)
        made.append(Point("cdp_fedavg", "parameters", 27 * hidden + 10, overrides))
    return made


def _central(rate: float) -> tuple[str, ...]:
    return "algorithm=cdp_fedavg", f"algorithm.client_rate={rate}"


def _correlated(cohort: int) -> tuple[str, ...]:
    return (
        "algorithm=dp_ftrl", "algorithm.participation=min_separation", "algorithm.min_separation=2",
        f"algorithm.clients_per_round={cohort}", "noise_schedule=constant",
        "noise_schedule.noise_multiplier=4",
    )  # fmt: skip


def measured(point: Point) -> dict[str, float]:
    """Run a point in this process, and return its numbers by :data:`MEASURES`."""
    from fedpriv.experiment.assemble import assemble
    from fedpriv.experiment.build import build_parts

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = f"runtime.run_dir={Path(folder) / 'run'}"
        config = configuration.compose(
            [*_COMMON, *point.overrides, f"rounds={point.rounds + 1}", run]
        )
        running = assemble(build_parts(config), config, None, None)
        announced, eligible, _ = running.loop._next()
        started, seconds = time.process_time() - start, []
        for _ in range(point.rounds):
            start = time.process_time()
            running.loop._round(announced, eligible)
            running.loop.rounds_done += 1
            announced, eligible, _ = running.loop._next()
            seconds.append(time.process_time() - start)
        start = time.perf_counter()
        running.save()
        saved = time.perf_counter() - start
        size = running.folder.checkpoint.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "start_seconds": started,
        "round_ms": 1e3 * statistics.median(seconds[-point.timed :]),
        "checkpoint_ms": 1e3 * saved,
        "checkpoint_mb": size / _MEGA,
        "peak_mb": peak * (1 if sys.platform == "darwin" else 1024) / _MEGA,
    }


def run(folder: Path, chosen: Sequence[Point] | None = None) -> int:
    """Measure all points, print a table, and write ``growth.csv`` and ``growth.png``.

    Args:
        folder: Folder for the two files; it is made.
        chosen: The runs; None: those of :func:`points`, which take some minutes and 2 GB of memory.

    Returns:
        The exit status 0.

    Raises:
        WriteError: A file cannot be written.
    """
    with saying_where(folder):
        folder.mkdir(parents=True, exist_ok=True)
    chosen = points() if chosen is None else chosen
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    note = f"{os.cpu_count()} processors {platform.machine()}, load {load}, one thread"
    console().print(note)
    rows = []
    for point in chosen:
        # A process for each point: peak memory only grows in a process.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            numbers = process.submit(measured, point).result()
        rows.append(
            {"algorithm": point.kind, "varied": point.varied, "value": point.value, **numbers}
        )
        words = ", ".join(f"{label} {numbers[name]:.3g}" for name, label in MEASURES.items())
        console().print(f"{point.kind}, {point.value:,} {point.varied}: {words}")
        write_csv(folder / "growth.csv", pd.DataFrame(rows), "%.4g")  # nothing is lost on Ctrl-C
    table = pd.DataFrame(rows)
    console().print(_table(table))
    draw(table, folder / "growth.png", note)
    console().print(f"{folder / 'growth.csv'}, {folder / 'growth.png'}")
    return 0


def draw(table: pd.DataFrame, path: Path, note: str) -> None:
    """Draw the rows of ``growth.csv``: a column for each number that grows, a row for each measured number.

    Args:
        table: The rows.
        path: The picture.
        note: Line below it: machine and load.

    Raises:
        WriteError: The picture cannot be written.
    """
    varied = table["varied"].drop_duplicates()
    grid = [[_panel(table, name, measure) for name in varied] for measure in _DRAWN]
    draw_panels([path], grid, title="Time and memory of a run", note=note, creator=CREATOR)


def _table(rows: pd.DataFrame) -> Table:
    columns = (Column(label, right=True) for label in MEASURES.values())
    table = Table("growth", ("algorithm", "varied", Column("value", right=True), *columns))
    for row in rows.to_dict("records"):
        numbers = (f"{row[name]:.3g}" for name in MEASURES)
        table.add(row["algorithm"], row["varied"], f"{row['value']:,}", *numbers)
    return table


def _panel(rows: pd.DataFrame, varied: str, measure: str) -> Panel:
    lines = []
    for place, (kind, group) in enumerate(rows.groupby("algorithm", sort=False)):
        group = group[group["varied"] == varied].sort_values("value")
        if len(group):
            x, y = group["value"].to_numpy(), group[measure].to_numpy()
            lines.append(Line(str(kind), CYCLE[place], x, y, marker=MARKERS[place]))
    limits = None
    if measure != "round_ms":  # one scale for a row of panels, so that small differences look small
        limits = (rows[measure].min() * 0.8, rows[measure].max() * 1.25)
    return Panel(
        "",
        varied,
        MEASURES[measure],
        tuple(lines),
        x_from_zero=False,
        x_powers=True,
        y_log=True,
        y_limits=limits,
    )
