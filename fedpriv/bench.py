"""``fedpriv bench``: how fast the engine is on this machine, as ratios within one interleaved run.

Times of single rows mean little on a shared machine; ratios of medians from runs that take turns
mean more; on a busy machine ``threads=1`` is the steadier setting. "Plain" is an ordinary forward
and backward pass on the same records without privacy, the floor of any method; for convolutions in
the channels_last layout, in which it is fastest.

A new comparison is a new :class:`Row`, in :func:`rows_of` or a new function beside it, and perhaps
a :class:`Bar` to hold it to.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

from fedpriv.common import checks, files
from fedpriv.common.errors import ArgumentError
from fedpriv.engine import FlatModel, channels_last, make_engine, tune_allocator
from fedpriv.models import Cnn, Mlp

MODELS = {"cnn": Cnn(seed=0), "mlp": Mlp(seed=0)}
SHAPE, CLASSES, CLIP_NORM = (1, 28, 28), 10, 0.5
CHANNELS_LAST, PLAIN = "plain, channels_last", "plain"
HOOKS, GHOST, LOOP = (
    "Opacus hooks + clip",
    "Opacus ghost clipping",
    "Opacus PrivacyEngine per client",
)
FAST, RAGGED = "fast engine", "fast engine, ragged lots"
ROUND = "whole round: fast engine, noise, Adam, average"


@dataclass(frozen=True)
class Row:
    """Something to time: one call of ``step`` is one measurement."""

    name: str
    step: Callable[[], object]


@dataclass(frozen=True)
class Bar:
    """``row`` takes at most ``at_most`` times as long as ``reference``."""

    row: str
    reference: str
    at_most: float

    def __str__(self) -> str:
        if self.at_most < 1:
            return f"≥ {1 / self.at_most:g} × faster than {self.reference}"
        return f"≤ {self.at_most:g} × {self.reference}"


@dataclass(frozen=True)
class Setting:
    """Rows that are timed in turn, ratios to ``floor``, and what they are held to."""

    name: str
    floor: str
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class Result:
    """Median milliseconds of each row of a setting."""

    setting: Setting
    median_ms: dict[str, float]

    def ratio(self, row: str, reference: str) -> float:
        return self.median_ms[row] / self.median_ms[reference]

    def as_dict(self) -> dict[str, object]:
        floor = self.setting.floor
        return {
            "setting": self.setting.name,
            "floor": floor,
            "rows": [
                {"row": name, "median_ms": ms, "ratio": self.ratio(name, floor)}
                for name, ms in self.median_ms.items()
            ],
            "bar": [
                {
                    "row": bar.row,
                    "reference": bar.reference,
                    "at_most": bar.at_most,
                    "ratio": self.ratio(bar.row, bar.reference),
                    "met": self.ratio(bar.row, bar.reference) <= bar.at_most,
                }
                for bar in self.setting.bars
            ],
        }


def run(
    repeats: int = 30,
    models: Sequence[str] = ("cnn", "mlp"),
    threads: int | None = None,
    json_path: str | None = None,
) -> int:
    """Print the table of the bar for this machine.

    Args:
        repeats: Timed calls of each row.
        models: Which of ``cnn`` and ``mlp``.
        threads: Threads of torch; None leaves them as they are.
        json_path: Also write the numbers here.

    Returns:
        0: a bar that is not met is a finding, not a failure.

    Raises:
        ConfigError: An argument is not allowed.
    """
    try:
        repeats = checks.whole("repeats", repeats, at_least=1)
        models = [checks.one_of("models", model, MODELS) for model in models]
        if threads is not None:
            threads = checks.whole("threads", threads, at_least=1)
    except ArgumentError as error:
        raise error.within("bench") from error
    console = Console()
    with _conditions(threads) as conditions:
        console.print(", ".join(f"{key} {value}" for key, value in conditions.items()))
        results = []
        for setting in settings(models):
            results.append(measure(setting, repeats))
            _print(console, results[-1])
    if json_path is not None:
        report = {"conditions": conditions, "settings": [result.as_dict() for result in results]}
        files.write_text(json_path, json.dumps(report, indent=2) + "\n")
    return 0


def settings(models: Sequence[str]) -> Iterator[Setting]:
    """What is measured: each model with the lots of 10 clients, and of one."""
    for model in models:
        floor = CHANNELS_LAST if model == "cnn" else PLAIN
        bars = (
            Bar(FAST, floor, 1.7 if model == "cnn" else 1.6),
            Bar(FAST, HOOKS, 1 / 2),
            Bar(FAST, LOOP, 1 / 4),
            Bar(ROUND, floor, 2.2),
        )
        for clients in (10, 1):
            name = f"{model}, {clients} × 78 records"
            rows = tuple(rows_of(model, clients, 78))
            yield Setting(name, floor, rows, bars if clients == 10 else ())


def measure(setting: Setting, repeats: int) -> Result:
    """Time the rows in turn, so that whatever else the machine does falls on all of them.

    Each is called once untimed before each timed call: a step of training follows another one like
    it, not one that has just filled the caches with something else.
    """
    times: dict[str, list[float]] = {row.name: [] for row in setting.rows}
    for _ in range(repeats):
        for row in setting.rows:
            row.step()
            start = time.perf_counter()
            row.step()
            times[row.name].append(1e3 * (time.perf_counter() - start))
    return Result(setting, {name: statistics.median(values) for name, values in times.items()})


def rows_of(model: str, clients: int, lot: int) -> Iterator[Row]:
    """Ways to get the clipped gradient sums of ``clients`` lots of ``lot`` random records."""
    inputs = torch.randn(clients * lot, *SHAPE)
    targets = torch.randint(0, CLASSES, (clients * lot,))

    def build() -> nn.Module:
        return MODELS[model].build(SHAPE, CLASSES)

    yield Row(PLAIN, partial(plain_step, build(), inputs, targets))
    if model == "cnn":
        inputs_last = channels_last(inputs)
        module = build().to(memory_format=torch.channels_last)
        yield Row(CHANNELS_LAST, partial(plain_step, module, inputs_last, targets))
    yield Row(HOOKS, hooks_step(build(), inputs, targets))
    yield Row(GHOST, ghost_step(build(), inputs, targets))
    yield Row(LOOP, loop_step(build, inputs, targets, clients))
    yield Row(FAST, fast_step(FlatModel(build()), inputs, targets, [lot] * clients))
    if clients > 1:
        yield Row(RAGGED, fast_step(FlatModel(build()), inputs, targets, ragged(clients, lot)))
        yield Row(ROUND, round_step(build(), inputs, targets, [lot] * clients))


def plain_step(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """An ordinary forward and backward pass, for all records together."""
    module.zero_grad()
    functional.cross_entropy(module(inputs), targets).backward()


def hooks_step(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor):
    """Opacus's per-record gradients, clipped and summed over all records."""
    from opacus import GradSampleModule

    wrapped = GradSampleModule(module, loss_reduction="sum")

    def step() -> None:
        wrapped.zero_grad()
        functional.cross_entropy(wrapped(inputs), targets, reduction="sum").backward()
        samples = [p.grad_sample for p in wrapped.parameters()]
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples]).norm(dim=0)
        scale = (CLIP_NORM / norms).clamp(max=1)
        for s in samples:
            torch.einsum("n,n...->...", scale, s)

    return step


def ghost_step(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor):
    """Opacus's ghost clipping: a backward pass for the norms, another for the clipped sum."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )

    def step() -> None:
        wrapped.enable_hooks()
        losses = functional.cross_entropy(wrapped(inputs), targets, reduction="none")
        losses.sum().backward(retain_graph=True)
        scale = wrapped.get_clipping_coef()
        wrapped.zero_grad()
        wrapped.disable_hooks()
        (scale * losses).sum().backward()

    return step


def loop_step(
    build: Callable[[], nn.Module], inputs: torch.Tensor, targets: torch.Tensor, clients: int
):
    """One step of a private optimizer, without noise, for one client after the other. Wrapping the
    clients' models is not counted."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    prepared = []
    for x, y in zip(inputs.chunk(clients), targets.chunk(clients), strict=True):
        module = build()
        wrapped, optimizer, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
            noise_multiplier=0.0,
            max_grad_norm=CLIP_NORM,
        )
        prepared.append((wrapped, optimizer, x, y))

    def step() -> None:
        for wrapped, optimizer, x, y in prepared:
            optimizer.zero_grad()
            functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()

    return step


def fast_step(
    model: FlatModel, inputs: torch.Tensor, targets: torch.Tensor, counts: Sequence[int]
) -> Callable[[], torch.Tensor]:
    """The engine's clipped sums of every client [clients, d]."""
    clients = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    engine = make_engine(model, engine="fast")
    if any(isinstance(layer, nn.Conv2d) for layer in model.module.modules()):
        inputs = channels_last(inputs)

    def clip(norms: torch.Tensor, client_of_record: torch.Tensor) -> torch.Tensor:
        return (CLIP_NORM / norms).clamp(max=1)

    return lambda: engine.clipped_sums(inputs, targets, clients, len(counts), clip).sums


def round_step(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, counts: Sequence[int]
) -> Callable[[], None]:
    """A round of local differential privacy: each client's clipped sum with its own noise, its own
    Adam step, then the average of the clients as the new weights."""
    model = FlatModel(module)
    sums_of = fast_step(model, inputs, targets, counts)
    weights = nn.Parameter(model.flat.repeat(len(counts), 1))
    adam = torch.optim.Adam([weights], lr=0.001, fused=True)

    @torch.no_grad()
    def step() -> None:
        weights.copy_(model.flat)
        sums = sums_of()
        weights.grad = sums.add_(torch.randn_like(sums), alpha=CLIP_NORM).div_(counts[0])
        adam.step()
        torch.mean(weights, 0, out=model.flat)

    return step


def ragged(clients: int, lot: int) -> list[int]:
    """Unequal lots of the same total, spread by about ± √lot as Poisson sampling would."""
    counts = [lot] * clients
    for client in range(clients // 2):
        shift = (client * 5 + 3) % (2 * round(lot**0.5))
        counts[client] += shift
        counts[-1 - client] -= shift
    return counts


@contextmanager
def _conditions(threads: int | None) -> Iterator[dict[str, object]]:
    """Set the threads for the run; says what the numbers were measured under."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Opacus on its secure mode and its hooks
            yield {
                "torch": torch.__version__,
                "processors": f"{os.cpu_count()} {platform.machine()}",
                "load": _load(),
                "threads": torch.get_num_threads(),
                "tuned allocator": "yes" if tune_allocator() else "no",
            }
    finally:
        torch.set_num_threads(before)


def _load() -> str:
    """Processes that wanted a processor in the last minute; ratios need it near 0."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def _print(console: Console, result: Result) -> None:
    setting = result.setting
    table = Table(title=setting.name, title_justify="left")
    table.add_column("row")
    table.add_column("median", justify="right")
    table.add_column(f"ratio to {setting.floor}", justify="right")
    for name, ms in result.median_ms.items():
        table.add_row(name, f"{ms:.2f} ms", f"{result.ratio(name, setting.floor):.2f}")
    console.print(table)
    if not setting.bars:
        return
    table = Table()
    for column in ("row", "bar", "measured", ""):
        table.add_column(column)
    for bar in setting.bars:
        ratio = result.ratio(bar.row, bar.reference)
        measured = f"{1 / ratio:.2f} × faster" if bar.at_most < 1 else f"{ratio:.2f} ×"
        table.add_row(bar.row, str(bar), measured, "met" if ratio <= bar.at_most else "not met")
    console.print(table)
