"""Benchmarks of clients that train side by side, each with its own weights, against a loop over clients.

    θ_k ← θ, then several steps of SGD on the records of client k;    θ ← θ + (1/m) Σ_k (θ_k - θ)

The loop is bare PyTorch with a single module. For each client it copies the weights, trains, and adds up the
change of the weights. For convolutions it is also run in the channels_last layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.algorithms import CdpFedAvg
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, FlatModel, StackedModel, make_engine
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.noise_schedules import NoNoise
from fedpriv.tools.bench_gradients import CLASSES, CLIP_NORM, SHAPE, built, random_records
from fedpriv.tools.bench_measuring import Bar, Benchmark, TimedStep

CLIENTS, RATE = 50, 0.1
ROUND = "whole round: clients side by side, clip, average"
LOOP, LOOP_LAST = "bare PyTorch loop", "bare PyTorch loop, channels_last"
CLIPPED, CLIPPED_LOOP = "clipped steps, side by side", "clipped steps, engine client by client"


@dataclass(frozen=True)
class LocalTraining:
    """The training of each client in a round: ``epochs`` over ``records`` records.

    Attributes:
        records: Number of records of a client.
        batch: Number of records of a batch.
        epochs: Number of passes over the records.
    """

    records: int
    batch: int
    epochs: int = 1

    @property
    def steps(self) -> int:
        return self.epochs * self.records // self.batch

    def __str__(self) -> str:
        steps = "step" if self.steps == 1 else "steps"
        return f"{CLIENTS} clients × {self.steps} {steps} × {self.batch} records"


SMALL_BATCHES = LocalTraining(records=50, batch=10)
WHOLE_DATA = (
    LocalTraining(records=128, batch=128),
    LocalTraining(records=128, batch=128, epochs=5),
)


def settings(model: str, device: str = "cpu") -> Iterator[Benchmark]:
    """Yield small batches for every model, and whole-data steps and per-record clipping for the MLP."""
    floor = LOOP_LAST if model == "cnn" else LOOP
    works = (SMALL_BATCHES,) if model == "cnn" else (SMALL_BATCHES, *WHOLE_DATA)
    for work in works:
        bars = (Bar(ROUND, floor, 1.15),) if model == "cnn" else ()
        yield Benchmark(f"{model}, {work}", floor, tuple(rows_of(model, work, device)), bars)
    if model == "mlp":
        rows = tuple(clipped_rows_of(model, SMALL_BATCHES, device))
        yield Benchmark(f"{model}, {SMALL_BATCHES}, each clipped", CLIPPED_LOOP, rows)


def records_of(work: LocalTraining, device: str = "cpu") -> Records:
    """Return random records of all clients, ordered by client."""
    return Records(*random_records(CLIENTS * work.records, device))


def rows_of(model: str, work: LocalTraining, device: str = "cpu") -> Iterator[TimedStep]:
    """Yield ways to run a round in which each client does ``work``, on the same records."""
    records = records_of(work, device)
    build = partial(built, model, device)

    yield TimedStep(LOOP, loop_round(build(), records, work))
    if model == "cnn":
        module: Any = build()
        module = module.to(memory_format=torch.channels_last)
        inputs = records.inputs.to(memory_format=torch.channels_last)
        yield TimedStep(LOOP_LAST, loop_round(module, Records(inputs, records.targets), work))
    yield TimedStep(ROUND, stacked_round(FlatModel(build()), records, work))


def stacked_round(model: FlatModel, records: Records, work: LocalTraining) -> Callable[[], None]:
    """Return a round of DP-FedAvg as a run does it, without noise."""
    clients = ClientRecords.of(np.arange(len(records)).reshape(CLIENTS, work.records))
    data = FederatedData(records, clients, None, records, CLASSES, SHAPE)
    algorithm = CdpFedAvg(
        name="bench",
        client_rate=1.0,
        local_epochs=work.epochs,
        batch_size=work.batch,
        local_learning_rate=RATE,
    )
    clipper = ConstantClipper(clip_norm=CLIP_NORM)
    mechanism, streams = algorithm.mechanism(clipper, NoNoise()), SecretStreams.simulated(0, 0)
    mechanism.join(data.records_per_client)
    context = RunContext(data, model, make_engine(model), clipper, 0, streams, mechanism)
    trainer = algorithm.start(context)
    all_clients, rounds = np.arange(CLIENTS), iter(range(2**62))

    def step() -> None:
        announced = mechanism.announce(next(rounds))
        trainer.round(mechanism.open(announced, all_clients, streams))

    return step


def loop_round(module: nn.Module, records: Records, work: LocalTraining) -> Callable[[], None]:
    """Return the same round, neither clipped nor shuffled, as a loop that trains a single module."""
    parameters = list(module.parameters())
    lots = per_client(records, work)
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> None:
        start = [p.detach().clone() for p in parameters]
        total = [torch.zeros_like(p) for p in start]
        for inputs, targets in lots:
            _copy(start, parameters)
            for _ in range(work.epochs):
                for x, y in zip(inputs.split(work.batch), targets.split(work.batch), strict=True):
                    optimizer.zero_grad()
                    functional.cross_entropy(module(x), y).backward()
                    optimizer.step()
            for t, p, s in zip(total, parameters, start, strict=True):
                t.add_(p.detach()).sub_(s)
        _copy([s.add_(t, alpha=1 / CLIENTS) for s, t in zip(start, total, strict=True)], parameters)

    return step


def clipped_rows_of(model: str, work: LocalTraining, device: str = "cpu") -> Iterator[TimedStep]:
    """Yield ways to do local steps that clip every record's gradient, at weights that differ by client."""
    records = records_of(work, device)
    fast = FlatModel(built(model, device))
    yield TimedStep(CLIPPED_LOOP, clipped_round(fast, records, work, clipped_one_by_one(fast)))
    stacked = StackedModel(FlatModel(built(model, device)))
    yield TimedStep(CLIPPED, clipped_round(stacked.model, records, work, stacked.clipped_sums))


def clipped_round(
    model: FlatModel,
    records: Records,
    work: LocalTraining,
    clipped_sums: Callable[..., ClippedSums],
) -> Callable[[], Tensor]:
    """Return a step that computes the changes of all clients' weights [c, d].

    Args:
        model: The model with the weights that all clients begin with; they stay.
        records: Records of all clients, ordered by client.
        work: What each client does.
        clipped_sums: Has the signature of :meth:`fedpriv.engine.StackedModel.clipped_sums`.
    """
    batches = (CLIENTS, work.records // work.batch, work.batch)
    inputs, targets = records.inputs.view(*batches, *SHAPE), records.targets.view(batches)
    present = torch.ones(CLIENTS, work.batch, dtype=torch.bool, device=inputs.device)

    def clip(norms: Tensor, clients: Tensor) -> Tensor:
        return (CLIP_NORM / norms).clamp(max=1)

    def step() -> Tensor:
        weights = model.flat.repeat(CLIENTS, 1)
        for _ in range(work.epochs):
            for x, y in zip(inputs.unbind(1), targets.unbind(1), strict=True):
                result = clipped_sums(weights, x, y, present, clip)
                weights.sub_(result.sums, alpha=RATE / work.batch)
        return weights.sub_(model.flat)

    return step


def clipped_one_by_one(model: FlatModel) -> Callable[..., ClippedSums]:
    """Return a ``clipped_sums`` that runs the engine at the weights of one client after the other."""
    engine = make_engine(model, engine="fast")

    def clipped_sums(weights, inputs, targets, present, factors) -> ClippedSums:  # type: ignore[no-untyped-def]
        start, results = model.flat.clone(), []
        for w, x, y in zip(weights, inputs, targets, strict=True):
            model.set(w)
            clients = torch.zeros(len(y), dtype=torch.int64)
            results.append(engine.clipped_sums(x, y, clients, 1, factors))
        model.set(start)
        columns = ("sums", "norms", "losses", "finite")
        return ClippedSums(*(torch.cat([getattr(r, c) for r in results]) for c in columns))

    return clipped_sums


def per_client(records: Records, work: LocalTraining) -> list[tuple[Tensor, Tensor]]:
    """Return (inputs, targets) of each client."""
    inputs, targets = records.inputs.split(work.records), records.targets.split(work.records)
    return list(zip(inputs, targets, strict=True))


@torch.no_grad()
def _copy(source: list[Tensor], target: list[nn.Parameter]) -> None:
    for s, t in zip(source, target, strict=True):
        t.copy_(s)
