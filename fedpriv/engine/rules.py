"""Rules of the layers: norms and sums of per-record gradients, mostly without forming the gradients.

The rule of a layer takes its input ``a`` and the gradient ``g`` of the summed loss with respect to its
output. For a linear layer the gradient of record i is, over the positions t of the record,

    ∇W_i = Σ_t g_it a_itᵀ

Plain inputs have one position, and the squared norm (with bias) is ‖g_i‖² (‖a_i‖² + 1). With several
positions the norm is either that of the formed gradient, or the "ghost norm", which never forms it:

    ‖∇W_i‖² = Σ_ts (g_it · g_is)(a_it · a_is)

A convolution is a linear layer on its unfolded input. An LSTM is one on its inputs and last states, with
``g`` the gradient with respect to what goes into its gates. The K copies of an augmented record are further
positions of the record: the norm is that of the sum over copies, never of one copy.

Sources: Goodfellow, "Efficient per-example gradient computations", 2015; Li et al., "Large language
models can be strong differentially private learners", ICLR 2022 (ghost norm); Bu et al.,
"Differentially private optimization on large model at small cost", ICML 2023 (book-keeping, and
ghost norms where 2 T² ≤ number of parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from fedpriv.engine.convolution import unfold
from fedpriv.engine.lots import Lots
from fedpriv.engine.norms import longest_hidden, norms_above, squares_above, unit_roundoff
from fedpriv.models.layers import StandardizedConv2d
from fedpriv.models.recurrent import Lstm

# Below this number of parameters forming the gradients is faster than ghost norms, even where ghost norms
# need less memory: the gradients of a few hundred records then still fit into the processor's cache.
_GHOST_PARAMETERS = 2**14

Columns = dict[str, slice]
"""Place of each parameter of a layer in the flat vector: name → slice."""


class LayerGradients(Protocol):
    """Gradients of all records with respect to one layer's parameters.

    Attributes:
        columns: Place of the parameters in the flat vector.
    """

    columns: Columns

    def squared_norms(self) -> torch.Tensor:
        """Return an upper bound on the squared L2 norm of each record's gradient [n]."""
        ...

    def zero_where(self, broken: torch.Tensor) -> None:
        """Replace the gradients of the records where ``broken`` [n] by zeros, whatever they hold."""
        ...

    def add_sums(self, lots: Lots, out: torch.Tensor) -> None:
        """Write Σ scale_i gradient_i of each client into this layer's columns of ``out`` [K, d]."""
        ...


Reorder = Callable[[torch.Tensor], torch.Tensor]
"""Summed weight gradients [K, p] → a view in the order of the weight, [K, *weight.shape]."""


@dataclass
class OuterProducts:
    """Weight gradients Σ_t g_it a_itᵀ and bias gradients Σ_t g_it, kept as their factors.

    Attributes:
        a: Input of the layer [n, T, I].
        g: Gradient of the loss with respect to the layer's output [n, T, O].
        columns: Columns of ``weight`` and, if there is one, ``bias``.
        reorder: Reordering from [O, I] to the weight; None where the order is the same.
    """

    a: torch.Tensor
    g: torch.Tensor
    columns: Columns
    reorder: Reorder | None = None

    def squared_norms(self) -> torch.Tensor:
        has_bias = "bias" in self.columns
        if self.a.shape[1] == 1:
            return squares_above(self.g.squeeze(1)) * (squares_above(self.a.squeeze(1)) + has_bias)
        products = torch.bmm(self.g, self.g.transpose(1, 2))
        products *= torch.bmm(self.a, self.a.transpose(1, 2))
        # Where the terms of a gradient cancel, Σ_ts is a small difference of large numbers. ``hidden`` bounds
        # its rounding error, and the norm is never taken for smaller than cancellation allows.
        longest = (norms_above(self.g) * norms_above(self.a)).sum(1)
        terms = self.g.shape[2] + self.a.shape[2] + 2 * self.a.shape[1] + 16
        hidden = longest.square() * (terms * unit_roundoff(self.g.dtype))
        weight = (products.sum((1, 2)) + hidden).maximum(longest_hidden(longest).square_())
        return weight + squares_above(self.g.sum(1)) if has_bias else weight

    def zero_where(self, broken: torch.Tensor) -> None:
        self.a = self.a.masked_fill(broken[:, None, None], 0)
        self.g = self.g.masked_fill(broken[:, None, None], 0)

    def add_sums(self, lots: Lots, out: torch.Tensor) -> None:
        if "bias" in self.columns:
            lots.row_sums(self.g.sum(1), out[:, self.columns["bias"]])
        shape = (self.g.shape[2], self.a.shape[2])
        with _in_order(out[:, self.columns["weight"]], self.reorder) as weight:
            lots.outer_sums(self.g, self.a, weight.unflatten(1, shape))


@dataclass
class Rows:
    """Gradients that are formed for every record.

    Attributes:
        rows: Gradients [n, p] by name of the parameter.
        columns: Columns of each parameter.
        reorder: Reordering of the weight's gradients, as in :class:`OuterProducts`.
    """

    rows: dict[str, torch.Tensor]
    columns: Columns
    reorder: Reorder | None = None

    def squared_norms(self) -> torch.Tensor:
        return torch.stack([squares_above(rows) for rows in self.rows.values()]).sum(0)

    def zero_where(self, broken: torch.Tensor) -> None:
        self.rows = {k: rows.masked_fill(broken[:, None], 0) for k, rows in self.rows.items()}

    def add_sums(self, lots: Lots, out: torch.Tensor) -> None:
        for name, rows in self.rows.items():
            reorder = self.reorder if name == "weight" else None
            with _in_order(out[:, self.columns[name]], reorder) as target:
                lots.row_sums(rows, target)


@dataclass
class TableRows:
    """Gradients of an embedding table: record i adds g_it to row tokens_it (tokens may repeat).

    Attributes:
        tokens: Tokens of each record [n, T], int64.
        g: Gradient with respect to the output [n, T, E], zero where the token is the padding token.
        columns: Columns of ``weight`` [V · E].
    """

    tokens: torch.Tensor
    g: torch.Tensor
    columns: Columns

    def squared_norms(self) -> torch.Tensor:
        if self.tokens.shape[1] == 1:
            return squares_above(self.g.flatten(1))
        # Number the distinct tokens of each record 0, 1, …, then add up the g of equal ones.
        ordered, order = self.tokens.sort(dim=1)
        number = functional.pad((ordered.diff(dim=1) != 0).cumsum(1), (1, 0))
        number = torch.empty_like(number).scatter_(1, order, number)
        per_token = torch.zeros_like(self.g)
        per_token.scatter_add_(1, number.unsqueeze(2).expand_as(self.g), self.g)
        longest = norms_above(self.g).sum(1)
        hidden = longest * (self.tokens.shape[1] * unit_roundoff(self.g.dtype))
        norms = norms_above(per_token.flatten(1)) + hidden
        return norms.maximum(longest_hidden(longest)).square_()

    def zero_where(self, broken: torch.Tensor) -> None:
        self.g = self.g.masked_fill(broken[:, None, None], 0)

    def add_sums(self, lots: Lots, out: torch.Tensor) -> None:
        size = self.g.shape[2]
        table = out[:, self.columns["weight"]].unflatten(1, (-1, size))
        client = lots.client_of_record[:, None].expand_as(self.tokens)
        table.index_put_((client, self.tokens), self.g * lots.scale[:, None, None], accumulate=True)


@contextmanager
def _in_order(target: torch.Tensor, reorder: Reorder | None) -> Iterator[torch.Tensor]:
    """Yield a tensor for sums [K, p] that end up in ``target`` [K, p] in the order of the weight."""
    if reorder is None:
        yield target
        return
    sums = torch.zeros_like(target)
    yield sums
    ordered = reorder(sums)
    target.unflatten(1, ordered.shape[1:]).copy_(ordered)


def _of_records(values: torch.Tensor, n: int) -> torch.Tensor:
    """Turn values of copies [n · K, T, p] into further positions of their records [n, K · T, p]."""
    return values if len(values) == n else values.reshape(n, -1, values.shape[-1])


def _outer(
    a: torch.Tensor, g: torch.Tensor, columns: Columns, reorder: Reorder | None = None
) -> LayerGradients:
    """Return gradients Σ_t g_it a_itᵀ, formed or kept as factors, whichever is faster."""
    positions, parameters = a.shape[1], a.shape[2] * g.shape[2]
    ghost = 2 * positions**2 <= parameters and parameters >= _GHOST_PARAMETERS
    if positions == 1 or ghost:
        return OuterProducts(a, g, columns, reorder)
    rows = {"weight": torch.bmm(g.transpose(1, 2), a).flatten(1)}
    if "bias" in columns:
        rows["bias"] = g.sum(1)
    return Rows(rows, columns, reorder)


def added_copies(rows: torch.Tensor, n: int) -> torch.Tensor:
    """Sum the rows of each record's copies, which lie side by side: [n · K, p] → [n, p]."""
    return rows if len(rows) == n else rows.unflatten(0, (n, -1)).sum(1)


def _linear(
    layer: nn.Linear, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    a, g = a.reshape(n, -1, layer.in_features), g.reshape(n, -1, layer.out_features)
    return _outer(a, g, columns)


def _conv2d(
    layer: nn.Conv2d, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    unfolded = (layer.out_channels, *layer.kernel_size, layer.in_channels)

    def reorder(sums: torch.Tensor) -> torch.Tensor:
        return sums.unflatten(1, unfolded).permute(0, 1, 4, 2, 3)

    positions_last = g.permute(0, 2, 3, 1).reshape(n, -1, layer.out_channels)
    return _outer(_of_records(unfold(layer, a), n), positions_last, columns, reorder)


def _standardized_conv2d(
    layer: StandardizedConv2d, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    """Form a convolution's gradients and pull them back to the weights before standardization.

    Pulling back changes norms by more than a factor, so ghost norms do not exist here.
    """
    positions_first = g.flatten(2).unflatten(0, (n, -1)).transpose(1, 2).flatten(2)
    formed = torch.bmm(positions_first, _of_records(unfold(layer, a), n))
    unfolded = (*layer.kernel_size, layer.in_channels)
    rows = {"weight": layer.pulled_back(formed.unflatten(2, unfolded).permute(0, 1, 4, 2, 3))}
    if "bias" in columns:
        rows["bias"] = positions_first.sum(2)
    return Rows(rows, columns)


def _embedding(
    layer: nn.Embedding, tokens: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    tokens = tokens.reshape(n, -1).long()
    g = g.reshape(n, -1, layer.embedding_dim)
    if layer.padding_idx is not None:
        g = g.masked_fill((tokens == layer.padding_idx).unsqueeze(2), 0)
    return TableRows(tokens, g, columns)


def _lstm(
    layer: Lstm, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    return _outer(_of_records(a, n), _of_records(g, n), columns)


def _group_norm(
    layer: nn.GroupNorm, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    normalised = functional.group_norm(a, layer.num_groups, eps=layer.eps)
    shape = (len(a), layer.num_channels, -1)
    rows = {
        "weight": (normalised * g).reshape(shape).sum(2),
        "bias": g.reshape(shape).sum(2),
    }
    return Rows({name: added_copies(rows[name], n) for name in columns}, columns)


def _layer_norm(
    layer: nn.LayerNorm, a: torch.Tensor, g: torch.Tensor, columns: Columns, n: int
) -> LayerGradients:
    normalised = functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    shape = (n, -1, layer.weight.numel())
    rows = {
        "weight": (normalised * g).reshape(shape).sum(1),
        "bias": g.reshape(shape).sum(1),
    }
    return Rows({name: rows[name] for name in columns}, columns)


Rule = Callable[[Any, torch.Tensor, torch.Tensor, Columns, int], LayerGradients]
"""(layer, its input, the gradient with respect to its output, its columns, n) → gradients of n records.

A record may be several copies, which lie side by side in the input.
"""

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    StandardizedConv2d: _standardized_conv2d,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    Lstm: _lstm,
}
"""Rules by exact layer type: a subclass may compute something else."""


def why_no_rule(layer: nn.Module) -> str | None:
    """Return the reason why no rule treats a layer, or None if one does."""
    parameters = dict(layer.named_parameters(recurse=False))
    if type(layer) not in RULES or not set(parameters) <= {"weight", "bias"}:
        return "its type has no rule"
    if not all(p.requires_grad for p in parameters.values()):
        return "only some of its parameters are frozen"
    if isinstance(layer, nn.Conv2d) and layer.groups != 1:
        return "groups other than 1 have no rule"
    if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
        return f"padding_mode {layer.padding_mode} has no rule"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return "max_norm and scale_grad_by_freq have no rule"
    return None
