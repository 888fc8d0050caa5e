"""A model whose parameters are views into one flat vector, the form in which weights travel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each record: outputs [n, classes], targets [n] → losses [n]."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Images [n, c, h, w] laid out with the channels innermost; other inputs as they are.

    Convolutions and pools are two to three times faster on the CPU in this layout. Free for a
    tensor that has it already.
    """
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


class FlatModel:
    """Wraps a module so that all its parameters lie in one vector.

    Args:
        module: The model. Its parameters are moved into the vector, in the order of
            ``module.parameters()``; they stay ordinary parameters of the module. A module belongs to
            one FlatModel: wrapping it again takes its parameters out of the first one's vector.

    Attributes:
        module: The wrapped module.
        flat: The parameters [d]. Writing into it (``flat.add_(…)``) changes the model.

    Raises:
        ValueError: The parameters differ in dtype or device, or there are none.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self._images = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
        self._flatten()

    @property
    def size(self) -> int:
        """The number of parameters d."""
        return self.flat.numel()

    @property
    def device(self) -> torch.device:
        return self.flat.device

    def parameters(self) -> list[nn.Parameter]:
        """The parameters in their order in ``flat``."""
        return list(self.module.parameters())

    def set(self, flat: torch.Tensor) -> None:
        """Copy the weights [d] into the model."""
        self.flat.copy_(flat)

    def to(self, device: str | torch.device) -> FlatModel:
        """Move the model; ``flat`` becomes a new tensor on that device."""
        if torch.device(device) != self.device:
            self.module.to(device)
            self._flatten()
        return self

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for inputs [n, …]."""
        return self.module(channels_last(inputs) if self._images else inputs)

    def evaluate(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        batch: int = 250,
        loss: Loss = cross_entropy,
    ) -> tuple[float, float]:
        """Mean loss and accuracy (share of records whose largest output is the target).

        Runs in evaluation mode without gradients and restores the mode; (nan, nan) for no records.
        """
        n = len(targets)
        if n == 0:
            return float("nan"), float("nan")
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        training = self.module.training
        self.module.eval()
        try:
            with torch.inference_mode():
                for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
                    outputs = self(x)
                    totals[0] += loss(outputs, y).sum()
                    totals[1] += (outputs.argmax(1) == y).sum()
        finally:
            self.module.train(training)
        mean_loss, accuracy = (totals / n).tolist()
        return mean_loss, accuracy

    @torch.no_grad()
    def _flatten(self) -> None:
        parameters = self.parameters()
        if len({(p.dtype, p.device) for p in parameters}) != 1:
            raise ValueError("a model needs parameters, all of one dtype on one device")
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        offset = 0
        for p in parameters:
            p.data = self.flat[offset : offset + p.numel()].view(p.shape)
            offset += p.numel()
