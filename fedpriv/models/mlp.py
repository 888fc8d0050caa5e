"""A multilayer perceptron with one hidden layer and ReLU on the flattened record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common import checks
from fedpriv.models.base import ModelFactory, inputs_per_record

if TYPE_CHECKING:
    from torch import nn


class Mlp(ModelFactory):
    """Flatten, linear, ReLU, linear; 25,450 parameters on 1 × 28 × 28 with 10 classes.

    Args:
        seed: Seed of the initial weights.
        hidden: Width of the hidden layer.

    Raises:
        ArgumentError: ``seed`` or ``hidden`` is not allowed.
    """

    name = "mlp"

    def __init__(self, seed: int, hidden: int = 32):
        super().__init__(seed)
        self.hidden = checks.whole("hidden", hidden, at_least=1)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        inputs = inputs_per_record(input_shape, "mlp")
        return self._seeded(
            lambda: nn.Sequential(
                nn.Flatten(),
                nn.Linear(inputs, self.hidden),
                nn.ReLU(),
                nn.Linear(self.hidden, classes),
            )
        )
