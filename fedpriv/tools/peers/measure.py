"""Pairs of timed steps: fedpriv, then another library, in turn on the same cores."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedpriv.common.errors import FedprivError
from fedpriv.common.words import counted
from fedpriv.engine import FlatModel
from fedpriv.tools.bench_clients import CLIENTS, RATE, SMALL_BATCHES, records_of, stacked_round
from fedpriv.tools.bench_gradients import CLASSES, MODELS, SHAPE, fast_step
from fedpriv.tools.peers.packages import FLOWER, JAX, OPACUS, PFL, Peer
from fedpriv.tools.peers.process import PeerProcess

LOTS, RECORDS = 10, 78
LEAST_PAIRS = 9
_LONG = 40.0  # seconds of a row, beyond which it gets no more pairs than the least number
_SETTLE = 0.02  # seconds in which the threads of the other side fall asleep


@dataclass(frozen=True)
class PeerRow:
    """A way of another library to do the work of a comparison.

    Attributes:
        peer: The library.
        name: What it does.
        program: Its program below ``programs/``.
        keys: Keys of the program.
        processes: Number of processes, which share the cores.
    """

    peer: Peer
    name: str
    program: str
    keys: dict[str, Any]
    processes: int = 1


@dataclass(frozen=True)
class Goal:
    """The demand that fedpriv is at least so many times as fast as the fastest of some rows."""

    rows: tuple[str, ...]
    times: float


@dataclass(frozen=True)
class Comparison:
    """The same work in fedpriv and in other libraries.

    Attributes:
        model: ``cnn`` or ``mlp``.
        work: The work in words.
        ours: Function that makes fedpriv's step.
        rows: Rows of other libraries.
        goal: What is aimed at.
    """

    model: str
    work: str
    ours: Callable[[], Callable[[], object]]
    rows: tuple[PeerRow, ...]
    goal: Goal


@dataclass
class PeerResult:
    """The times of a row, pair by pair, or why there are none.

    Attributes:
        row: The row.
        versions: Versions of the packages of the library.
        ours: Milliseconds of fedpriv, one for each pair.
        theirs: Milliseconds of the library.
        failure: Why nothing was measured.
    """

    row: PeerRow
    versions: dict[str, str] = field(default_factory=dict)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the medians over the pairs, and the quartiles of the ratios of the pairs."""
        about: dict[str, Any] = {"row": self.row.name, "library": self.row.peer.name}
        if self.failure is not None:
            return about | {"failure": self.failure}
        ratios = [b / a for a, b in zip(self.ours, self.theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return about | {
            "versions": self.versions,
            "pairs": len(ratios),
            "ours_ms": statistics.median(self.ours),
            "theirs_ms": statistics.median(self.theirs),
            "times_faster": middle,
            "quartiles": [low, high],
        }


def comparisons(model: str, threads: int) -> Iterator[Comparison]:
    """Yield the comparisons of a model: clipped sums of lots, and a round of clients that train."""
    lots = {"model": model, "clients": LOTS, "records": RECORDS}
    hooks, ghost, engine = (
        PeerRow(OPACUS, f"Opacus, {name}", "opacus", {**lots, "way": way})
        for way, name in (("hooks", "hooks and clip"), ("ghost", "ghost clipping"),
                          ("engine", "a PrivacyEngine for each client"))
    )  # fmt: skip
    jax = PeerRow(JAX, "JAX, jit(vmap(grad)) and a segment sum", "jax", lots)
    inputs = torch.randn(LOTS * RECORDS, *SHAPE)
    targets = torch.randint(0, CLASSES, (LOTS * RECORDS,))
    yield Comparison(
        model,
        f"clipped gradient sums of {LOTS} clients × {RECORDS} records",
        lambda: fast_step(
            FlatModel(MODELS[model].build(SHAPE, CLASSES)), inputs, targets, [RECORDS] * LOTS
        ),
        (hooks, ghost, engine, jax),
        Goal((hooks.name,), {"cnn": 2.5, "mlp": 8.0}[model]),
    )
    work = {
        "model": model, "clients": CLIENTS, "records": SMALL_BATCHES.records,
        "batch": SMALL_BATCHES.batch, "epochs": SMALL_BATCHES.epochs, "rate": RATE,
    }  # fmt: skip
    pfl_threads = PeerRow(
        PFL, f"pfl-research, one process of {counted(threads, 'thread')}", "pfl", work
    )
    pfl_processes = PeerRow(
        PFL, f"pfl-research, {threads} processes of one thread", "pfl", work, processes=threads
    )
    pfl = (pfl_threads, pfl_processes) if threads > 1 else (pfl_threads,)
    flower = PeerRow(FLOWER, "Flower simulation (Ray)", "flower", {**work, "cores": threads})
    yield Comparison(
        model,
        f"a round of {SMALL_BATCHES}",
        lambda: stacked_round(
            FlatModel(MODELS[model].build(SHAPE, CLASSES)), records_of(SMALL_BATCHES), SMALL_BATCHES
        ),
        (*pfl, flower),
        Goal(tuple(row.name for row in pfl), {"cnn": 1.9, "mlp": 6.5}[model]),
    )


def compare(
    row: PeerRow, ours: Callable[[], object], python: Path | str, pairs: int, threads: int
) -> PeerResult:
    """Time fedpriv and the row of another library in turn.

    Each timed step follows an untimed one on the same side. fedpriv is first in every other pair.

    Args:
        row: The row.
        ours: A step of fedpriv.
        python: The interpreter that has the library, or why there is none.
        pairs: Number of pairs; a slow row gets fewer, at least ``LEAST_PAIRS``.
        threads: Threads of fedpriv and of the library, in all its processes together.
    """
    if isinstance(python, str):
        return PeerResult(row, failure=python)
    result, began = PeerResult(row), time.perf_counter()
    each = max(1, threads // row.processes)
    try:
        with PeerProcess(python, row.program, row.keys, each, row.processes) as process:
            result.versions = process.versions
            sides: list[tuple[list[float], Callable[[], float]]] = [
                (result.ours, lambda: timed(ours)),
                (result.theirs, process.seconds),
            ]
            for pair in range(pairs):
                if pair >= LEAST_PAIRS and time.perf_counter() - began > _LONG:
                    break
                for times, side in sides if pair % 2 == 0 else sides[::-1]:
                    time.sleep(_SETTLE)
                    times.append(1e3 * side())
    except FedprivError as error:
        return PeerResult(row, failure=str(error))
    return result


def timed(step: Callable[[], object]) -> float:
    """Do a step and then a timed one, and return the seconds."""
    step()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def judged(comparison: Comparison, results: Sequence[PeerResult]) -> dict[str, Any]:
    """Return a comparison with its results in the layout of the JSON file."""
    rows = [result.as_dict() for result in results]
    against = [r["times_faster"] for r in rows if r["row"] in comparison.goal.rows and "pairs" in r]
    reached = min(against) if against else None
    return {
        "model": comparison.model,
        "work": comparison.work,
        "rows": rows,
        "goal": {
            "rows": list(comparison.goal.rows),
            "times_faster": comparison.goal.times,
            "reached": reached,
            "met": None if reached is None else reached >= comparison.goal.times,
        },
    }


def load() -> float | None:
    """Return how many processes wanted a processor in the last minute, if the system says so."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
