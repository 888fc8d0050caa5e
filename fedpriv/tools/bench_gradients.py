"""Benchmarks of clipped gradient sums of clients that share weights: the engine against a plain step.

A plain step is an ordinary forward and backward pass on the same records without privacy, which no method
can beat. For convolutions it is timed in the channels_last layout, where it is fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.engine import FlatModel, channels_last, make_engine
from fedpriv.models import Cnn, Logistic, Mlp
from fedpriv.privacy.core.noise import Noise
from fedpriv.tools.bench_measuring import Bar, Benchmark, TimedStep

MODELS = {"cnn": Cnn(seed=0), "mlp": Mlp(seed=0), "logistic": Logistic(seed=0)}
SHAPE, CLASSES, CLIP_NORM = (1, 28, 28), 10, 0.5
CHANNELS_LAST, PLAIN = "plain, channels_last", "plain"
FAST, RAGGED = "fast engine", "fast engine, ragged lots"
ISOLATED = "isolated records"
ROUND = "whole round: fast engine, noise, Adam, average"


def settings(model: str, device: str = "cpu") -> Iterator[Benchmark]:
    """Yield the benchmarks of a model: lots of 10 clients, of one client, and isolated records."""
    floor = CHANNELS_LAST if model == "cnn" else PLAIN
    bars: tuple[Bar, ...] = ()
    if model != "logistic":
        bars = (
            Bar(FAST, floor, 1.7 if model == "cnn" else 1.6),
            Bar(ROUND, floor, 2.2),
        )
    for clients in (10, 1):
        name = f"{model}, {clients} × 78 records"
        rows = tuple(rows_of(model, clients, 78, device))
        yield Benchmark(name, floor, rows, bars if clients == 10 else ())
    rows = tuple(isolated_rows_of(model, 78, device))
    yield Benchmark(f"{model}, 78 records, each alone", PLAIN, rows)


def isolated_rows_of(model: str, lot: int, device: str = "cpu") -> Iterator[TimedStep]:
    """Yield two steps to time on one random lot: an ordinary pass, and clipped sums with isolated records.

    Args:
        model: Name of a model in ``MODELS``.
        lot: Number of records.
        device: Device of the records and the model.
    """
    inputs, targets = random_records(lot, device)
    yield TimedStep(PLAIN, partial(plain_step, built(model, device), inputs, targets))
    alone = FlatModel(built(model, device), isolated=True)
    yield TimedStep(ISOLATED, fast_step(alone, inputs, targets, [lot], "auto"))


def random_records(count: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Return random inputs [count, …] and targets [count]."""
    inputs, targets = torch.randn(count, *SHAPE), torch.randint(0, CLASSES, (count,))
    return inputs.to(device), targets.to(device)


def built(model: str, device: str = "cpu") -> nn.Module:
    """Return a new module of a model in ``MODELS``."""
    return MODELS[model].build(SHAPE, CLASSES).to(device)


def rows_of(model: str, clients: int, lot: int, device: str = "cpu") -> Iterator[TimedStep]:
    """Yield ways to compute the clipped gradient sums of ``clients`` lots of ``lot`` random records."""
    inputs, targets = random_records(clients * lot, device)
    build = partial(built, model, device)

    yield TimedStep(PLAIN, partial(plain_step, build(), inputs, targets))
    if model == "cnn":
        inputs_last = channels_last(inputs)
        module: Any = build()
        module = module.to(memory_format=torch.channels_last)
        yield TimedStep(CHANNELS_LAST, partial(plain_step, module, inputs_last, targets))
    yield TimedStep(FAST, fast_step(FlatModel(build()), inputs, targets, [lot] * clients))
    if clients > 1:
        yield TimedStep(
            RAGGED, fast_step(FlatModel(build()), inputs, targets, ragged(clients, lot))
        )
        yield TimedStep(ROUND, round_step(build(), inputs, targets, [lot] * clients))


def plain_step(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Run an ordinary forward and backward pass on all records together."""
    module.zero_grad()
    functional.cross_entropy(module(inputs), targets).backward()


def fast_step(
    model: FlatModel,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    counts: Sequence[int],
    engine: str = "fast",
) -> Callable[[], torch.Tensor]:
    """Return a step that computes the engine's clipped sums of all clients [clients, d]."""
    clients = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    chosen = make_engine(model, engine=engine)
    if any(isinstance(layer, nn.Conv2d) for layer in model.module.modules()):
        inputs = channels_last(inputs)

    def clip(norms: torch.Tensor, client_of_record: torch.Tensor) -> torch.Tensor:
        return (CLIP_NORM / norms).clamp(max=1)

    return lambda: chosen.clipped_sums(inputs, targets, clients, len(counts), clip).sums


def round_step(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, counts: Sequence[int]
) -> Callable[[], None]:
    """Return a round of local differential privacy.

    Each client adds its own noise to its clipped sum, as runs draw it, and does an Adam step. The average of
    the clients' weights becomes the new weights.
    """
    model = FlatModel(module)
    sums_of = fast_step(model, inputs, targets, counts)
    weights = nn.Parameter(model.flat.repeat(len(counts), 1))
    adam = torch.optim.Adam([weights], lr=0.001, fused=True)
    streams, rounds = SecretStreams.simulated(0, 0), count()
    std = torch.full((len(counts),), CLIP_NORM, device=model.device)

    @torch.no_grad()
    def step() -> None:
        weights.copy_(model.flat)
        round_index = next(rounds)
        noise = Noise(
            [streams.noise("bench", round_index, k) for k in range(len(counts))], model.size
        )
        weights.grad = noise.add_to(sums_of(), std).div_(counts[0])
        adam.step()
        torch.mean(weights, 0, out=model.flat)

    return step


def ragged(clients: int, lot: int) -> list[int]:
    """Return unequal lot sizes of the same total, spread by about ± √lot as by Poisson sampling.

    The first half of the clients gets more and the last half as many fewer; the sizes are always the same.
    """
    counts = [lot] * clients
    for client in range(clients // 2):
        shift = (client * 5 + 3) % (2 * round(lot**0.5))
        counts[client] += shift
        counts[-1 - client] -= shift
    return counts
