"""Layers that torch does not have: a convolution with standardized weights, and the tempered sigmoid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_EPSILON = 1e-4


class StandardizedConv2d(nn.Conv2d):
    """A convolution whose kernels have mean 0 and length 1, whatever its weights W.

        Ŵ_o = u_o / r_o,    u_o = W_o - mean of W_o,    r_o = (‖u_o‖² + 10⁻⁴)^½        for output channel o

    Weight standardization (S. Qiao et al., "Micro-batch training with batch-channel normalization and weight
    standardization", 2019) divides by the standard deviation; here it is divided by the square root of the
    number of inputs too (A. Brock et al., ICLR 2021), as S. De et al., "Unlocking high-accuracy
    differentially private image classification through scale", 2022, do in private training. Before a
    normalization the two are the same; without one, activations keep their size.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        kernels, _ = self._standardized()
        return self._conv_forward(inputs, kernels.view_as(self.weight), self.bias)

    def pulled_back(self, gradients: Tensor) -> Tensor:
        """Gradients with respect to Ŵ [n, *weight.shape] → with respect to W [n, p].

        (g_o - mean of g_o - ⟨g_o, Ŵ_o⟩ Ŵ_o) / r_o, the same linear map for every record.
        """
        kernels, lengths = self._standardized()
        given = gradients.flatten(2)
        along = torch.einsum("nop,op->no", given, kernels).unsqueeze(2)
        found = given - given.mean(2, keepdim=True)
        return found.addcmul_(along, kernels, value=-1).div_(lengths).flatten(1)

    def _standardized(self) -> tuple[Tensor, Tensor]:
        """(Ŵ [O, p], r [O, 1])."""
        weight = self.weight.flatten(1)
        centred = weight - weight.mean(1, keepdim=True)
        lengths = (centred.square().sum(1, keepdim=True) + _EPSILON).sqrt()
        return centred / lengths, lengths


def standardize(module: nn.Module) -> nn.Module:
    """The module with every convolution in it standardized; its weights and torch's random state stay."""
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Conv2d:
                setattr(parent, name, _standardized(layer))
    return module


def _standardized(layer: nn.Conv2d) -> StandardizedConv2d:
    names = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
    settings: dict[str, Any] = {name: getattr(layer, name) for name in names.split()}
    made = StandardizedConv2d(
        **settings,
        bias=layer.bias is not None,
        device="meta",  # which draws no weights
    )
    made.weight, made.bias = layer.weight, layer.bias
    return made


class TemperedSigmoid(nn.Module):
    """s σ(T x) - o; tanh for s = T = 2, o = 1."""

    def __init__(self, scale: float, temperature: float, offset: float):
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.temperature * inputs) - self.offset
