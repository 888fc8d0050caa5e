"""``fedpriv bench --workers N``: rounds of one process beside those of N processes, with the same bits.

Rounds are those of real runs, without evaluation and files. One process computes with the chunks that the
run has by itself, and with those that several processes share. All ways take turns. Beside their times stand
the bytes that cross between processes in a local step, and the share of time in which a process waits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from fedpriv.common import config as configuration
from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError, DataError
from fedpriv.common.exact import exact_digest
from fedpriv.common.files import write_json
from fedpriv.experiment.assemble import assemble
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.spread import Team, team_of
from fedpriv.store.table import Column, Table
from fedpriv.tools.bench_measuring import Bar, Benchmark, Result, TimedStep, measure
from fedpriv.workers.crew import Crew

ALONE, CHUNKED = "one process", "one process, same chunks"
COMMON = ("epsilon=null", "rounds=1000000", "runtime.progress=none", "runtime.plots=false")
_IMAGES = ("dataset=mnist", "dataset.download=false")


@dataclass(frozen=True)
class TimedRun:
    """A run whose rounds are timed.

    Attributes:
        name: What its clients do.
        overrides: The run, as on the command line.
        chunk: Clients of a chunk.
        steps: Local steps of a round in which messages cross.
        bar: How many times as fast two processes must be; None: no bar.
    """

    name: str
    overrides: tuple[str, ...]
    chunk: int
    steps: int = 1
    bar: float | None = None


SETTINGS = {
    "cnn": (
        TimedRun(
            "cnn, record level: 50 clients × 24 records",
            (*_IMAGES, "model=cnn", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02"),
            chunk=13,
            bar=1.5,
        ),
        TimedRun(
            "cnn, record level: 50 clients × 5 steps × 24 records",
            (*_IMAGES, "model=cnn", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02", "algorithm.local_steps=5"),
            chunk=13,
            steps=5,
        ),
        TimedRun(
            "cnn, client level: 50 clients × 5 steps × 10 records",
            (*_IMAGES, "model=cnn", "algorithm=cdp_fedavg", "partition=fixed_size", "partition.clients=50",
             "partition.records=50", "algorithm.client_rate=1", "algorithm.batch_size=10"),
            chunk=13,
            bar=1.7,
        ),
        TimedRun(
            "cnn, client level: 50 uneven clients, Dirichlet(0.1)",
            (*_IMAGES, "model=cnn", "algorithm=cdp_fedavg", "partition=dirichlet", "partition.alpha=0.1",
             "partition.clients=50", "algorithm.client_rate=1", "algorithm.batch_size=50"),
            chunk=4,
        ),
    ),
    "mlp": (
        TimedRun(
            "mlp, record level: 50 clients × 24 records",
            (*_IMAGES, "model=mlp", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02"),
            chunk=13,
        ),
    ),
    "text": (
        TimedRun(
            "text, client level: 20 clients × 5 steps × 10 records",
            ("dataset=shakespeare", "model=lstm_lm", "algorithm=cdp_fedavg",
             "partition=iid", "partition.clients=20", "algorithm.client_rate=1",
             "algorithm.batch_size=10"),
            chunk=3,
        ),
    ),
}  # fmt: skip
"""Settings by model."""


class RunRounds:
    """A run whose rounds are made one by one, over some processes.

    Args:
        overrides: The run.
        workers: Number of processes.
        held: Closes what the run opened.
    """

    def __init__(self, overrides: tuple[str, ...], workers: int, held: ExitStack):
        folder = held.enter_context(tempfile.TemporaryDirectory())
        config = configuration.compose(
            [*overrides, f"runtime.workers={workers}", f"runtime.run_dir={Path(folder) / 'run'}"]
        )
        parts = build_parts(config)
        team: Team | None = team_of(parts.settings)
        if team is not None:
            held.enter_context(team)
        source = None if team is None else team.records.loaded
        running = assemble(parts, config, None, None, source)
        self.crew: Crew | None = None if team is None else team.join(running, config, None)
        self.loop: Loop = running.loop

    def step(self) -> None:
        """Make a round."""
        announced, eligible, _ = self.loop._next()
        self.loop._round(announced, eligible)
        self.loop.rounds_done += 1

    @property
    def digest(self) -> str:
        """Digest of the global weights."""
        return exact_digest(self.loop.context.model.flat)


def run(
    workers: int,
    repeats: int,
    models: Sequence[str] = (),
    threads: int | None = None,
    json_path: Path | None = None,
) -> int:
    """Time rounds of one process and of several, and print how they compare.

    Args:
        workers: Number of processes.
        repeats: Timed rounds of each.
        models: Models to time; none: all that the settings have.
        threads: Threads of each process; None: one.
        json_path: File that the numbers are also written to; None: no file.

    Returns:
        The exit status, which is 0: a bar that is not met is a finding, not a failure.

    Raises:
        ConfigError: There is nothing to share.
    """
    if workers < 2:
        raise ConfigError("bench --workers", workers, ">= 2")
    threads = threads or 1
    console().print(f"{workers} processes × {threads} threads; torch {torch.__version__}")
    results = []
    for setting in (one for model in models or SETTINGS for one in SETTINGS.get(model, ())):
        try:
            results.append(_measured(setting, workers, repeats, threads).as_dict())
        except DataError as error:
            console().print(f"{setting.name}: left out ({error})")
    if json_path is not None:
        conditions = {"torch": torch.__version__, "workers": workers, "threads": threads}
        write_json(json_path, {"conditions": conditions, "settings": results})
    return 0


def _measured(setting: TimedRun, workers: int, repeats: int, threads: int) -> Result:
    overrides = (*setting.overrides, *COMMON, f"runtime.threads={threads}")
    chunked, several = (*overrides, f"chunk={setting.chunk}"), f"{workers} processes"
    with ExitStack() as held:
        alone = RunRounds(overrides, 1, held)
        same_chunks = RunRounds(chunked, 1, held)
        shared = RunRounds(chunked, workers, held)
        bars = (
            () if setting.bar is None or workers != 2 else (Bar(several, ALONE, 1 / setting.bar),)
        )
        rows = (
            TimedStep(ALONE, alone.step),
            TimedStep(CHUNKED, same_chunks.step),
            TimedStep(several, shared.step),
        )
        result = measure(Benchmark(setting.name, ALONE, rows, bars), repeats)
        same = same_chunks.digest == shared.digest
        _print(result, setting, shared, same)
    return result


def _print(result: Result, setting: TimedRun, shared: RunRounds, same: bool) -> None:
    """Print the medians of a setting, the traffic of a step, and whether both ways gave the same weights."""
    table = Table(
        result.setting.name, ("row", Column("median", right=True), Column("ratio", right=True))
    )
    for name, ms in result.median_ms.items():
        table.add(name, f"{ms:.0f} ms", f"{result.ratio(name, ALONE):.2f}")
    crew, context, out = shared.crew, shared.loop.context, console()
    assert crew is not None
    links = [worker.link for worker in crew.workers if worker.link is not None]
    traffic = sum(link.sent + link.received for link in links)
    traffic //= shared.loop.rounds_done * setting.steps
    idle = 1 - crew.effort.busy.sum() / (crew.effort.seconds * len(crew.effort.busy))
    out.print(table)
    out.print(
        f"d = {context.model.size:,}; chunks of {context.chunk} of {context.data.client_count} clients; "
        f"{traffic / 2**20:.1f} MiB cross in a step, {traffic / (4 * context.model.size):.1f} × d numbers "
        f"of 4 bytes; processes wait {idle:.0%} of the time; {'the same bits' if same else 'OTHER BITS'}"
    )
    for bar in result.setting.bars:
        ratio = 1 / result.ratio(bar.row, bar.reference)
        verdict = "met" if ratio >= 1 / bar.at_most else "not met"
        out.print(f"bar: {bar}; measured {ratio:.2f} × faster: {verdict}")
