"""log A_α of many Poisson-sampled Gaussians at once (Mironov, Talwar, Zhang 2019, section 3.3).

    A_α = E_{w ~ N(0,1)} [ (1 - q + q exp(w/σ - 1/(2σ²)))^α ]

Whole orders: the expectation is a finite sum, A_α = Σ_i C(α,i) (1-q)^{α-i} q^i exp((i²-i)/(2σ²)). Its
logarithm is a log-sum-exp of linear functions of x = 1/σ². It is therefore convex in x, and between two
values of x the chord is never below it. A hundred exact values thus give upper bounds for thousands of
distinct σ.

Other orders: the trapezoidal rule, which converges geometrically for an analytic integrand (Trefethen &
Weideman 2014). The nearest zero of 1 - q + q exp(…) lies at a distance πσ from the real line. With a step of
0.4 σ the error is below exp(-2π·πσ/(0.4σ)) ≈ 1e-21, less than rounding.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import special

MANY = 200  # number of distinct σ from which on chords are used
_NODE_STEP = 1.004  # ratio of neighbouring 1/σ² between which the chord is drawn
_WIDTH = 9.5  # the normal weight beyond this is below 1e-20
_SMALLEST = 0.03  # a smaller σ needs very many points, and sampling gains almost nothing there
_CHUNK = 4_000_000  # numbers held at once
_BLOCK = 20_000  # entries of a table of binomial terms


def log_a_of_whole_orders(
    sample_rate: float, noise_multipliers: np.ndarray, orders: tuple[float, ...]
) -> np.ndarray:
    """Return log A_α [n, len(orders)] for whole orders ≥ 2; an upper bound when n is large."""
    x = np.asarray(noise_multipliers, dtype=float) ** -2.0
    if len(x) < MANY or not orders:
        return _exact(sample_rate, x, orders)
    low, high = np.log(x.min()), np.log(x.max())
    nodes = np.exp(np.linspace(low, high, 2 + int((high - low) / np.log(_NODE_STEP))))
    nodes[0], nodes[-1] = x.min(), x.max()
    values = _exact(sample_rate, nodes, orders)
    right = np.clip(np.searchsorted(nodes, x), 1, len(nodes) - 1)
    width = nodes[right] - nodes[right - 1]
    share = np.divide(x - nodes[right - 1], width, out=np.zeros_like(x), where=width > 0)[:, None]
    return (1.0 - share) * values[right - 1] + share * values[right]


def _exact(sample_rate: float, x: np.ndarray, orders: tuple[float, ...]) -> np.ndarray:
    result = np.empty((len(x), len(orders)))
    for columns in _blocks(orders):
        group = tuple(orders[c] for c in columns)
        log_terms, exponent = _table(group, sample_rate)
        for row, value in enumerate(x):
            result[row, columns] = special.logsumexp(log_terms + exponent * value, axis=1)
    return result


@functools.lru_cache(maxsize=16)
def _blocks(orders: tuple[float, ...]) -> list[list[int]]:
    """Return blocks of columns with neighbouring orders.

    A table is as wide as its largest order, so blocks of neighbouring orders keep tables small.
    """
    blocks: list[list[int]] = []
    for column in sorted(range(len(orders)), key=lambda c: orders[c]):
        if blocks and (len(blocks[-1]) + 1) * orders[column] <= _BLOCK:
            blocks[-1].append(column)
        else:
            blocks.append([column])
    return blocks


@functools.lru_cache(maxsize=128)
def _table(orders: tuple[float, ...], sample_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of the terms of A_α without the factor of σ [orders, i], and (i² - i)/2 [i]."""
    alpha = np.asarray(orders)[:, None]
    i = np.arange(max(orders) + 1)[None, :]
    inside = i <= alpha
    rest = np.where(inside, alpha - i, 0.0)
    log_terms = (
        special.gammaln(alpha + 1)
        - special.gammaln(i + 1)
        - special.gammaln(rest + 1)
        + rest * np.log1p(-sample_rate)
        + i * np.log(sample_rate)
    )
    return np.where(inside, log_terms, -np.inf), ((i * i - i) / 2.0)[0]


def log_a_by_quadrature(
    sample_rate: float, noise_multipliers: np.ndarray, orders: np.ndarray
) -> np.ndarray:
    """Return log A_α [n, len(orders)] for any orders > 1; ``inf`` below a noise multiplier of 0.03."""
    sigma, alpha = np.asarray(noise_multipliers, dtype=float), np.asarray(orders, dtype=float)
    result = np.full((len(sigma), len(alpha)), np.inf)
    if not len(alpha):
        return result
    usable = np.flatnonzero(sigma >= _SMALLEST)
    usable = usable[np.argsort(sigma[usable])]  # neighbouring σ share their points
    start = 0
    while start < len(usable):
        smallest = sigma[usable[start]]
        step = min(0.5, 0.4 * smallest)
        w = np.arange(-_WIDTH, alpha.max() / smallest + _WIDTH + step, step)
        rows = usable[start : start + max(1, _CHUNK // (len(w) * len(alpha)))]
        rows = rows[sigma[rows] <= 1.5 * smallest]
        result[rows] = _trapezoid(sample_rate, sigma[rows], alpha, w, step)
        start += len(rows)
    return result


def _trapezoid(
    sample_rate: float, sigma: np.ndarray, alpha: np.ndarray, w: np.ndarray, step: float
) -> np.ndarray:
    log_weight = np.log(step) - 0.5 * np.log(2.0 * np.pi) - 0.5 * w * w
    shift = w / sigma[:, None] - 0.5 / sigma[:, None] ** 2
    log_ratio = np.logaddexp(np.log1p(-sample_rate), np.log(sample_rate) + shift)  # [n, w]
    powers = alpha[:, None] * log_ratio[:, None, :]  # [n, alpha, w]
    if powers.max() > 600.0:
        return special.logsumexp(powers + log_weight, axis=2)
    # E[ratio - 1] = 0, so α (ratio - 1) may be subtracted. A - 1 is then a sum of positive terms, and
    # exact also where it is tiny.
    excess = np.expm1(powers) - alpha[:, None] * np.expm1(log_ratio)[:, None, :]
    return np.log1p(np.maximum(excess @ np.exp(log_weight), 0.0))
