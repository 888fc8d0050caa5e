"""Augmented records: several changed copies of each image, made when a block of records is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import ZEROS, Augmentation
from fedpriv.algorithms.client_computation import LocalStep
from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.records import ChosenRows
from fedpriv.privacy.core.sampling import draws_of_copies


@dataclass(frozen=True)
class AugmentedRows:
    """Images and the moves of their copies, as engines take them (:class:`fedpriv.engine.Copies`).

    Attributes:
        images: Images [n, C, H, W], in memory or read when they are sliced.
        moves: (mirrored, pixels down, pixels to the right) of each copy [n, K, 3].
        fill: Content of the border, ``reflect`` or ``zeros``.
    """

    images: Tensor | ChosenRows
    moves: Tensor
    fill: str

    @property
    def copies(self) -> int:
        """Number of copies K of each record."""
        return self.moves.shape[1]

    def __len__(self) -> int:
        return len(self.moves)

    def __getitem__(self, place: slice) -> Tensor:
        return moved(self.images[place], self.moves[place], self.fill)

    def split(self, counts: list[int]) -> list[AugmentedRows]:
        """Split records in memory into consecutive groups of these sizes, as ``Tensor.split`` does."""
        assert isinstance(self.images, Tensor)
        parts = zip(self.images.split(counts), self.moves.split(counts), strict=True)
        return [AugmentedRows(images, moves, self.fill) for images, moves in parts]


def augmented(
    augmentation: Augmentation,
    context: RunContext,
    local_step: LocalStep,
    lots: Sequence[np.ndarray],
    images: Tensor | ChosenRows,
) -> AugmentedRows:
    """Draw the moves of all copies of the records in a cohort's lots.

    Args:
        augmentation: Kinds of moves, and the number K of copies.
        context: What the run works on; its secret streams draw the moves.
        local_step: The local step and its cohort [c].
        lots: Records of each client's lot [c].
        images: Images of all lots, one lot after another [n, C, H, W].
    """
    words = words_of_copies(augmentation, context, local_step, lots)
    moves = torch.from_numpy(augmentation.moves(np.concatenate(words)))
    return AugmentedRows(images, moves.to(context.model.device), augmentation.fill)


def words_of_copies(
    augmentation: Augmentation,
    context: RunContext,
    local_step: LocalStep,
    lots: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Draw the words of the copies of each client's lot; the arguments are those of :func:`augmented`."""
    t, step = local_step.round_index, local_step.step
    return [
        draws_of_copies(
            context.streams,
            context.records_of(t, client),
            lot,
            augmentation.multiplicity,
            t,
            step,
            client,
        )
        for client, lot in zip(local_step.cohort, lots, strict=True)
    ]


def moved(images: Tensor, moves: Tensor, fill: str) -> Tensor:
    """Return the copies [n, K, C, H, W] of images [n, C, H, W].

    A copy is cut out of its image with a border, shifted down and to the right by the pixels that its move
    says, and then mirrored left to right where the move says so.

    Args:
        images: Images [n, C, H, W].
        moves: (mirrored, pixels down, pixels to the right) of each copy [n, K, 3].
        fill: Content of the border, ``reflect`` or ``zeros``.
    """
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
    shape = (n, moves.shape[1], channels, height * width)
    read = images.flatten(2)[:, None].expand(shape)
    copies = read.gather(3, pixels[:, :, None].expand(shape)).view(*shape[:3], height, width)
    return copies if outside is None else copies.masked_fill_(outside[:, :, None], 0)


def _outside(places: Tensor, size: int) -> Tensor:
    return (places < 0) | (places >= size)


def _reflected(places: Tensor, size: int) -> Tensor:
    """Mirror places beyond the edges at the edges: -1 becomes 1, and ``size`` becomes size - 2."""
    places = places.abs()
    return torch.where(places >= size, 2 * (size - 1) - places, places)
