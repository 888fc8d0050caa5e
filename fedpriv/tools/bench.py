"""The command ``fedpriv bench``, which times the settings and prints and writes their ratios."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from fedpriv.common import checks, files
from fedpriv.common.console import console
from fedpriv.common.errors import ArgumentError
from fedpriv.engine import tune_allocator
from fedpriv.experiment.machine import resolve_device
from fedpriv.store.table import Column, Table
from fedpriv.tools import bench_clients as clients
from fedpriv.tools import bench_gradients as gradients
from fedpriv.tools.bench_measuring import Benchmark, Result, measure


def own_settings(model: str, device: str = "cpu") -> Iterator[Benchmark]:
    """Yield the benchmarks of a model: clipped sums at shared weights, then clients that train it."""
    yield from gradients.settings(model, device)
    yield from clients.settings(model, device)


def run(
    repeats: int = 30,
    models: Sequence[str] = tuple(gradients.MODELS),
    threads: int | None = None,
    json_path: str | Path | None = None,
    settings: Callable[[str, str], Iterable[Benchmark]] = own_settings,
    device: str = "cpu",
) -> int:
    """Time the settings on this machine and print how they compare with their bars.

    The number of torch's threads is set meanwhile and restored.

    Args:
        repeats: Timed calls of each row.
        models: Models to time: ``cnn``, ``mlp`` or ``logistic``.
        threads: Threads of torch; None leaves them as they are.
        json_path: File that the numbers are also written to; None: no file.
        settings: Function from the name of a model and the device to the benchmarks.
        device: Device that the records and models are on, as in ``runtime.device``.

    Returns:
        The exit status, which is 0: a bar that is not met is a finding, not a failure.

    Raises:
        ConfigError: An argument is not allowed.
        WriteError: The file cannot be written.
    """
    try:
        repeats = checks.whole("repeats", repeats, at_least=1)
        models = [checks.one_of("models", model, gradients.MODELS) for model in models]
        if threads is not None:
            threads = checks.whole("threads", threads, at_least=1)
        resolved_device = resolve_device(device, "--device")
    except ArgumentError as error:
        raise error.within("bench") from error
    with _conditions(threads, resolved_device) as conditions:
        console().print(", ".join(f"{key} {value}" for key, value in conditions.items()))
        if settings is own_settings:
            console().print("other libraries beside these: fedpriv bench --peers")
        results = []
        finish = (
            partial(torch.cuda.synchronize, resolved_device)
            if resolved_device.type == "cuda"
            else None
        )
        for setting in chain.from_iterable(
            settings(model, str(resolved_device)) for model in models
        ):
            results.append(measure(setting, repeats, finish))
            _print(results[-1])
    if json_path is not None:
        report = {"conditions": conditions, "settings": [result.as_dict() for result in results]}
        files.write_json(json_path, report)
    return 0


@contextmanager
def _conditions(threads: int | None, device: torch.device) -> Iterator[dict[str, object]]:
    """Set the threads for the run, and yield the conditions that the numbers were measured under."""
    before = torch.get_num_threads()
    # Processes that wanted a processor in the last minute. Ratios mean something where this is near 0.
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the timed libraries warn about their hooks
            yield {
                "torch": torch.__version__,
                **({"device": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
                "processors": f"{os.cpu_count()} {platform.machine()}",
                "load": load,
                "threads": torch.get_num_threads(),
                "tuned allocator": "yes" if tune_allocator() else "no",
            }
    finally:
        torch.set_num_threads(before)


def _print(result: Result) -> None:
    setting, out = result.setting, console()
    numbers = (Column(name, right=True) for name in ("median", f"ratio to {setting.floor}"))
    table = Table(setting.name, ("row", *numbers))
    for name, ms in result.median_ms.items():
        table.add(name, f"{ms:.2f} ms", f"{result.ratio(name, setting.floor):.2f}")
    out.print(table)
    if not setting.bars:
        return
    table = Table("", ("row", "bar", "measured", ""))
    for bar in setting.bars:
        ratio = result.ratio(bar.row, bar.reference)
        measured = f"{1 / ratio:.2f} × faster" if bar.at_most < 1 else f"{ratio:.2f} ×"
        table.add(bar.row, str(bar), measured, "met" if ratio <= bar.at_most else "not met")
    out.print(table)
