"""Tests whose p-values are exact: whatever the sizes, P(p <= α) <= α where nothing is wrong.

Noise is compared with a normal of *known* standard deviation, so that sums of squares are χ² without
approximation. Counts become normals by the randomised probability integral transform

    Z = Φ^-1( P(X < x) + V P(X = x) ),   V uniform,

so that a sum and a sum of squares of counts of different distributions have known laws, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special, stats

Key = TypeVar("Key")


def two_sided(low: float, high: float) -> float:
    """Return the p-value of a statistic that may be too small or too large."""
    return min(1.0, 2.0 * min(low, high))


def normal_p(values: np.ndarray | float) -> np.ndarray:
    """Return two-sided p-values of standard normals; 0 of what is not a number."""
    return np.nan_to_num(2.0 * special.ndtr(-np.abs(values)))


def squares_p(squares: np.ndarray | float, counts: np.ndarray | int) -> np.ndarray:
    """Return two-sided p-values of sums of squares of so many standard normals; 0 of what is not a number."""
    law = stats.chi2(counts)
    return np.nan_to_num(np.minimum(1.0, 2.0 * np.minimum(law.cdf(squares), law.sf(squares))))


def smallest(p_values: Sequence[float] | np.ndarray) -> float:
    """Return the p-value of the smallest of several (Bonferroni)."""
    found = np.asarray(p_values, dtype=float)
    return 1.0 if not found.size else float(min(1.0, found.size * found.min()))


def add_squares(sums: dict[Key, list[float]], key: Key, values: np.ndarray) -> None:
    """Add standard normals to the [sum of squares, count] of a key."""
    entry = sums.setdefault(key, [0.0, 0.0])
    entry[0] += float((values.astype(np.float64) ** 2).sum())
    entry[1] += values.size


def worst_spread(sums: Mapping[Key, Sequence[float]]) -> tuple[Key, float, float]:
    """Return (the key whose sum of squares is least likely, its standard deviation, a p-value of all)."""
    squares, counts = np.array(list(sums.values()), dtype=float).T
    p_values = squares_p(squares, counts)
    at = int(np.argmin(p_values))
    return list(sums)[at], math.sqrt(squares[at] / counts[at]), smallest(p_values)


def shape_p(values: np.ndarray) -> float:
    """Return the p-value of Kolmogorov and Smirnov's test against a standard normal."""
    return float(stats.ks_1samp(values, special.ndtr, method="exact").pvalue)


def largest_p(values: np.ndarray) -> float:
    """Return the p-value of the largest of standard normals in absolute value: bounded noise has none."""
    log_below = len(values) * math.log1p(-2.0 * float(special.ndtr(-np.abs(values).max())))
    return two_sided(math.exp(log_below), -math.expm1(log_below))


def off_diagonal(vectors: np.ndarray) -> np.ndarray:
    """Return what each vector [n, d] has in common with those before it, n <= d: n (n-1)/2 numbers.

    By Bartlett's decomposition they are independent standard normals if all coordinates are.
    """
    triangle = np.linalg.qr(vectors.T, mode="r")
    triangle = triangle * np.sign(np.diagonal(triangle))[:, None]
    return triangle[np.triu_indices(len(vectors), 1)]


def common_p(shared: np.ndarray) -> float:
    """Return the p-value of numbers from :func:`off_diagonal`: all together, and the largest of them."""
    if not shared.size:
        return 1.0
    if not np.isfinite(shared).all():
        return 0.0
    together = stats.chi2.sf((shared**2).sum(), shared.size)
    return smallest([together, smallest(normal_p(shared))])


def tabulated(law: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return P(X < x) and P(X = x) of counts x, where ``law`` has P(X = 0), P(X = 1), …"""
    inside = np.clip(counts, 0, len(law) - 1)
    below = np.concatenate([[0.0], np.cumsum(law)])
    return below[inside], np.where(inside == counts, law[inside], 0.0)


def as_normals(below: np.ndarray, exactly: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return normals from P(X < x), P(X = x) and uniforms; infinite where x cannot be."""
    return special.ndtri(np.clip(below + uniforms * exactly, 0.0, 1.0))


def sum_p(normals: np.ndarray) -> float:
    """Return the p-value of the sum of independent standard normals."""
    return float(normal_p(normals.sum() / math.sqrt(max(1, normals.size))))


def spread_p(normals: np.ndarray) -> float:
    """Return the p-value of their sum of squares: too small where counts hardly vary."""
    return float(squares_p((normals**2).sum(), normals.size))


def mean_and_spread_p(normals: np.ndarray) -> float:
    """Return the p-value of both."""
    return smallest([sum_p(normals), spread_p(normals)])


def spectrum_p(values: np.ndarray) -> tuple[float, float]:
    """Return (a p-value, the smallest singular value ÷ √n) of standard normals [n, d], n > d.

    The p-values of the extreme singular values are upper bounds: Gordon's theorem with concentration of
    Lipschitz functions (Davidson, Szarek 2001, theorem II.13), for every n >= d:

        P(s_min <= √n - √d - t) <= e^(-t²/2),    P(s_max >= √n + √d + t) <= e^(-t²/2)

    Besides, what is left of each column once all others are known is tested: with W = XᵀX, 1 / (W⁻¹)_jj is
    χ² with n - d + 1 degrees of freedom, exactly (Bartlett's decomposition).
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
    least, most = map(float, np.sqrt(eigenvalues[[0, -1]]))
    short = math.sqrt(rows) - math.sqrt(columns) - least
    long = most - math.sqrt(rows) - math.sqrt(columns)
    left = 1.0 / (vectors**2 @ (1.0 / eigenvalues))
    tests = [math.exp(-(max(0.0, t) ** 2) / 2.0) for t in (short, long)]
    tests.append(smallest(stats.chi2.cdf(left, rows - columns + 1)))
    return smallest(tests), least / math.sqrt(rows)


def fewest_distinct_p(distinct: int, count: int, coincidence: float) -> float:
    """Return an upper bound of P(at most so many distinct values among ``count`` independent ones).

    One value changes the number of distinct ones by at most 1, so McDiarmid's inequality holds around its
    mean, which is at least ``count`` minus the expected number of equal pairs.

    Args:
        coincidence: The probability, at most, that two values are equal.
    """
    expected = count - 0.5 * count * (count - 1) * coincidence
    return math.exp(-2.0 * max(0.0, expected - distinct) ** 2 / max(1, count))
