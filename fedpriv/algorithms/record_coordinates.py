"""Records clipped in a space of their own for every coordinate: each gradient is formed, a few at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, StackedModel
from fedpriv.engine.norms import norms_above
from fedpriv.privacy.clippers.step_clip import ChunkClip

_VALUES = 2**26  # numbers in the gradients that are held at a time


def transformed_sums(
    context: RunContext,
    stacked: StackedModel,
    records: Records,
    owners: Tensor,
    changes: Tensor | None,
    clip: ChunkClip,
    members: int,
) -> ClippedSums:
    """Σ_i c_i (g_i - a_k)/b_k of each of ``members`` clients, for the records [n] that ``owners`` [n] say.

    Args:
        changes: What is added to the global weights of each member [m, d]; None: nothing.
    """
    model = context.model
    sums = torch.zeros(members, model.size, dtype=torch.float64, device=model.device)
    norms = model.flat.new_zeros(len(owners))
    losses, finite = torch.zeros_like(norms), torch.zeros_like(norms, dtype=torch.bool)
    at_once = max(1, _VALUES // model.size)
    for first in range(0, len(owners), at_once):
        own = torch.arange(first, min(first + at_once, len(owners)))
        whose = owners[own].to(model.device)
        found = _gradients(context, stacked, records.subset(own.numpy()), changes, whose)
        rows = clip.transformed(found.sums.to(model.flat.dtype), whose)
        length = norms_above(rows)
        usable = found.finite & length.isfinite()
        rows = rows.masked_fill(~usable[:, None], 0.0)
        length = length.masked_fill(~usable, 0.0)
        factors = clip.factors(length, whose).masked_fill(~usable, 0.0)
        sums.index_add_(0, whose, (rows * factors[:, None]).double())
        norms[own], losses[own], finite[own] = length, found.losses, usable
    return ClippedSums(sums, norms, losses, finite)


def _gradients(
    context: RunContext,
    stacked: StackedModel,
    records: Records,
    changes: Tensor | None,
    whose: Tensor,
) -> ClippedSums:
    """Of every record by itself, as the only one of a client: those that are not finite are zero."""
    count = len(records)
    if changes is None:
        each = torch.arange(count)
        return context.engine.clipped_sums(records.inputs, records.targets, each, count, _whole)
    weights = changes[whose].add_(context.model.flat)
    present = torch.ones(count, 1, dtype=torch.bool, device=weights.device)
    one = (records.inputs.unsqueeze(1), records.targets.unsqueeze(1), present)
    return stacked.clipped_sums(weights, *one, _whole)


def _whole(norms: Tensor, clients: Tensor) -> Tensor:
    return torch.ones_like(norms)
