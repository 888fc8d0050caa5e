"""fedpriv's side of ``fedpriv bench --peers``: the ways in which it does the work of a comparison.

A round of clients that train is a round of a run, as ``fedpriv train`` makes it: once in one process, once
shared with workers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from fedpriv.common.random_streams import torch_stream
from fedpriv.common.words import counted
from fedpriv.data.base import Dataset
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.engine import FlatModel
from fedpriv.tools.bench_clients import CLIENTS, RATE, SMALL_BATCHES
from fedpriv.tools.bench_gradients import (
    CLASSES,
    CLIP_NORM,
    SHAPE,
    built,
    fast_step,
    random_records,
)
from fedpriv.tools.bench_workers import COMMON, RunRounds

Step = Callable[[], object]


@dataclass(frozen=True)
class OwnWay:
    """A way in which fedpriv does the work of a comparison.

    Attributes:
        name: Its processes and threads.
        open: Function that makes the step; what the step needs is closed with the stack.
        threads: Threads of this process during the step.
    """

    name: str
    open: Callable[[ExitStack], Step]
    threads: int

    def opened(self, held: ExitStack) -> Step:
        """Return the step, which sets the number of threads whatever ran before it."""
        torch.set_num_threads(self.threads)
        step = self.open(held)

        def with_threads() -> None:
            torch.set_num_threads(self.threads)
            step()

        return with_threads


class RandomImages(Dataset):
    """Random records of 1 × 28 × 28, as many for each client as the other libraries get."""

    name = "random_images"
    input_shape, classes = SHAPE, CLASSES
    train_records = CLIENTS * SMALL_BATCHES.records
    test_records = 10

    def load(self) -> LoadedDataset:
        """Draw the records, those of a client next to each other."""
        stream = torch_stream(0, "bench_records")

        def drawn(records: int) -> Records:
            inputs = torch.randn(records, *SHAPE, generator=stream)
            return Records(inputs, torch.randint(0, CLASSES, (records,), generator=stream))

        return LoadedDataset(
            train=drawn(self.train_records),
            test=drawn(self.test_records),
            client_ids=np.repeat(np.arange(CLIENTS), SMALL_BATCHES.records),
        )


def clipped_sums(model: str, clients: int, records: int, threads: int) -> tuple[OwnWay]:
    """Return the one way to sum clipped gradients of lots: all cores share one pass."""
    lots = clients * records
    inputs, targets = random_records(lots)

    def opened(_: ExitStack) -> Step:
        flat = FlatModel(built(model))
        return fast_step(flat, inputs, targets, [records] * clients)

    return (OwnWay(f"one process of {counted(threads, 'thread')}", opened, threads),)


def rounds(model: str, threads: int) -> tuple[OwnWay, ...]:
    """Return the ways to make a round: one process with all threads, and a process for each core."""
    alone = partial(_round, model, 1, threads)
    ways = [OwnWay(f"one process of {counted(threads, 'thread')}", alone, threads)]
    if threads > 1:
        shared = partial(_round, model, threads, 1)
        ways.append(OwnWay(f"{threads} processes of one thread", shared, 1))
    return tuple(ways)


def _round(model: str, processes: int, threads: int, held: ExitStack) -> Step:
    """Return a round of DP-FedAvg without noise, on random records.

    Args:
        model: ``cnn`` or ``mlp``.
        processes: Number of processes, each of which gets as many clients.
        threads: Threads of each process.
        held: Closes the workers.
    """
    overrides = (
        "dataset=digits",
        f"dataset._target_={RandomImages.__module__}.{RandomImages.__qualname__}",
        "~dataset.normalize", "~dataset.validation_records", "partition=natural", f"model={model}",
        "algorithm=cdp_fedavg", "algorithm.client_rate=1", f"algorithm.batch_size={SMALL_BATCHES.batch}",
        f"algorithm.local_epochs={SMALL_BATCHES.epochs}", f"algorithm.local_learning_rate={RATE}",
        "clipper=constant", f"clipper.clip_norm={CLIP_NORM}", "noise_schedule=none", "runtime.device=cpu",
        f"runtime.threads={threads}", f"chunk={-(-CLIENTS // processes)}", *COMMON,
    )  # fmt: skip
    return RunRounds(overrides, processes, held).step
