"""The isolated engine: each record is computed with a copy of the model that is thrown away afterwards.

    for each record i:   module_i ← copy of the module at θ,    g_i ← ∇ loss(module_i(x_i), y_i)

So a gradient depends on its record, the weights and the model's initial state alone, whatever the model's
code does with batches, buffers, attributes or parameters. State that the code keeps outside the module
(globals, variables of a closure, files) is not copied. The price is a forward and a backward pass for every
record.
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
    """Clipped sums record by record; the K augmented copies of a record go together.

    Args:
        model: The model.
        loss: (outputs, targets) → loss of each record [n].
    """

    name = "isolated"

    def __init__(self, model: FlatModel, loss: Loss):
        super().__init__(model, loss)
        # the gradient of each record of a block is held
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
            rows[i], losses_of_copies = self.model.gradient_alone(x, y, share, self.loss)
            losses[i] = losses_of_copies.mean()
        return [Rows({"all": rows}, {"all": slice(0, self.model.size)})], losses, None

    def _layer_by_layer(self, layers: Sequence[LayerGradients]) -> Sequence[LayerGradients]:
        (whole,) = cast("Sequence[Rows]", layers)
        separate, offset = [], 0
        for p in self.model.parameters():
            columns = slice(offset, offset + p.numel())
            separate.append(Rows({"all": whole.rows["all"][:, columns]}, {"all": columns}))
            offset = columns.stop
        return separate
