"""Histograms of oriented gradients, the group option ``features=hog``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, same_as, whole
from fedpriv.features.base import NONE, Features

if TYPE_CHECKING:
    import torch

_MOST_SHARE = 0.2  # clipping threshold of L2-Hys, relative to the length of a block
_EPSILON = 1e-5


@declared
class Hog(Features):
    """Histograms of oriented gradients, the numbers of ``skimage.feature.hog``.

    1. The gradient of a pixel is the difference of its neighbours, in the colour with the longest gradient.
    At
       the border the difference across it is 0.
    2. Each cell has a histogram of the orientations (from 0 to 180°), weighted by the lengths of the
    gradients. 3. Each block of neighbouring cells is normalized by L2-Hys: to length 1, clipped at .2, to
    length 1 again.
       A block begins at every cell.

    With 9 orientations, cells of 4 pixels and blocks of 2 cells, an image of 28 × 28 pixels becomes
    36 × 6 × 6 numbers, an image of 32 × 32 becomes 36 × 7 × 7. Pixels at the right and at the bottom that
    fill no cell are ignored.

    Source: N. Dalal, B. Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.

    Example:
        >>> Hog(cell=4, block=2).shape((1, 28, 28))
        (36, 6, 6)
    """

    name = "hog"

    orientations: int = field(
        whole(at_least=1, at_most=180), default=9, help="bins of a histogram, from 0 to 180 degrees"
    )
    cell: int = field(whole(at_least=1), default=4, unit="pixels", help="side of a cell")
    block: int = field(
        whole(at_least=1),
        default=2,
        unit="cells",
        help="side of a block, whose numbers are normalized together (L2-Hys)",
    )
    normalization: str = same_as(Features, "normalization", default=NONE)
    groups: int = same_as(Features, "groups")
    statistics: str | None = same_as(Features, "statistics")
    statistics_noise_multiplier: float | None = same_as(Features, "statistics_noise_multiplier")
    statistics_clip_norm: float | None = same_as(Features, "statistics_clip_norm")

    def key(self) -> str:
        return f"hog-O{self.orientations}-C{self.cell}-B{self.block}"

    def shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        _, *sides = image
        rows, columns = (side // self.cell - self.block + 1 for side in sides)
        if min(rows, columns) < 1:
            pixels = f"images have {sides[0]} x {sides[1]} pixels"
            if (most := min(sides) // self.block) >= 1:
                why = f"<= {most}: {pixels}, a block has {self.block} x {self.block} cells"
                raise ArgumentError("cell", self.cell, why)
            raise ArgumentError("block", self.block, f"<= {min(sides)}: {pixels}")
        return self.orientations * self.block**2, rows, columns

    def coefficients(self, images: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        length, bins = self._gradients(images)
        n, height, width = length.shape
        spread = length.new_zeros(n, self.orientations, height, width)
        spread.scatter_(1, bins.unsqueeze(1), length.unsqueeze(1))
        cells = functional.avg_pool2d(spread, self.cell)
        # [n, orientations, rows, columns, block, block]: channels are ordered by cell, then orientation.
        windows = cells.unfold(2, self.block, 1).unfold(3, self.block, 1)
        blocks = windows.permute(0, 4, 5, 1, 2, 3).flatten(1, 3)
        return _unit(_unit(blocks).clamp(max=_MOST_SHARE))

    def _gradients(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return length and orientation bin of the gradient at each pixel, each [n, H, W]."""
        import torch

        vertical, horizontal = torch.zeros_like(images), torch.zeros_like(images)
        vertical[..., 1:-1, :] = images[..., 2:, :] - images[..., :-2, :]
        horizontal[..., 1:-1] = images[..., 2:] - images[..., :-2]
        length = torch.hypot(horizontal, vertical)
        colour = length.argmax(1, keepdim=True)  # the first colour if several are equal
        length, vertical, horizontal = (
            values.gather(1, colour).squeeze(1) for values in (length, vertical, horizontal)
        )
        # Angles of 45 and 90 degrees lie on the border of two bins out of 8; float64 keeps them exact.
        angle = torch.rad2deg(torch.atan2(vertical.double(), horizontal.double())) % 180
        bins = (angle * (self.orientations / 180)).long()
        return length, bins.clamp(max=self.orientations - 1)


def _unit(blocks: torch.Tensor) -> torch.Tensor:
    """Divide blocks [n, channels, rows, columns] by their L2 norm."""
    squares = blocks.square().sum(1, keepdim=True)
    return blocks * (squares + _EPSILON**2).rsqrt()
