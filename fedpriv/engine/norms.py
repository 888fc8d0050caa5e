"""Norms that are never too small: the norm in floating point, plus a bound on its rounding error.

A record is scaled by C/‖g‖ with the measured norm. If that norm were too small by a factor f, the record
would move the sum by f C. So every measured norm includes a bound on its own rounding error, from u = 2^-24
(for float32) and the number of terms that were added up:

    a sum of p squares                 relative error at most (p/8 + 8) u: no fewer than eight partial sums
    a product of matrices, n terms     error at most n u Σ |terms|

Source: Higham, "Accuracy and stability of numerical algorithms", 2002, chapter 3.
"""

from __future__ import annotations

import math

import torch

_LANES = 8  # partial sums in which a reduction adds up, at least
_STRETCH = 1024  # terms added up in one go
# In units of u: pays for the rounding of C/‖g‖, of its product with the gradient, and of the square root.
_SLACK = 128.0
_CANCELLED = 2.0**20  # in units of u: 1/16 for float32


def longest_hidden(longest: torch.Tensor) -> torch.Tensor:
    """Return the least norm that a gradient Σ_t g_t a_tᵀ is taken to have.

    Where the terms cancel further than this, the gradient is mostly rounding error, and scaling the gradient
    up to C would scale up that error.

    Args:
        longest: Σ_t ‖g_t‖ ‖a_t‖ of each record [n], the norm without any cancellation.
    """
    return longest * (_CANCELLED * torch.finfo(longest.dtype).eps / 2.0)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return u of matrix products: coarser than the type's where reduced precision is switched on."""
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return 2.0**-8
    return torch.finfo(dtype).eps / 2.0


def norms_above(rows: torch.Tensor) -> torch.Tensor:
    """Return at least the L2 norm [...] of each row [..., p].

    Long rows are cut into stretches, and the norm is that of the stretches' norms: fewer terms are added in
    one go, which keeps the bound small.
    """
    terms, kind = rows.shape[-1], torch.finfo(rows.dtype)
    if terms > _STRETCH:
        whole = terms // _STRETCH * _STRETCH
        parts = norms_above(rows[..., :whole].unflatten(-1, (-1, _STRETCH)))
        if whole < terms:
            parts = torch.cat([parts, norms_above(rows[..., whole:]).unsqueeze(-1)], -1)
        return norms_above(parts)
    relative = 1.0 + (terms / _LANES + 8.0) * kind.eps / 2.0
    lost = math.sqrt(terms * kind.tiny)  # squares too small for the type
    return torch.linalg.vector_norm(rows, dim=-1).mul_(relative).add_(lost)


def squares_above(rows: torch.Tensor) -> torch.Tensor:
    """Return at least the squared L2 norm [...] of each row [..., p]."""
    return norms_above(rows).square_()


def total_above(squares: list[torch.Tensor]) -> torch.Tensor:
    """Return the norm over all layers [n], from (at least) the squared norms [n] in each layer."""
    slack = 1.0 + _SLACK * torch.finfo(squares[0].dtype).eps / 2.0
    return torch.stack(squares).sum(0).sqrt_().mul_(slack)
