"""Records computed alone, each with a copy of the model that is thrown away afterwards.

    for each record i:   module_i ← copy of the module at θ,    g_i ← ∇ loss(module_i(x_i), y_i)

So a gradient depends on its record, the weights and the model's initial state, whatever the model's code
does with batches, buffers, attributes or parameters. What it keeps outside itself (globals, variables of a
closure, files) is not copied. It costs a forward and a backward pass for every record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from fedpriv.engine.base import BlockEngine
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.lots import BLOCK_VALUES
from fedpriv.engine.rules import LayerGradients, Rows


class IsolatedEngine(BlockEngine):
    """Clipped sums record by record; the K copies that augmentation makes of a record go together.

    Args:
        model: The model.
        loss: (outputs, targets) → loss of each record [n].
    """

    name = "isolated"

    def __init__(self, model: FlatModel, loss: Loss):
        super().__init__(model, loss)
        # its gradient is held for a record, of a block of records at a time
        self._values_per_record = max(1, min(model.size, BLOCK_VALUES))

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, prove: bool
    ) -> tuple[Sequence[LayerGradients], torch.Tensor, torch.Tensor | None]:
        copies = len(inputs) // len(targets)
        share = self.model.flat.new_full((copies,), 1 / copies)
        rows = self.model.flat.new_empty(len(targets), self.model.size)
        losses = self.model.flat.new_empty(len(targets))
        for i, x in enumerate(inputs.split(copies)):
            y = targets[i : i + 1].repeat_interleave(copies, 0)
            rows[i], own = self.model.gradient_alone(x, y, share, self.loss)
            losses[i] = own.mean()
        return [Rows({"all": rows}, {"all": slice(0, self.model.size)})], losses, None

    def _apart(self, layers: Sequence[LayerGradients]) -> Sequence[LayerGradients]:
        (whole,) = cast("Sequence[Rows]", layers)
        apart, offset = [], 0
        for p in self.model.parameters():
            own = slice(offset, offset + p.numel())
            apart.append(Rows({"all": whole.rows["all"][:, own]}, {"all": own}))
            offset = own.stop
        return apart
