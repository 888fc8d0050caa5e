"""Activation functions between the layers of a network, chosen by name. Importing this imports no torch.

Private training clips gradients. A bounded activation keeps gradients from growing with the activations:
N. Papernot et al., "Tempered sigmoid activations for deep learning with differential privacy", AAAI 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import argument_of, declared, field, or_null, own_check

if TYPE_CHECKING:
    from torch import nn

TANH, TEMPERED_SIGMOID = "tanh", "tempered_sigmoid"
_TANH_AS_SIGMOID = (2.0, 2.0, 1.0)


def _activation(name: str, value: Any) -> str:
    if value not in (TANH, TEMPERED_SIGMOID):
        raise ArgumentError(name, value, f"{TANH}, {TEMPERED_SIGMOID} or null (ReLU)")
    return value


def _tempering(name: str, value: Any, part: Any) -> tuple[float, float, float]:
    if argument_of(part, "activation") != TEMPERED_SIGMOID:
        raise ArgumentError(name, value, f"null unless activation={TEMPERED_SIGMOID}")
    allowed = "three numbers [s, T, o] with s > 0 and T > 0"
    values = checks.sequence(name, value, allowed)
    try:
        scale, temperature, offset = (checks.number(name, number) for number in values)
    except (ArgumentError, ValueError):
        raise ArgumentError(name, value, allowed) from None
    if min(scale, temperature) <= 0:
        raise ArgumentError(name, value, allowed)
    return scale, temperature, offset


@declared
class Activation:
    """Activation function of a network: ReLU, ``tanh``, or ``tempered_sigmoid`` s σ(T x) - o."""

    name: str | None = field(
        or_null(own_check(_activation, f"{TANH}, {TEMPERED_SIGMOID}")),
        default=None,
        alias="activation",
        help="function between the layers; null: ReLU; tempered_sigmoid: s sigmoid(T x) - o",
    )
    tempering: tuple[float, float, float] | None = field(
        or_null(_tempering),
        default=None,
        help="[s, T, o] of activation=tempered_sigmoid; null: [2, 2, 1], which is tanh",
    )

    def module(self) -> nn.Module:
        """Return a new layer that computes the function."""
        from torch import nn

        from fedpriv.models.layers import TemperedSigmoid

        if self.name == TEMPERED_SIGMOID:
            return TemperedSigmoid(*(self.tempering or _TANH_AS_SIGMOID))
        return nn.ReLU() if self.name is None else nn.Tanh()
