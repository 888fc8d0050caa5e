"""Statistical tests with exact p-values: P(p <= α) <= α for every sample size where nothing is wrong.

Noise is compared with a normal of *known* standard deviation, so sums of squares are χ² without
approximation. Counts become normals by the randomised probability integral transform

    Z = Φ^-1( P(X < x) + V P(X = x) ),   V uniform.

Sums and sums of squares of counts with different distributions then have known laws, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special, stats

Key = TypeVar("Key")


def two_sided(low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Return p-values of statistics that may be too small or too large, from both one-sided p-values."""
    return np.minimum(1.0, 2.0 * np.minimum(low, high))


def normal_p(values: np.ndarray | float) -> np.ndarray:
    """Return two-sided p-values of standard normals; 0 for NaN."""
    return np.nan_to_num(2.0 * special.ndtr(-np.abs(values)))


def squares_p(squares: np.ndarray | float, counts: np.ndarray | int) -> np.ndarray:
    """Return two-sided p-values of sums of squares of ``counts`` standard normals; 0 for NaN."""
    law = stats.chi2(counts)
    return np.nan_to_num(two_sided(law.cdf(squares), law.sf(squares)))


def smallest(p_values: Sequence[float] | np.ndarray) -> float:
    """Return the p-value of the smallest of several p-values (Bonferroni)."""
    array = np.asarray(p_values, dtype=float)
    return 1.0 if not array.size else float(min(1.0, array.size * array.min()))


def add_squares(sums: dict[Key, list[float]], key: Key, values: np.ndarray) -> None:
    """Add the squares of standard normals to the entry [sum of squares, count] of a key."""
    entry = sums.setdefault(key, [0.0, 0.0])
    entry[0] += float((values.astype(np.float64) ** 2).sum())
    entry[1] += values.size


def worst_spread(sums: Mapping[Key, Sequence[float]]) -> tuple[Key, float, float]:
    """Return the key whose sum of squares is least likely, its standard deviation, and a p-value of all."""
    squares, counts = np.array(list(sums.values()), dtype=float).T
    p_values = squares_p(squares, counts)
    worst = int(np.argmin(p_values))
    return list(sums)[worst], math.sqrt(squares[worst] / counts[worst]), smallest(p_values)


def shape_p(values: np.ndarray) -> float:
    """Return the p-value of the Kolmogorov–Smirnov test against a standard normal."""
    return float(stats.ks_1samp(values, special.ndtr, method="exact").pvalue)


def largest_p(values: np.ndarray) -> float:
    """Return the p-value of the largest absolute value of standard normals.

    Noise that is bounded, or has heavy tails, is found by this test.
    """
    # All n values are below m with probability (1 - 2 Φ(-m))^n.
    log_below = len(values) * math.log1p(-2.0 * float(special.ndtr(-np.abs(values).max())))
    return float(two_sided(math.exp(log_below), -math.expm1(log_below)))


def off_diagonal(vectors: np.ndarray) -> np.ndarray:
    """Return n (n - 1) / 2 numbers that show what n vectors [n, d] have in common, n <= d.

    They are the triangular entries of a QR decomposition of the vectors. By Bartlett's decomposition they are
    independent standard normals if all coordinates are.
    """
    triangle = np.linalg.qr(vectors.T, mode="r")
    # The decomposition is unique where the diagonal is positive.
    triangle = triangle * np.sign(np.diagonal(triangle))[:, None]
    return triangle[np.triu_indices(len(vectors), 1)]


def common_p(shared: np.ndarray) -> float:
    """Return the p-value of numbers from :func:`off_diagonal`, for all together and for the largest."""
    if not shared.size:
        return 1.0
    if not np.isfinite(shared).all():
        return 0.0
    together = stats.chi2.sf((shared**2).sum(), shared.size)
    return smallest([together, smallest(normal_p(shared))])


def tabulated(law: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return P(X < x) and P(X = x) of counts x, where ``law`` contains P(X = 0), P(X = 1), and so on."""
    inside = np.clip(counts, 0, len(law) - 1)
    below = np.concatenate([[0.0], np.cumsum(law)])
    return below[inside], np.where(inside == counts, law[inside], 0.0)


def as_normals(below: np.ndarray, exactly: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return normals from P(X < x), P(X = x) and uniforms; infinite at impossible x."""
    return special.ndtri(np.clip(below + uniforms * exactly, 0.0, 1.0))


def sum_p(normals: np.ndarray) -> float:
    """Return the p-value of the sum of independent standard normals."""
    return float(normal_p(normals.sum() / math.sqrt(max(1, normals.size))))


def spread_p(normals: np.ndarray) -> float:
    """Return the p-value of the sum of squares of independent standard normals."""
    return float(squares_p((normals**2).sum(), normals.size))


def compared_spreads(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the ratio of two standard deviations of normals of mean 0, and the p-value that they are equal.

    The ratio of the mean squares has an F distribution.
    """
    squares = float((first**2).mean() / (second**2).mean())
    law = stats.f(first.size, second.size)
    return math.sqrt(squares), float(np.nan_to_num(two_sided(law.cdf(squares), law.sf(squares))))


def mean_and_spread_p(normals: np.ndarray) -> float:
    """Return the p-value of the sum and the sum of squares of independent standard normals."""
    return smallest([sum_p(normals), spread_p(normals)])


def spectrum_p(values: np.ndarray) -> tuple[float, float]:
    """Return a p-value and the smallest singular value ÷ √n of standard normals [n, d], n > d.

    The p-values of the extreme singular values are upper bounds. They follow from Gordon's theorem and the
    concentration of Lipschitz functions (Davidson and Szarek 2001, theorem II.13), for every n >= d:

        P(s_min <= √n - √d - t) <= e^(-t²/2),    P(s_max >= √n + √d + t) <= e^(-t²/2)

    A third test looks at the residual of each column given all others. With W = XᵀX, 1 / (W⁻¹)_jj is χ² with
    n - d + 1 degrees of freedom, exactly (Bartlett's decomposition).
    """
    rows, columns = values.shape
    if not np.isfinite(values).all():
        return 0.0, math.nan
    # The singular values are the roots of the eigenvalues of XᵀX, which is summed in parts to save memory.
    gram = np.zeros((columns, columns))
    for first in range(0, rows, 4096):
        part = values[first : first + 4096].astype(np.float64)
        gram += part.T @ part
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues = np.maximum(eigenvalues, rows * 1e-9)  # 0 and less are rounding errors
    s_min, s_max = map(float, np.sqrt(eigenvalues[[0, -1]]))
    below = math.sqrt(rows) - math.sqrt(columns) - s_min
    above = s_max - math.sqrt(rows) - math.sqrt(columns)
    residuals = 1.0 / (vectors**2 @ (1.0 / eigenvalues))
    tests = [math.exp(-(max(0.0, t) ** 2) / 2.0) for t in (below, above)]
    tests.append(smallest(stats.chi2.cdf(residuals, rows - columns + 1)))
    return smallest(tests), s_min / math.sqrt(rows)


def fewest_distinct_p(distinct: int, count: int, coincidence: float) -> float:
    """Return an upper bound of P(at most ``distinct`` different values among ``count`` independent values).

    One value changes the number of different values by at most 1, so McDiarmid's inequality holds around the
    mean. The mean is at least ``count`` minus the expected number of equal pairs.

    Args:
        distinct: Number of different values that was seen.
        count: Number of values.
        coincidence: Upper bound of the probability that two values are equal.
    """
    expected = count - 0.5 * count * (count - 1) * coincidence
    return math.exp(-2.0 * max(0.0, expected - distinct) ** 2 / max(1, count))
