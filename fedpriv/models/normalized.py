"""A model behind a layer that normalizes the channels of its inputs by released statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_BROUGHT = ("record_loss", "weight_decay", "record_correct", "random_records", "values_per_record")
"""What a model may have beside ``forward``: see :class:`fedpriv.engine.FlatModel`."""


class NormalizedInputs(nn.Module):
    """A ``model`` on inputs [n, C, H, W] whose channels are normalized first.

        x ↦ model( (x - mean) / variance^½ )

    Mean and variance are buffers in the state dict beside the model's weights (``mean``, ``variance``,
    ``model.…``). Until they are set, they are 0 and 1, which changes nothing. Training does not change them.

    Args:
        model: Network behind the normalization.
        channels: Number of channels C.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, model: nn.Module, channels: int):
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        scale = self.variance.rsqrt()[:, None, None]
        return self.model((inputs - self.mean[:, None, None]) * scale)

    def set_statistics(self, mean: Tensor, variance: Tensor) -> None:
        """Set mean and variance (> 0) of each channel [C]."""
        self.mean.copy_(mean)
        self.variance.copy_(variance)

    def __getattr__(self, name: str) -> Any:
        if name in _BROUGHT:
            return getattr(self.model, name)
        return super().__getattr__(name)
