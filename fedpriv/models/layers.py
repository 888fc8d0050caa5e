"""Layers that torch lacks: a convolution with standardized weights, and the tempered sigmoid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_EPSILON = 1e-4


class StandardizedConv2d(nn.Conv2d):
    """A convolution whose kernels have mean 0 and length 1 for any weights W.

        Ŵ_o = u_o / r_o,    u_o = W_o - mean of W_o,    r_o = (‖u_o‖² + 10⁻⁴)^½        for output channel o

    Weight standardization (S. Qiao et al., "Micro-batch training with batch-channel normalization and weight
    standardization", 2019) divides by the standard deviation. This layer also divides by the square root of
    the number of inputs (A. Brock et al., ICLR 2021), as S. De et al., "Unlocking high-accuracy
    differentially private image classification through scale", 2022, do in private training. Before a
    normalization layer the two versions are equivalent. Without such a layer, this version keeps the size of
    the activations.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        kernels, _ = self._standardized()
        return self._conv_forward(inputs, kernels.view_as(self.weight), self.bias)

    def pulled_back(self, gradients: Tensor) -> Tensor:
        """Convert gradients with respect to Ŵ into gradients with respect to W.

            (g_o - mean of g_o - ⟨g_o, Ŵ_o⟩ Ŵ_o) / r_o

        This linear map is the same for every record.

        Args:
            gradients: Per-record gradients with respect to Ŵ [n, *weight.shape].

        Returns:
            Per-record gradients with respect to W, flat, [n, p].
        """
        kernels, lengths = self._standardized()
        flat_gradients = gradients.flatten(2)
        projections = torch.einsum("nop,op->no", flat_gradients, kernels).unsqueeze(2)
        result = flat_gradients - flat_gradients.mean(2, keepdim=True)
        return result.addcmul_(projections, kernels, value=-1).div_(lengths).flatten(1)

    def _standardized(self) -> tuple[Tensor, Tensor]:
        """Return Ŵ [O, p] and r [O, 1]."""
        weight = self.weight.flatten(1)
        centred = weight - weight.mean(1, keepdim=True)
        lengths = (centred.square().sum(1, keepdim=True) + _EPSILON).sqrt()
        return centred / lengths, lengths


def standardize(module: nn.Module) -> nn.Module:
    """Standardize every convolution of a module in place, and return the module.

    Its weights and torch's random state stay as they are.
    """
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Conv2d:
                setattr(parent, name, _standardized(layer))
    return module


def _standardized(layer: nn.Conv2d) -> StandardizedConv2d:
    names = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
    settings: dict[str, Any] = {name: getattr(layer, name) for name in names.split()}
    standardized_layer = StandardizedConv2d(
        **settings,
        bias=layer.bias is not None,
        device="meta",  # draws no initial weights, so the random state stays
    )
    standardized_layer.weight, standardized_layer.bias = layer.weight, layer.bias
    return standardized_layer


class TemperedSigmoid(nn.Module):
    """Tempered sigmoid s σ(T x) - o, which is tanh for s = T = 2 and o = 1.

    Args:
        scale: s.
        temperature: T.
        offset: o.
    """

    def __init__(self, scale: float, temperature: float, offset: float):
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.temperature * inputs) - self.offset
