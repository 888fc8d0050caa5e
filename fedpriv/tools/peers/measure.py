"""Pairs of timed steps: fedpriv, then another library, in turn on the same cores."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedpriv.common.errors import FedprivError
from fedpriv.common.words import counted
from fedpriv.tools.bench_clients import CLIENTS, RATE, SMALL_BATCHES
from fedpriv.tools.peers.ours import OwnWay, Step, clipped_sums, rounds
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
        ours: The ways in which fedpriv does it.
        rows: Rows of other libraries.
        goal: What is aimed at.
    """

    model: str
    work: str
    ours: tuple[OwnWay, ...]
    rows: tuple[PeerRow, ...]
    goal: Goal


@dataclass
class PeerResult:
    """The times of a row, pair by pair, or why there are none.

    Attributes:
        row: The row.
        versions: Versions of the packages of the library.
        ours: Milliseconds of each way of fedpriv, one for each pair.
        theirs: Milliseconds of the library.
        failure: Why nothing was measured.
    """

    row: PeerRow
    versions: dict[str, str] = field(default_factory=dict)
    ours: dict[str, list[float]] = field(default_factory=dict)
    theirs: list[float] = field(default_factory=list)
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the medians over the pairs, and the quartiles of the ratios of the pairs.

        The ratios are those of fedpriv's fastest way.
        """
        about: dict[str, Any] = {"row": self.row.name, "library": self.row.peer.name}
        if self.failure is not None:
            return about | {"failure": self.failure}
        medians = {name: statistics.median(times) for name, times in self.ours.items()}
        fastest = min(medians, key=lambda name: medians[name])
        ratios = [b / a for a, b in zip(self.ours[fastest], self.theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return about | {
            "versions": self.versions,
            "pairs": len(ratios),
            "ours": medians,
            "fastest": fastest,
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
    yield Comparison(
        model,
        f"clipped gradient sums of {LOTS} clients × {RECORDS} records",
        clipped_sums(model, LOTS, RECORDS, threads),
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
        rounds(model, threads),
        (*pfl, flower),
        Goal(tuple(row.name for row in pfl), {"cnn": 1.9, "mlp": 6.5}[model]),
    )


def compare(
    row: PeerRow, ours: Mapping[str, Step], python: Path | str, pairs: int, threads: int
) -> PeerResult:
    """Time the ways of fedpriv and the row of another library in turn.

    Each timed step follows an untimed one of the same way. The order is turned round in every other pair.

    Args:
        row: The row.
        ours: Step of each way of fedpriv.
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
            result.ours = {name: [] for name in ours}
            sides: list[tuple[list[float], Callable[[], float]]] = [
                (result.ours[name], partial(timed, step)) for name, step in ours.items()
            ]
            sides.append((result.theirs, process.seconds))
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
        "ours": [way.name for way in comparison.ours],
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
