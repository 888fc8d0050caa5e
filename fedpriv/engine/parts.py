"""Parts of a gradient that are measured and scaled apart: its layers, or groups of them.

norms [n, G]:  ‖g_i restricted to part p‖,     sums: Σ_i c_ip g_i restricted to part p
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpriv.engine.norms import norms_above, squares_above, total_above

if TYPE_CHECKING:
    from fedpriv.engine.flat_model import FlatModel
    from fedpriv.engine.rules import LayerGradients
    from fedpriv.privacy.clippers.parts import LayerGroups


def upload_norms(rows: Tensor, parts: LayerGroups | None) -> Tensor:
    """At least the norm of each row [n, d] → [n], or of each part of it → [n, G]."""
    if parts is None:
        return norms_above(rows)
    squares: list[list[Tensor]] = [[rows.new_zeros(len(rows))] for _ in parts.names]
    for own, part in parts.places:
        squares[part].append(squares_above(rows[:, own]))
    return torch.stack([total_above(own) for own in squares], dim=1)


def scaled_sum(rows: Tensor, factors: Tensor, parts: LayerGroups | None) -> Tensor:
    """Σ_i c_i rows_i [d] for rows [n, d] and factors [n], or [n, G] of each part."""
    if parts is None:
        return rows.t() @ factors
    return torch.cat([rows[:, own].t() @ factors[:, part] for own, part in parts.places])


def layers_of(model: FlatModel) -> list[tuple[str, slice]]:
    """(name, columns) of each module with parameters of its own, in the order of the flat vector."""
    found, offset = [], 0
    seen: set[int] = set()
    for name, module in model.module.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        size = sum(p.numel() for p in own)
        if size:
            found.append((name or type(module).__name__, slice(offset, offset + size)))
            offset += size
    return found


Scale = Callable[[Tensor, Tensor], Tensor]


def asking_for(parts: LayerGroups | None, factors: Scale) -> Scale:
    """``factors`` that take norms [n, G] and give factors [n, G] of these parts; None: as they are."""
    if parts is None:
        return factors

    def of_parts(norms: Tensor, clients: Tensor) -> Tensor:
        return factors(norms, clients)

    of_parts.parts = parts  # type: ignore[attr-defined]
    return of_parts


def part_norms(layers: Sequence[LayerGradients], parts: LayerGroups) -> Tensor:
    """L2 norm of each record's gradient in each part [n, G], never too small. Layers lie in one part each."""
    squares: list[list[Tensor]] = [[] for _ in parts.names]
    for layer in layers:
        squares[part_of(layer, parts)].append(layer.squared_norms())
    like = next(own[0] for own in squares if own)
    none = [torch.zeros_like(like)]
    return torch.stack([total_above(own or none) for own in squares], dim=1)


def part_of(layer: LayerGradients, parts: LayerGroups) -> int:
    """The part of a layer's gradients."""
    return parts.part_at(min(own.start for own in layer.columns.values()))
