"""Parts of a gradient that are clipped apart: the layers of a model, or groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.common.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

Layers = Sequence[tuple[str, slice]]
"""(name, columns of the flat vector) of each layer with parameters of its own, in order, without gaps."""


@dataclass(frozen=True)
class LayerGroups:
    """``names`` of the parts [G]; ``places``: (columns, the part that they belong to) of every layer."""

    names: tuple[str, ...]
    places: tuple[tuple[slice, int], ...]

    def __len__(self) -> int:
        return len(self.names)

    def part_at(self, column: int) -> int:
        """The part that a column of the flat vector belongs to."""
        return next(part for own, part in self.places if own.start <= column < own.stop)


def grouped(layers: Layers, groups: Sequence[Sequence[str]] | None) -> LayerGroups:
    """A part for each layer, or for each of ``groups`` of layers by their names. Raises ArgumentError where
    the groups are not of these layers, each once."""
    names = [name for name, _ in layers]
    if groups is None:
        groups = [[name] for name in names]
    members = [name for group in groups for name in group]
    if sorted(members) != sorted(names):
        raise ArgumentError(
            "groups",
            [list(group) for group in groups],
            f"a list of lists that has each layer once: {', '.join(names)}",
        )
    part = {name: k for k, group in enumerate(groups) for name in group}
    return LayerGroups(
        tuple("+".join(group) for group in groups),
        tuple((columns, part[name]) for name, columns in layers),
    )


def whole_norms(norms: Tensor) -> Tensor:
    """The norm of each unit [n], from its norm or from those of its parts [n, G]."""
    return norms if norms.dim() == 1 else norms.square().sum(1).sqrt()


def rows_like(of_units: Tensor, norms: Tensor) -> Tensor:
    """What is true of units [n], to go with their norms [n] or [n, G]."""
    return of_units if norms.dim() == 1 else of_units[:, None]
