"""``fedpriv bench --workers N``: rounds of one process beside those of N processes, with the same bits.

Rounds are those of real runs, without evaluation and files. Both ways take turns. Beside their times stand
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

ALONE = "one process"
_COMMON = ("epsilon=null", "rounds=1000000", "runtime.progress=none", "runtime.plots=false")
_IMAGES = ("dataset=mnist", "dataset.download=false")


@dataclass(frozen=True)
class Setting:
    """A run whose rounds are timed.

    Attributes:
        name: What its clients do.
        overrides: The run, as on the command line.
        steps: Local steps of a round in which messages cross.
        bar: How many times as fast two processes must be; None: no bar.
    """

    name: str
    overrides: tuple[str, ...]
    steps: int = 1
    bar: float | None = None


SETTINGS = {
    "cnn": (
        Setting(
            "cnn, record level: 50 clients × 24 records",
            (*_IMAGES, "model=cnn", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02"),
            bar=1.5,
        ),
        Setting(
            "cnn, record level: 50 clients × 5 steps × 24 records",
            (*_IMAGES, "model=cnn", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02", "algorithm.local_steps=5"),
            steps=5,
        ),
        Setting(
            "cnn, client level: 50 clients × 5 steps × 10 records",
            (*_IMAGES, "model=cnn", "algorithm=cdp_fedavg", "partition=fixed_size", "partition.clients=50",
             "partition.records=50", "algorithm.client_rate=1", "algorithm.batch_size=10"),
            bar=1.7,
        ),
        Setting(
            "cnn, client level: 50 uneven clients, Dirichlet(0.1)",
            (*_IMAGES, "model=cnn", "algorithm=cdp_fedavg", "partition=dirichlet", "partition.alpha=0.1",
             "partition.clients=50", "algorithm.client_rate=1", "algorithm.batch_size=50"),
        ),
    ),
    "mlp": (
        Setting(
            "mlp, record level: 50 clients × 24 records",
            (*_IMAGES, "model=mlp", "algorithm=dp_fl", "partition=iid", "partition.clients=50",
             "algorithm.sample_rate=0.02"),
        ),
    ),
    "text": (
        Setting(
            "text, client level: 20 clients × 5 steps × 10 records",
            ("dataset=shakespeare", "dataset.download=false", "model=lstm_lm", "algorithm=cdp_fedavg",
             "partition=iid", "partition.clients=20", "algorithm.client_rate=1",
             "algorithm.batch_size=10"),
        ),
    ),
}  # fmt: skip
"""Settings by model."""


class _Rounds:
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
        running = assemble(parts, config, None, None)
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
        write_json(json_path, {"workers": workers, "threads": threads, "settings": results})
    return 0


def _measured(setting: Setting, workers: int, repeats: int, threads: int) -> Result:
    overrides = (*setting.overrides, *_COMMON, f"runtime.threads={threads}")
    several = f"{workers} processes"
    with ExitStack() as held:
        alone = _Rounds(overrides, 1, held)
        shared = _Rounds(overrides, workers, held)
        bars = (
            () if setting.bar is None or workers != 2 else (Bar(several, ALONE, 1 / setting.bar),)
        )
        rows = (TimedStep(ALONE, alone.step), TimedStep(several, shared.step))
        result = measure(Benchmark(setting.name, ALONE, rows, bars), repeats)
        crew = shared.crew
        assert crew is not None
        steps = shared.loop.rounds_done * setting.steps
        traffic = sum(
            member.link.sent + member.link.received
            for member in crew.workers
            if member.link is not None
        )
        idle = 1 - crew.effort.busy.sum() / (crew.effort.seconds * workers)
        same = alone.digest == shared.digest
    _print(result, traffic / steps, idle, shared, same)
    return result


def _print(result: Result, traffic: float, idle: float, rounds: _Rounds, same: bool) -> None:
    """Print the medians of a setting, the traffic of a step, and whether both ways gave the same weights."""
    context = rounds.loop.context
    table = Table(
        result.setting.name, ("row", Column("median", right=True), Column("ratio", right=True))
    )
    for name, ms in result.median_ms.items():
        table.add(name, f"{ms:.0f} ms", f"{result.ratio(name, ALONE):.2f}")
    out = console()
    out.print(table)
    numbers = traffic / (4 * context.model.size)
    chunk = context.chunk or context.data.client_count
    out.print(
        f"d = {context.model.size:,}; chunks of {chunk} of {context.data.client_count} clients; "
        f"{traffic / 2**20:.1f} MiB cross in a step, {numbers:.1f} × d numbers of 4 bytes; processes wait "
        f"{idle:.0%} of the time; {'the same bits' if same else 'OTHER BITS'}"
    )
    for bar in result.setting.bars:
        ratio = 1 / result.ratio(bar.row, bar.reference)
        verdict = "met" if ratio >= 1 / bar.at_most else "not met"
        out.print(f"bar: {bar}; measured {ratio:.2f} × faster: {verdict}")
