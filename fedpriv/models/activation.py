"""What stands between the layers of a network, chosen by name; importing this does not import torch.

Bounded functions keep gradients, which private training clips, from growing with the activations: N. Papernot
et al., "Tempered sigmoid activations for deep learning with differential privacy", AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

if TYPE_CHECKING:
    from torch import nn

TANH, TEMPERED_SIGMOID = "tanh", "tempered_sigmoid"
_TANH_AS_SIGMOID = (2.0, 2.0, 1.0)


class Activation:
    """The function of a network.

    Args:
        activation: None for ReLU, or ``tanh``, or ``tempered_sigmoid``: s σ(T x) - o.
        tempering: [s, T, o] of the tempered sigmoid; None: [2, 2, 1], which is tanh.

    Raises:
        ArgumentError: An argument is not allowed.
    """

    def __init__(self, activation: str | None = None, tempering: Sequence[float] | None = None):
        if activation not in (None, TANH, TEMPERED_SIGMOID):
            allowed = f"{TANH}, {TEMPERED_SIGMOID} or null (ReLU)"
            raise ArgumentError("activation", activation, allowed)
        self.name = activation
        if tempering is not None and activation != TEMPERED_SIGMOID:
            allowed = f"null unless activation={TEMPERED_SIGMOID}"
            raise ArgumentError("tempering", tempering, allowed)
        self.tempering = _TANH_AS_SIGMOID if tempering is None else _numbers(tempering)

    def module(self) -> nn.Module:
        """A new layer that computes it."""
        from torch import nn

        from fedpriv.models.layers import TemperedSigmoid

        if self.name == TEMPERED_SIGMOID:
            return TemperedSigmoid(*self.tempering)
        return nn.ReLU() if self.name is None else nn.Tanh()


def _numbers(tempering: Sequence[float]) -> tuple[float, float, float]:
    allowed = "three numbers [s, T, o] with s > 0 and T > 0"
    values = checks.sequence("tempering", tempering, allowed)
    try:
        scale, temperature, offset = (checks.number("tempering", value) for value in values)
    except (ArgumentError, ValueError):
        raise ArgumentError("tempering", tempering, allowed) from None
    if min(scale, temperature) <= 0:
        raise ArgumentError("tempering", tempering, allowed)
    return scale, temperature, offset
