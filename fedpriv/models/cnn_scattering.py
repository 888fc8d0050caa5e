"""Small CNN of Tramèr and Boneh for scattering coefficients of CIFAR-10.

    Conv(C→64, kernel 3, padding 1) – tanh – MaxPool(2)
    Conv(64→64, kernel 3, padding 1) – tanh
    Flatten – Linear(1024→10)

The network has 187,210 parameters on 243 × 8 × 8 (``features=scattering`` of colour images of 32 × 32) with
10 classes.

Source: F. Tramèr, D. Boneh, "Differentially Private Learning Needs Better Features (or Much More Data)",
ICLR 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.fields import declared, field, whole
from fedpriv.models.base import ModelFactory, one_number_of, refuse_small_images

if TYPE_CHECKING:
    from torch import nn


@declared
class CnnScattering(ModelFactory):
    """Network of Tramèr and Boneh for inputs of any channel count with sides of at least 2.

    With a first kernel of side 1 the first layer has a ninth of the published weights and computing time.
    """

    name = "cnn_scattering"

    width: int = field(
        whole(at_least=1), default=64, help="number of channels of both convolutions"
    )
    first_kernel: int = field(
        one_number_of((3, 1), "3 or 1"),
        default=3,
        unit="pixels",
        help="side of the first kernel; 1 has a ninth of its weights",
    )

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        refuse_small_images(self.name, input_shape, 2, "images or their features")

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        self.refuse_misfit(input_shape, classes)
        channels, height, width = input_shape
        positions = (height // 2) * (width // 2)
        return self._seeded(lambda: self._network(channels, positions, classes))

    def _network(self, channels: int, positions: int, classes: int) -> nn.Module:
        from torch import nn

        first = self.first_kernel
        return nn.Sequential(
            nn.Conv2d(channels, self.width, first, padding=first // 2),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(self.width, self.width, 3, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(self.width * positions, classes),
        )
