"""Parts of a gradient that are clipped apart: the layers of a model, or groups of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.common.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

Layers = Sequence[tuple[str, slice]]
"""Name and columns of the flat vector of each layer with parameters of its own, in order, without gaps."""


@dataclass(frozen=True)
class LayerGroups:
    """Partition of the flat vector's columns into G parts.

    Attributes:
        names: Name of each part [G].
        places: Columns of every layer, and the part that the layer belongs to.
    """

    names: tuple[str, ...]
    places: tuple[tuple[slice, int], ...]

    def __len__(self) -> int:
        return len(self.names)

    def part_at(self, column: int) -> int:
        """Return the part that a column of the flat vector belongs to."""
        return next(part for columns, part in self.places if columns.start <= column < columns.stop)


def grouped(layers: Layers, groups: Sequence[Sequence[str]] | None) -> LayerGroups:
    """Return one part for each layer, or one part for each group of layers.

    Args:
        layers: Name and columns of each layer.
        groups: Names of the layers of each part; None means each layer by itself.

    Raises:
        ArgumentError: The groups do not name each layer exactly once.
    """
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
    """Return the norm of each unit [n], from its norm [n] or from the norms of its parts [n, G]."""
    return norms if norms.dim() == 1 else norms.square().sum(1).sqrt()


def rows_like(of_units: Tensor, norms: Tensor) -> Tensor:
    """Return numbers of units [n] in a shape that broadcasts with their norms [n] or [n, G]."""
    return of_units if norms.dim() == 1 else of_units[:, None]
