"""Convolutional network of Sun et al. for handwritten characters.

    Conv(1→32, kernel 3) – ReLU – Conv(32→64, kernel 3) – ReLU – MaxPool(2)
    Flatten – Linear(9216→128) – ReLU – Linear(128→10)

The network has 1,199,882 parameters on 1 × 28 × 28 with 10 classes, and 1,626,442 on 3 × 32 × 32. Layers,
strides (1) and padding (none) are those of the paper. There are two differences. The initial weights are
torch's, unless ``initial_weights`` says otherwise. There is no dropout (the paper drops .25 after the pool
and .5 after the hidden layer): dropout masks would be drawn outside the run's named random streams, and a
resumed run would differ from an uninterrupted one. pfl-research's CIFAR-10 benchmark has the same layers and
dropout, with Glorot's uniform initial weights.

Sources: Sun et al., "Can You Really Backdoor Federated Learning?", 2019. Naseri, Hayes, De Cristofaro, "Local
and Central Differential Privacy for Robustness and Privacy in Federated Learning", NDSS 2022, use this
network for EMNIST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.fields import declared, field, one_of, or_null
from fedpriv.models.base import ModelFactory, refuse_small_images

if TYPE_CHECKING:
    from torch import nn

CHANNELS = (32, 64)
HIDDEN = 128
_VALUES_PER_PIXEL = 500  # measured: activations and unfolded inputs of the kernels
_SMALLEST = 6  # pixels per side: the convolutions take four, the pool halves the rest


@declared
class CnnEmnist(ModelFactory):
    """Network of Sun et al. for images of any channel count with sides of at least 6 pixels."""

    name = "cnn_emnist"

    initial_weights: str | None = field(
        or_null(one_of(("glorot",))),
        default=None,
        help="initial weights; glorot: uniform on ± sqrt(6 / (fan in + fan out)); null: torch's",
    )

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        refuse_small_images(self.name, input_shape, _SMALLEST)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        self.refuse_misfit(input_shape, classes)
        channels, height, width = input_shape
        features = CHANNELS[1] * ((height - 4) // 2) * ((width - 4) // 2)
        glorot = self.initial_weights is not None
        module = self._seeded(lambda: _network(channels, features, classes, glorot))
        vars(module)["values_per_record"] = _VALUES_PER_PIXEL * height * width
        return module


def _network(channels: int, features: int, classes: int, glorot: bool) -> nn.Module:
    from torch import nn

    network = nn.Sequential(
        nn.Conv2d(channels, CHANNELS[0], 3),
        nn.ReLU(),
        nn.Conv2d(CHANNELS[0], CHANNELS[1], 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, classes),
    )
    if glorot:
        for layer in network:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
    return network
