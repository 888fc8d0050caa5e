"""Records clipped in a space with its own shift and scale for every coordinate.

The norm of a shifted and scaled gradient does not follow from the layers' factors, so each gradient is
formed, a few at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, StackedModel
from fedpriv.engine.norms import norms_above
from fedpriv.privacy.clippers.step_clip import ChunkClip

_HELD_VALUES = 2**26  # numbers in the gradients that are held at a time


def transformed_sums(
    context: RunContext,
    stacked: StackedModel,
    records: Records,
    owners: Tensor,
    changes: Tensor | None,
    clip: ChunkClip,
    members: int,
) -> ClippedSums:
    """Return Σ_i c_i (g_i - a_k)/b_k of each client k, with its shift a_k and scale b_k.

    Args:
        context: What the run works on.
        stacked: The model at weights of each client.
        records: Records of all clients [n].
        owners: Position of the client of each record [n].
        changes: What is added to the global weights for each client [m, d]; None: nothing.
        clip: The clip with its transform.
        members: Number of clients m.

    Returns:
        Sums [m, d] in float64; norms in the transformed space, losses and finiteness of each record [n].
    """
    model = context.model
    sums = torch.zeros(members, model.size, dtype=torch.float64, device=model.device)
    norms = model.flat.new_zeros(len(owners))
    losses, finite = torch.zeros_like(norms), torch.zeros_like(norms, dtype=torch.bool)
    at_once = max(1, _HELD_VALUES // model.size)
    for first in range(0, len(owners), at_once):
        block = torch.arange(first, min(first + at_once, len(owners)))
        block_owners = owners[block].to(model.device)
        some_records = records.subset(block.numpy())
        gradients = _gradients(context, stacked, some_records, changes, block_owners)
        rows = clip.transformed(gradients.sums.to(model.flat.dtype), block_owners)
        block_norms = norms_above(rows)
        usable = gradients.finite & block_norms.isfinite()
        rows = rows.masked_fill(~usable[:, None], 0.0)
        block_norms = block_norms.masked_fill(~usable, 0.0)
        factors = clip.factors(block_norms, block_owners).masked_fill(~usable, 0.0)
        sums.index_add_(0, block_owners, (rows * factors[:, None]).double())
        norms[block], losses[block], finite[block] = block_norms, gradients.losses, usable
    return ClippedSums(sums, norms, losses, finite)


def _gradients(
    context: RunContext,
    stacked: StackedModel,
    records: Records,
    changes: Tensor | None,
    owners: Tensor,
) -> ClippedSums:
    """Return the gradient of every record [n, d], by taking each record for a client with one record.

    A gradient that is not finite is zero, because norms are measured.
    """

    def unclipped(norms: Tensor, clients: Tensor) -> Tensor:
        return torch.ones_like(norms)

    count = len(records)
    if changes is None:
        each = torch.arange(count)
        return context.engine.clipped_sums(records.inputs, records.targets, each, count, unclipped)
    weights = changes[owners].add_(context.model.flat)
    present = torch.ones(count, 1, dtype=torch.bool, device=weights.device)
    lots = (records.inputs.unsqueeze(1), records.targets.unsqueeze(1), present)
    return stacked.clipped_sums(weights, *lots, unclipped)
