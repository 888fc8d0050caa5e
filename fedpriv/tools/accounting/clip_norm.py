"""``fedpriv calibrate clip-norm``: quantiles of what would be clipped, measured on public data.

    suggested clip norm = median over all steps of ‖g‖

g is the gradient of a record, or the upload of a client, of a model that is trained without clipping and
without noise. Abadi et al. 2016 recommend this median. Only the data set that the user declares to be public
is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.optimizers import Optimizer
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.uploads import Uploads
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.machine import choose_threads, resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.store.display import console
from fedpriv.store.table import Column, Table

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95)
_LOT = 256  # most records of a step at record level
_WIDE = 1e12  # clip norm of an algorithm that clips while it computes: nothing is clipped


def run(
    overrides: Sequence[str], public: str, steps: int, config_dir: str | None, as_json: bool
) -> int:
    """Measure norms on a public data set, print their quantiles and the suggestion, and return 0.

    The current folder is added to ``sys.path``.

    Args:
        overrides: Overrides of ``fedpriv train``, without the data set.
        public: Name of the data set, which the user declares to be public.
        steps: Number of steps, or of rounds where clients upload.
        config_dir: A folder with the user's YAMLs, or None.
        as_json: Whether JSON is printed instead of a table.

    Raises:
        ConfigError: The overrides name a data set, the configuration is not allowed, or no norm is finite.
    """
    if any(word.lstrip("+").partition("=")[0] == "dataset" for word in overrides):
        raise ConfigError(
            "fedpriv calibrate clip-norm reads the data set of --public only: leave dataset= out"
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a _target_ may name a module in the working folder
    folder = None if config_dir is None else Path(config_dir)
    parts = build_parts(configuration.compose([f"dataset={public}", *overrides], folder))
    runtime = parts.settings.runtime
    choose_threads(runtime.threads, 0)
    context = make_context(parts, resolve_device(runtime.device))
    context.clipper = ConstantClipper(clip_norm=_WIDE)
    trainer = parts.algorithm.start(context)
    uploads = trainer.computation.uploads
    if uploads is None:
        unit, step = "gradient of a record", _record_step(context, trainer.optimizer)
    else:
        unit, step = "upload of a client", _client_step(parts, context, uploads, trainer.optimizer)
    norms = [step(index) for index in range(steps)]
    _show(parts, unit, norms, as_json)
    return 0


def _record_step(context: RunContext, optimizer: Optimizer) -> Callable[[int], np.ndarray]:
    """Return a function that takes one step of training and returns the gradient norms of its lot."""
    train = context.data.train
    # Lots are spread evenly over the data set, which may be sorted by label, so no random number is needed.
    spacing = -(-len(train) // _LOT)

    def step(index: int) -> np.ndarray:
        places = np.arange(index % spacing, len(train), spacing)
        lot = train.subset(places)
        client_of_record = torch.zeros(len(places), dtype=torch.int64)
        result = context.engine.clipped_sums(
            lot.inputs, lot.targets, client_of_record, 1, lambda norms, _: torch.ones_like(norms)
        )
        _move(context, optimizer, result.sums[0] / len(places))
        return _finite(result.norms)

    return step


def _client_step(
    parts: Parts, context: RunContext, uploads: Uploads, optimizer: Optimizer
) -> Callable[[int], np.ndarray]:
    """Return a function that runs one round with a plain mean and returns the norms of its uploads."""
    everyone = np.ones(context.data.client_count, dtype=bool)

    def step(index: int) -> np.ndarray:
        cohort = parts.algorithm.cohort(context.streams, index, everyone)
        if not len(cohort):  # a Poisson cohort may be empty
            return np.zeros(0)
        batch = uploads.of(index, cohort)
        norms = torch.linalg.vector_norm(batch.uploads, dim=1)
        mean = batch.uploads.mean(0)
        if uploads.replaces:
            context.model.set(mean.to(context.model.flat.dtype))
        else:
            _move(context, optimizer, mean)
        return _finite(norms)

    return step


def _move(context: RunContext, optimizer: Optimizer, mean: Tensor) -> None:
    """Move the weights by the algorithm's optimiser, as its holder 0 would do with a mean without noise."""
    flat = context.model.flat
    holder = torch.zeros(1, dtype=torch.int64, device=flat.device)
    optimizer.begin_round(holder)
    if observe := getattr(optimizer, "observe_noise", None):
        observe(flat.new_zeros(1, 1))
    flat.add_(optimizer.step(holder, mean.to(flat.dtype)[None].clone())[0])


def _finite(norms: Tensor) -> np.ndarray:
    return norms[norms.isfinite()].double().cpu().numpy()


def _show(parts: Parts, unit: str, norms: Sequence[np.ndarray], as_json: bool) -> None:
    """Print the quantiles of the first step, of the last step and of all steps, and the suggestion."""
    columns = {"first step": norms[0], "last step": norms[-1], "all steps": np.concatenate(norms)}
    measured = columns["all steps"]
    if not len(measured):
        raise ConfigError("no norm was measured, or none is finite: choose a smaller learning rate")
    quantiles = {
        name: [float(np.quantile(values, q)) if len(values) else None for q in QUANTILES]
        for name, values in columns.items()
    }
    suggestion = quantiles["all steps"][QUANTILES.index(0.5)]
    data, steps = parts.dataset.name, len(norms)
    if as_json:
        named = {
            name: dict(zip(map(str, QUANTILES), row, strict=True))
            for name, row in quantiles.items()
        }
        answer = {
            "clip_norm": suggestion,
            "unit": unit,
            "public_dataset": data,
            "algorithm": parts.algorithm.name,
            "steps": steps,
            "norms": len(measured),
            "quantiles": named,
        }
        print(json_text(answer, allow_nan=False), end="")
        return
    title = f"Norm of the {unit}: {parts.algorithm.name} on {data}, {steps} steps without clipping or noise"
    table = Table(title, ("quantile", *(Column(name, right=True) for name in quantiles)))
    for place, share in enumerate(QUANTILES):
        row = (column[place] for column in quantiles.values())
        table.add(f"{100 * share:g} %", *("" if x is None else f"{x:.4g}" for x in row))
    out = console()
    out.print(table)
    out.print(f"suggested clip norm: {suggestion:.3g}, the median over all steps")
    out.print(
        f"Read: the records of {data}, which you declare to be public. Nothing else was read, so there "
        "is no charge. If these records are private, the suggestion is a release without noise and no ε "
        "covers it."
    )
