"""Convolutional network of Adap DP-FL and of the Opacus MNIST example.

    Conv(1→16, kernel 8, stride 2, padding) – ReLU – MaxPool(2, stride 1)
    Conv(16→32, kernel 4, stride 2)         – ReLU – MaxPool(2, stride 1)
    Flatten – Linear(512→32) – ReLU – Linear(32→10)

The network has 26,010 parameters on 1 × 28 × 28 with 10 classes, both with padding 2 and with padding 3.

Source: Fu et al., "Adap DP-FL: Differentially Private Federated Learning with Adaptive Noise", TrustCom 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.fields import boolean, declared, field, or_null, same_as, whole
from fedpriv.models.activation import Activation
from fedpriv.models.base import ModelFactory, channels_hint

if TYPE_CHECKING:
    from torch import nn

CHANNELS = (16, 32)
HIDDEN = 32


@dataclass(frozen=True)
class _Geometry:
    """Kernels, strides and padding of the two convolutions."""

    kernels: tuple[int, int]
    stride: int
    padding: int

    def output_side(self, side: int) -> int:
        """Return the side length after both convolutions and pools; below 1 the image does not fit."""
        first = (side + 2 * self.padding - self.kernels[0]) // self.stride + 1
        second = (first - 1 - self.kernels[1]) // self.stride + 1
        return second - 1


@declared
class Cnn(ModelFactory):
    """Convolutional network of Adap DP-FL for images of any channel count and size.

    The first linear layer adapts to the output of the convolutions. An image that is too small for them (with
    padding 2: a side below 16) gets kernels, strides and padding of half the size (4 and 2, 1,
    ``padding // 2``). An 8 × 8 image then gives the same 512 features as a 28 × 28 image.

    Example:
        >>> module = Cnn(seed=0).build(input_shape=(1, 28, 28), classes=10)
        >>> sum(parameter.numel() for parameter in module.parameters())
        26010
    """

    name = "cnn"

    padding: int = field(whole(), default=2, unit="pixels", help="padding of the first convolution")
    _activation: str | None = same_as(Activation, "name")
    _tempering: tuple[float, float, float] | None = same_as(Activation, "tempering")
    standardized: bool | None = field(
        or_null(boolean),
        default=None,
        alias="weight_standardization",
        help="true: kernels of convolutions are scaled to mean 0 and length 1; null: false",
    )

    def __attrs_post_init__(self) -> None:
        self.activation = Activation(activation=self._activation, tempering=self._tempering)

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        if len(input_shape) != 3 or min(input_shape) < 1:
            raise _does_not_fit(input_shape, "the CNN reads images (channels, height, width)")
        self._geometry(input_shape)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        self.refuse_misfit(input_shape, classes)
        from fedpriv.models.layers import standardize

        channels, height, width = input_shape
        geometry = self._geometry(input_shape)
        features = CHANNELS[1] * geometry.output_side(height) * geometry.output_side(width)
        sizes = (channels, geometry, features, classes)
        module = self._seeded(lambda: _network(*sizes, self.activation))
        return standardize(module) if self.standardized else module

    def _geometry(self, shape: tuple[int, ...]) -> _Geometry:
        side = min(shape[1:])
        full = _Geometry(kernels=(8, 4), stride=2, padding=self.padding)
        half = _Geometry(kernels=(4, 2), stride=1, padding=self.padding // 2)
        for geometry in (full, half):
            if geometry.output_side(side) >= 1:
                return geometry
        raise _does_not_fit(shape, "the record is too small for the CNN")


def _network(
    channels: int, geometry: _Geometry, features: int, classes: int, activation: Activation
) -> nn.Module:
    from torch import nn

    from fedpriv.models.pooling import StrideOneMaxPool2d

    (first, second), stride = geometry.kernels, geometry.stride
    return nn.Sequential(
        nn.Conv2d(channels, CHANNELS[0], first, stride=stride, padding=geometry.padding),
        activation.module(),
        StrideOneMaxPool2d(2),
        nn.Conv2d(CHANNELS[0], CHANNELS[1], second, stride=stride),
        activation.module(),
        StrideOneMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, HIDDEN),
        activation.module(),
        nn.Linear(HIDDEN, classes),
    )


def _does_not_fit(shape: tuple[int, ...], why: str) -> ConfigError:
    hint = f"{why}, a record has shape {tuple(shape)}{channels_hint(shape)}"
    hint += "; model=mlp or model=logistic reads any shape"
    return ConfigError("model", "cnn", "one that fits the data", hint)
