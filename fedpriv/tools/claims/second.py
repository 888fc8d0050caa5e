"""A second derivation of ε that uses no accountant: numerical integration of privacy losses.

A Gaussian release without sampling is decided by the best test, whose error rates have a closed form. For a
Gaussian on a Poisson sample the privacy loss is put on a grid, once rounded up and once rounded down, and the
losses of all steps are added by the fast Fourier transform. The two roundings bound ε from both sides, up to
rounding errors of the transform. Only numpy and scipy are used.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

_MOST_CELLS = 1 << 21
_TAIL = 14.0  # standard deviations of the sum of losses that the grid holds


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return ε of N(0, 1) against N(μ, 1) at δ, by the test that accepts above a threshold.

    The test with threshold t + μ/2 has δ(t) = Φ(μ/2 - t) - exp(ε) Φ(-μ/2 - t). At a given ε the best
    threshold is t = ε/μ, so δ(ε) is the value of this test.

    Args:
        mu: Distance of the means ÷ standard deviation, > 0.
        delta: δ in (0, 1).

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 2)
        4.38
    """

    def delta_at(epsilon: float) -> float:
        threshold = epsilon / mu
        return float(ndtr(mu / 2 - threshold) - np.exp(epsilon + log_ndtr(-mu / 2 - threshold)))

    low, high = 0.0, 1.0
    if delta_at(low) <= delta:
        return 0.0
    while delta_at(high) > delta:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def poisson_epsilon(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float
) -> tuple[float, float]:
    """Return a lower and an upper bound of ε of Gaussian steps on Poisson samples, under add or remove.

    Args:
        noise_multiplier: Standard deviation of the noise ÷ sensitivity.
        sample_rate: q in (0, 1).
        steps: T ≥ 1.
        delta: δ in (0, 1).
    """
    grid = _Grid(noise_multiplier, sample_rate, steps)
    bounds = []
    for up in (False, True):
        bounds.append(max(grid.epsilon(removed, up, delta) for removed in (True, False)))
    return bounds[0], bounds[1]


class _Grid:
    """Privacy losses of one step on a grid, and of their sum.

    Args:
        noise_multiplier: σ.
        sample_rate: q.
        steps: T.
    """

    def __init__(self, noise_multiplier: float, sample_rate: float, steps: int):
        self.sigma, self.rate, self.steps = noise_multiplier, sample_rate, steps
        x = np.linspace(-12 * self.sigma, 1 + 12 * self.sigma, 50_001)
        losses = self._loss(x)
        density = np.exp(-((x - 1) ** 2) / (2 * self.sigma**2)) * sample_rate
        density += np.exp(-(x**2) / (2 * self.sigma**2)) * (1 - sample_rate)
        density /= density.sum()
        mean = float((density * losses).sum())
        spread = math.sqrt(float((density * (losses - mean) ** 2).sum()))
        one = float(np.abs(losses).max()) if steps == 1 else 0.0
        self.half = max(steps * abs(mean) * 2 + _TAIL * spread * math.sqrt(steps) + 2, one)
        # The roundings of all steps may add up, so a finer grid serves more steps.
        width = max(2 * self.half / _MOST_CELLS, min(1e-4, 0.02 / steps))
        self.cells = 1 << math.ceil(math.log2(2 * self.half / width))
        self.width = 2 * self.half / self.cells

    def _loss(self, x: np.ndarray) -> np.ndarray:
        """Return log of the density with the unit ÷ the density without it."""
        shift = (2 * x - 1) / (2 * self.sigma**2)
        return np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + shift)

    def _outcome(self, loss: np.ndarray) -> np.ndarray:
        """Return the outcome x at which the loss has this value, -inf where it is never as small."""
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log((np.exp(loss) - (1 - self.rate)) / self.rate)
        return np.where(np.isnan(inner), -np.inf, self.sigma**2 * inner + 0.5)

    def epsilon(self, removed: bool, up: bool, delta: float) -> float:
        """Return ε at δ, of removing a unit or of adding it, with losses rounded up or down."""
        edges = (np.arange(self.cells + 1) - self.cells // 2) * self.width
        x = self._outcome(edges if removed else -edges)
        without = ndtr(x / self.sigma)
        with_unit = (1 - self.rate) * without + self.rate * ndtr((x - 1) / self.sigma)
        # Where the unit was added, the loss is minus that of x, so that small losses are large x.
        below = with_unit if removed else 1 - without
        mass = np.diff(below)
        above = 1 - below[-1]
        # Mass below the grid counts as its smallest loss, or not at all for the lower bound.
        if up:
            mass[0] += below[0]
        spectrum = np.fft.rfft(np.roll(mass, -(self.cells // 2)))
        total = np.fft.irfft(spectrum**self.steps, n=self.cells)
        total = np.clip(np.roll(total, self.cells // 2), 0, None)
        losses = edges[:-1] + (self.width * self.steps if up else 0.0)
        infinite = -math.expm1(self.steps * math.log1p(-above)) if up and above > 0 else 0.0

        total, losses = total[losses > 0], losses[losses > 0]
        # Sums over all larger losses, the last of them zero.
        larger = np.append(np.cumsum(total[::-1])[::-1], 0.0)
        discounted = np.append(np.cumsum((total * np.exp(-losses))[::-1])[::-1], 0.0)

        def delta_at(epsilon: float) -> float:
            first = int(np.searchsorted(losses, epsilon, side="right"))
            return infinite + float(larger[first] - math.exp(epsilon) * discounted[first])

        low, high = 0.0, self.half
        if delta_at(low) <= delta:
            return 0.0
        if delta_at(high) > delta:
            return math.inf
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
        return high if up else low
