"""Bounds of the rounding error of privacy losses that are composed by fast Fourier transforms (FFT).

Notation: f [N] >= 0 with sum 1 is a privacy loss in cells, F its transform, g its n-fold composition, the
inverse transform of F^n; u is the unit of double precision.

- An FFT moves no coefficient of F by more than 2 u log2(N), and F by at most 2 u log2(N) ‖F‖: a rounded
  product of complex numbers by √5 u/2 (Brent, Percival, Zimmermann 2007), a root of unity and a sum by u/2
  each, over log2(N) stages (Higham 2002, section 24.1). The tests hold this against extended precision, also
  for N with large prime factors.
- The power n multiplies that error by n |F|^(n-1), and rounds the phase of n log F, at most π, by
  2π n u |F|^n.

So with Parseval's identity ‖F^n‖ = √N ‖g‖ the computed g is off by a vector e with

    Σ|e| <= √N ‖e‖ <= u ( n (2 log2(N) + 2π) min(‖F^(n-1)‖, ‖F‖) + 2 log2(N) ‖F^n‖ ),
    ‖F^(n-1)‖ <= ‖F^n‖^(1-1/n) N^(1/2n)    (Hölder),

and δ(ε) = Σ_{l>ε} g_l (1 - e^(ε-l)) is off by at most Σ|e|, as 0 <= 1 - e^(ε-l) <= 1.
"""

from __future__ import annotations

import math

import numpy as np

_UNIT = float(np.finfo(float).eps)


def self_composition_error(
    single: np.ndarray, composed: np.ndarray, count: int, size: int
) -> float:
    """Return a bound on Σ|e| for an n-fold composition by FFT (the module's first inequality).

    Args:
        single: The privacy loss f of one draw.
        composed: The computed composition g.
        count: n, the number of draws.
        size: N, the length of the FFT.
    """
    stages = 2.0 * math.log2(size)
    of_single, of_composed = (
        math.sqrt(size) * float(np.linalg.norm(pmf)) for pmf in (single, composed)
    )
    of_one_less = of_composed ** (1.0 - 1.0 / count) * size ** (0.5 / count)
    powers = count * (stages + 2.0 * math.pi) * min(of_one_less, of_single)
    return _UNIT * (powers + stages * of_composed)


def convolution_error(first: np.ndarray, second: np.ndarray) -> float:
    """Return a bound on Σ|e| of the convolution of two privacy losses by FFT, with e the error of each cell.

    The convolution takes two transforms forth and one back.

    Args:
        first: Masses of the cells of a privacy loss [n].
        second: Masses of the cells of the other [m].
    """
    size = 2.0 * max(len(first), len(second))
    one, other = float(np.linalg.norm(first)), float(np.linalg.norm(second))
    return _UNIT * 2.0 * math.log2(size) * math.sqrt(size) * (one + other + min(one, other))
