"""Scattering features, the group option ``features=scattering``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, same_as, whole
from fedpriv.features.base import Features

if TYPE_CHECKING:
    import torch

    from fedpriv.features.wavelets import ScatteringTransform


@declared
class Scattering(Features):
    """2-D wavelet scattering of order 2; see :mod:`fedpriv.features.wavelets` for the formula.

    With J = 2 and L = 8 a grey image of 28 × 28 pixels becomes 81 × 7 × 7 numbers, a colour image of
    32 × 32 becomes 243 × 8 × 8.

    Source: F. Tramèr, D. Boneh, "Differentially private learning needs better features (or much more
    data)", ICLR 2021, where linear models on these features beat networks trained on pixels.

    Example:
        >>> Scattering().shape((3, 32, 32))
        (243, 8, 8)
    """

    name = "scattering"

    scales: int = field(
        whole(at_least=1, at_most=6),
        default=2,
        unit="J",
        help="scales of the wavelets: a coefficient averages over about 2^J pixels",
    )
    angles: int = field(
        whole(at_least=1, at_most=32), default=8, unit="L", help="orientations of the wavelets"
    )
    normalization: str = same_as(Features, "normalization")
    groups: int = same_as(Features, "groups")
    statistics: str | None = same_as(Features, "statistics")
    statistics_noise_multiplier: float | None = same_as(Features, "statistics_noise_multiplier")
    statistics_clip_norm: float | None = same_as(Features, "statistics_clip_norm")

    def key(self) -> str:
        return f"scattering-J{self.scales}-L{self.angles}"

    def shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        from fedpriv.features import wavelets

        colours, *sides = image
        if min(sides) < 2**self.scales:
            most = min(sides).bit_length() - 1
            raise ArgumentError(
                "scales", self.scales, f"<= {most}: images have {sides[0]} x {sides[1]} pixels"
            )
        height, width = (wavelets.output_size(side, self.scales) for side in sides)
        return colours * wavelets.channels(self.scales, self.angles), height, width

    def coefficients(self, images: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2:]
        transform = _transform(height, width, self.scales, self.angles)
        per_colour = transform(images.flatten(0, 1))
        return per_colour.unflatten(0, images.shape[:2]).flatten(1, 2)


@lru_cache(maxsize=4)
def _transform(height: int, width: int, scales: int, angles: int) -> ScatteringTransform:
    """Return the transform of images of this size. Its wavelets are the same for all blocks of images."""
    from fedpriv.features.wavelets import ScatteringTransform

    return ScatteringTransform((height, width), scales, angles)
