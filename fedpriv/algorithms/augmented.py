"""Records of which each is several changed copies of its image, made when a block of them is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import ZEROS, Augmentation
from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.records import ChosenRows
from fedpriv.privacy.core.sampling import draws_of_copies


@dataclass(frozen=True)
class AugmentedRows:
    """Images [n, C, H, W] and the moves of their copies [n, K, 3] (:class:`fedpriv.engine.Copies`)."""

    images: Tensor | ChosenRows
    moves: Tensor
    fill: str

    @property
    def copies(self) -> int:
        return self.moves.shape[1]

    def __len__(self) -> int:
        return len(self.moves)

    def __getitem__(self, place: slice) -> Tensor:
        return moved(self.images[place], self.moves[place], self.fill)

    def split(self, counts: list[int]) -> list[AugmentedRows]:
        """The first so many records, those that follow, and so on; of images in memory."""
        assert isinstance(self.images, Tensor)
        parts = zip(self.images.split(counts), self.moves.split(counts), strict=True)
        return [AugmentedRows(images, moves, self.fill) for images, moves in parts]


def augmented(
    augmentation: Augmentation,
    context: RunContext,
    place: tuple[int, int],
    cohort: np.ndarray,
    lots: Sequence[np.ndarray],
    images: Tensor | ChosenRows,
) -> AugmentedRows:
    """The ``lots`` of a ``cohort``, whose ``images`` are [n, C, H, W]; ``place``: (round, step)."""
    t, step = place
    words = [
        draws_of_copies(
            context.streams,
            context.records_of(t, client),
            lot,
            augmentation.multiplicity,
            t,
            step,
            client,
        )
        for client, lot in zip(cohort, lots, strict=True)
    ]
    moves = torch.from_numpy(augmentation.moves(np.concatenate(words)))
    return AugmentedRows(images, moves.to(context.model.device), augmentation.fill)


def moved(images: Tensor, moves: Tensor, fill: str) -> Tensor:
    """Copies [n, K, C, H, W] of images [n, C, H, W], each cut out of its image with a border so many pixels
    down and to the right of where it is, and then mirrored left to right, or not."""
    n, channels, height, width = images.shape
    mirrored, down, right = moves.long().unbind(2)
    rows = down[..., None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = right[..., None] + torch.where(mirrored[..., None] > 0, columns.flip(0), columns)
    outside = None
    if fill == ZEROS:
        outside = _outside(rows, height)[..., :, None] | _outside(columns, width)[..., None, :]
        rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    else:
        rows, columns = _reflected(rows, height), _reflected(columns, width)
    pixels = (rows[..., :, None] * width + columns[..., None, :]).flatten(2)  # [n, K, H · W]
    of_channels = (n, moves.shape[1], channels, height * width)
    read = images.flatten(2)[:, None].expand(of_channels)
    found = read.gather(3, pixels[:, :, None].expand(of_channels))
    found = found.view(*of_channels[:3], height, width)
    return found if outside is None else found.masked_fill_(outside[:, :, None], 0)


def _outside(places: Tensor, size: int) -> Tensor:
    return (places < 0) | (places >= size)


def _reflected(places: Tensor, size: int) -> Tensor:
    """Places beyond the edges, mirrored at them: -1 is 1, and ``size`` is size - 2."""
    places = places.abs()
    return torch.where(places >= size, 2 * (size - 1) - places, places)
