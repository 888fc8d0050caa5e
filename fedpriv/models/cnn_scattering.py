"""The small CNN that Tramèr and Boneh, "Differentially Private Learning Needs Better Features (or Much More
Data)", ICLR 2021, train on scattering coefficients of CIFAR-10.

    Conv(C→64, kernel 3, padding 1) – tanh – MaxPool(2)
    Conv(64→64, kernel 3, padding 1) – tanh
    Flatten – Linear(1024→10)

On 243 × 8 × 8 (``features=scattering`` of colour images of 32 × 32) with 10 classes it has 187,210
parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.models.base import ModelFactory

if TYPE_CHECKING:
    from torch import nn

_KERNELS = (3, 1)


class CnnScattering(ModelFactory):
    """The CNN above, for inputs of any channel count with sides of at least 2.

    Args:
        seed: Seed of the initial weights.
        width: Channels of both convolutions.
        first_kernel: Side of the first convolution's kernel, 3 as published or 1, which has a ninth of its
            weights and of its computing time.

    Raises:
        ArgumentError: An argument is not allowed.
    """

    name = "cnn_scattering"

    def __init__(self, seed: int, width: int = 64, first_kernel: int = 3):
        super().__init__(seed)
        self.width = checks.whole("width", width, at_least=1)
        if first_kernel not in _KERNELS or isinstance(first_kernel, bool):
            raise ArgumentError("first_kernel", first_kernel, "3 or 1")
        self.first_kernel = int(first_kernel)

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        if len(input_shape) != 3 or input_shape[0] < 1 or min(input_shape[1:]) < 2:
            why = "it reads images or their features with sides of at least 2"
            hint = f"{why}, a record has shape {tuple(input_shape)}"
            raise ConfigError("model", self.name, "one that fits the data", hint)

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
