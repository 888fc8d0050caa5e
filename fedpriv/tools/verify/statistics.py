"""Tests whose p-values are exact: whatever the sizes, P(p <= α) <= α where nothing is wrong.

Noise is compared with a normal of *known* standard deviation, so that sums of squares are χ² without
approximation. Counts become normals by the randomised probability integral transform

    Z = Φ^-1( P(X < x) + V P(X = x) ),   V uniform,

so that a sum and a sum of squares of counts of different distributions have known laws, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

SHORTFALL = 0.95
"""The noise that must be found too little, as a part of what it should be."""


def chi2_low(square_sum: float, count: int) -> float:
    """P(χ²_count <= square_sum): small where values are too small."""
    return float(special.gammainc(count / 2.0, square_sum / 2.0)) if count else 1.0


def chi2_high(square_sum: float, count: int) -> float:
    """P(χ²_count >= square_sum)."""
    return float(special.gammaincc(count / 2.0, square_sum / 2.0)) if count else 1.0


def two_sided(low: float, high: float) -> float:
    """Of a statistic that may be too small or too large."""
    return min(1.0, 2.0 * min(low, high))


def chi2_two_sided(square_sum: float, count: int) -> float:
    if math.isnan(square_sum):
        return 0.0
    return two_sided(chi2_low(square_sum, count), chi2_high(square_sum, count))


def normal_two_sided(value: float) -> float:
    return 0.0 if math.isnan(value) else min(1.0, float(2.0 * special.ndtr(-abs(value))))


def smallest(p_values: Sequence[float] | np.ndarray) -> float:
    """Bonferroni: of the smallest among them."""
    found = np.asarray(p_values, dtype=float)
    return 1.0 if not found.size else float(min(1.0, found.size * found.min()))


def squares_p(squares: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """Two-sided p-values of several sums of squares of standard normals."""
    counts = np.broadcast_to(counts, squares.shape)
    low = special.gammainc(counts / 2.0, squares / 2.0)
    high = special.gammaincc(counts / 2.0, squares / 2.0)
    return np.minimum(1.0, 2.0 * np.minimum(low, high))


def shape_p(values: np.ndarray) -> float:
    """Kolmogorov and Smirnov's test against a standard normal."""
    ordered = np.sort(special.ndtr(values))
    steps = np.arange(1, len(ordered) + 1) / len(ordered)
    distance = float(max((steps - ordered).max(), (ordered - steps).max() + 1.0 / len(ordered)))
    return float(stats.kstwo.sf(distance, len(ordered)))


def largest_p(values: np.ndarray) -> float:
    """Of the largest of independent standard normals in absolute value, which bounded noise does not have."""
    log_below = len(values) * math.log1p(-2.0 * float(special.ndtr(-np.abs(values).max())))
    return two_sided(math.exp(log_below), -math.expm1(log_below))


def off_diagonal(vectors: np.ndarray) -> np.ndarray:
    """What each vector [n, d] has in common with those before it, n <= d: n (n-1)/2 numbers.

    By Bartlett's decomposition they are independent standard normals if all coordinates are.
    """
    triangle = np.linalg.qr(vectors.T, mode="r")
    triangle = triangle * np.sign(np.diagonal(triangle))[:, None]
    return triangle[np.triu_indices(len(vectors), 1)]


def common_p(shared: np.ndarray) -> float:
    """Of numbers from :func:`off_diagonal`: all together, and the largest of them."""
    if not shared.size:
        return 1.0
    if not np.isfinite(shared).all():
        return 0.0
    together = chi2_high(float((shared**2).sum()), shared.size)
    return smallest([together, smallest(2.0 * special.ndtr(-np.abs(shared)))])


def as_normals(below: np.ndarray, exactly: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Normals from P(X < x), P(X = x) and uniforms; infinite where x cannot be."""
    return special.ndtri(np.clip(below + uniforms * exactly, 0.0, 1.0))


def sum_p(normals: np.ndarray) -> float:
    """Of their sum."""
    return normal_two_sided(float(normals.sum()) / math.sqrt(max(1, normals.size)))


def spread_p(normals: np.ndarray) -> float:
    """Of their sum of squares: too small where counts hardly vary."""
    return chi2_two_sided(float((normals**2).sum()), normals.size)


def power(samples: int, ratio: float, level: float) -> float:
    """With which probability noise of ``ratio`` times the standard deviation it should have is found too
    little, from so many numbers at this level: exact."""
    limit = 2.0 * special.gammaincinv(samples / 2.0, level)
    return float(special.gammainc(samples / 2.0, limit / (2.0 * ratio**2)))


def singular_p(smallest_value: float, largest_value: float, rows: int, columns: int) -> list[float]:
    """Return upper bounds of the p-values of the extreme singular values of normals [rows, columns].

    Gordon's theorem with concentration of Lipschitz functions (Davidson, Szarek 2001, theorem II.13), for
    every rows >= columns:

        P(s_min <= √rows - √columns - t) <= e^(-t²/2),    P(s_max >= √rows + √columns + t) <= e^(-t²/2)
    """
    short = math.sqrt(rows) - math.sqrt(columns) - smallest_value
    long = largest_value - math.sqrt(rows) - math.sqrt(columns)
    return [math.exp(-(max(0.0, t) ** 2) / 2.0) for t in (short, long)]


def spectrum_p(values: np.ndarray) -> tuple[float, float]:
    """Return (a p-value, the smallest singular value ÷ √n) of standard normals [n, d], n > d.

    Beside the extreme singular values it tests what is left of each column once all others are known: with
    W = XᵀX, 1 / (W⁻¹)_jj is χ² with n - d + 1 degrees of freedom, exactly (Bartlett's decomposition).
    """
    rows, columns = values.shape
    if not np.isfinite(values).all():
        return 0.0, math.nan
    gram = np.zeros((columns, columns))
    for first in range(0, rows, 4096):
        part = values[first : first + 4096].astype(np.float64)
        gram += part.T @ part
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues = np.maximum(eigenvalues, rows * 1e-9)
    extremes = np.sqrt(eigenvalues[[0, -1]])
    left = 1.0 / (vectors**2 @ (1.0 / eigenvalues))
    left_p = special.gammainc((rows - columns + 1) / 2.0, left / 2.0)
    tests = [*singular_p(float(extremes[0]), float(extremes[1]), rows, columns), smallest(left_p)]
    return smallest(tests), float(extremes[0]) / math.sqrt(rows)


def fewest_distinct_p(distinct: int, count: int, coincidence: float) -> float:
    """Return an upper bound of P(at most so many distinct values among ``count`` independent ones).

    One value changes the number of distinct ones by at most 1, so McDiarmid's inequality holds around its
    mean, which is at least ``count`` minus the expected number of equal pairs.

    Args:
        coincidence: The probability, at most, that two values are equal.
    """
    expected = count - 0.5 * count * (count - 1) * coincidence
    return math.exp(-2.0 * max(0.0, expected - distinct) ** 2 / max(1, count))
