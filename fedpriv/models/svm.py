"""Linear support vector machine: one score for two classes.

    f(x) = wᵀx + b,    F(w, b) = λ/2 ‖(w, b)‖² + mean of max{0, 1 - y f(x)},    y ∈ {-1, +1}

Wei et al., "Performance Analysis and Optimization in Privacy-Preserving Federated Learning", print
max{y - wᵀx, 0} in eq. (22), which is not the loss of a support vector machine. This module uses the hinge
loss. λ regularizes all parameters, the bias included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.fields import boolean, declared, field, number
from fedpriv.models.base import ModelFactory, inputs_per_record

if TYPE_CHECKING:
    from torch import Tensor, nn


@declared
class Svm(ModelFactory):
    """One linear layer of width 1 on the flattened record; a score > 0 means class 1.

    The initial weights are those of any other linear layer; they matter little, because the problem is
    convex.
    """

    name = "svm"

    weight_decay: float = field(
        number(at_least=0),
        default=0.01,
        unit="λ",
        help="λ/2 times the squared norm of all parameters is added to the loss",
    )
    bias: bool = field(boolean, default=True, help="true: the score has a constant term b")

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        if classes != 2:
            why = f"the dataset has {classes} classes, an SVM separates two; model=logistic takes any number"
            raise ConfigError("model", "svm", "one that fits the data", why)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network with its initial weights; see :meth:`ModelFactory.build`.

        The outputs are scores ``[n, 1]``. The module has ``record_loss`` and ``weight_decay``.

        Raises:
            ConfigError: The record is empty, or the data set does not have two classes.
        """
        from torch import nn

        self.refuse_misfit(input_shape, classes)
        inputs = inputs_per_record(input_shape, "svm")
        module = self._seeded(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(inputs, 1, bias=self.bias))
        )
        vars(module).update(record_loss=hinge, weight_decay=self.weight_decay)
        return module


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the hinge loss max{0, 1 - y f} of each record.

    Args:
        outputs: Scores f [n, 1].
        targets: Classes [n] in {0, 1}; y = 2 · target - 1.

    Returns:
        Losses [n].
    """
    signs = 2 * targets - 1
    return (1 - signs * outputs.squeeze(1)).relu()
