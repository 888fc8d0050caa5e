"""Parts of a gradient that are measured and scaled apart: its layers, or groups of layers.

For G parts p, norms [n, G] are ‖g_i restricted to p‖, and sums are Σ_i c_ip (g_i restricted to p).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpriv.engine.norms import norms_above, squares_above, total_above

if TYPE_CHECKING:
    from fedpriv.engine.flat_model import FlatModel
    from fedpriv.engine.interface import Factors
    from fedpriv.engine.rules import LayerGradients
    from fedpriv.privacy.clippers.parts import LayerGroups


def upload_norms(rows: Tensor, parts: LayerGroups | None) -> Tensor:
    """Return upper bounds on the norms of rows.

    Args:
        rows: Uploads [n, d].
        parts: Parts that are measured apart; None: rows are measured as a whole.

    Returns:
        At least the norm of each row [n], or of each part of each row [n, G].
    """
    if parts is None:
        return norms_above(rows)
    squares: list[list[Tensor]] = [[rows.new_zeros(len(rows))] for _ in parts.names]
    for columns, part in parts.places:
        squares[part].append(squares_above(rows[:, columns]))
    return torch.stack([total_above(of_part) for of_part in squares], dim=1)


def scaled_sum(rows: Tensor, factors: Tensor, parts: LayerGroups | None) -> Tensor:
    """Return Σ_i c_i rows_i [d].

    Args:
        rows: Uploads [n, d].
        factors: Factor of each row [n], or of each part of each row [n, G].
        parts: Parts that are scaled apart; None: rows are scaled as a whole.
    """
    if parts is None:
        return rows.t() @ factors
    return torch.cat([rows[:, columns].t() @ factors[:, part] for columns, part in parts.places])


def layers_of(model: FlatModel) -> list[tuple[str, slice]]:
    """Return (name, columns) of each module with trained parameters of its own, in the order of ``flat``."""
    layers, offset = [], 0
    seen: set[int] = set()
    for name, module in model.module.named_modules():
        parameters = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        parameters = [p for p in parameters if p in model.columns]
        seen.update(map(id, parameters))
        size = sum(p.numel() for p in parameters)
        if size:
            layers.append((name or type(module).__name__, slice(offset, offset + size)))
            offset += size
    return layers


def asking_for(parts: LayerGroups | None, factors: Factors) -> Factors:
    """Mark factors as taking the norms [n, G] of these parts and giving factors [n, G].

    Args:
        parts: Parts that are measured and scaled apart; None returns ``factors`` unchanged.
        factors: The factors. An engine reads the mark from their attribute ``parts``.
    """
    if parts is None:
        return factors

    def of_parts(norms: Tensor, clients: Tensor) -> Tensor:
        return factors(norms, clients)

    of_parts.parts = parts  # type: ignore[attr-defined]
    return of_parts


def record_norms(layers: Sequence[LayerGradients], parts: LayerGroups | None) -> Tensor:
    """Return upper bounds on the L2 norms of per-record gradients.

    Args:
        layers: Gradients of all layers; with parts each of these lies in one part.
        parts: Parts that are measured apart; None: gradients are measured as a whole.

    Returns:
        At least the norm of each record's gradient [n], or of each of its parts [n, G].
    """
    squares = [layer.squared_norms() for layer in layers]
    if parts is None:
        return total_above(squares)
    return part_norms(squares, [part_of(layer, parts) for layer in layers], parts)


def part_norms(
    squares: Sequence[Tensor], part_of_layer: Sequence[int], parts: LayerGroups
) -> Tensor:
    """Return the norms in each part [..., G], from the squared norms in each layer [...]."""
    by_part: list[list[Tensor]] = [[] for _ in parts.names]
    for squared, part in zip(squares, part_of_layer, strict=True):
        by_part[part].append(squared)
    no_layer = [torch.zeros_like(squares[0])]
    return torch.stack([total_above(of_part or no_layer) for of_part in by_part], dim=-1)


def part_of(layer: LayerGradients, parts: LayerGroups) -> int:
    """Return the part that a layer's gradients belong to."""
    return parts.part_at(min(columns.start for columns in layer.columns.values()))
