"""Discrete noise without floating point: discrete Gaussians and Skellams from tables.

The law of |Z| is tabulated as thresholds P(|Z| ≤ k) in whole numbers of 128 bits, computed with 320 bits. A
uniform number of 128 bits is looked up in the table; its first 64 bits nearly always decide. One more bit
gives the sign.

A draw is within 2^-100 of the law in total variation, tails included: a million coordinates of 100 clients in
a thousand rounds add less than 1e-15 to δ. The random numbers come from a stream that the caller passes, so
that a resumed run draws the numbers of an uninterrupted run.

A variance is the exact fraction that its double represents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from fedpriv.common.secret_streams import Stream

_BITS = 320  # bits of the probabilities while they are computed
_OUT = 128  # bits of the thresholds
_TAIL = 180.0  # twice the exponent of the tail in nats: the mass beyond is below 2^-128


class WeightTable:
    """A symmetric law on whole numbers from which streams draw.

    Attributes:
        largest: K, the largest whole number with mass.
    """

    def __init__(self, weights: Sequence[int]):
        """Tabulate the law.

        Args:
            weights: Whole numbers in proportion to P(Z = 0), P(Z = 1), …; -k has the weight of k.
        """
        total = weights[0] + 2 * sum(weights[1:])
        cumulated, thresholds = 0, []
        for k, weight in enumerate(weights):
            cumulated += weight if k == 0 else 2 * weight
            thresholds.append((cumulated << _OUT) // total)
        self._thresholds = [t for t in thresholds[:-1] if t < 1 << _OUT]  # the last lies beyond
        high = [t >> 64 for t in self._thresholds]
        self._high = np.array(high, dtype=np.uint64)
        self.largest = len(self._thresholds)

    def probabilities(self) -> np.ndarray:
        """Return P(Z = -K), …, P(Z = K) as floats."""
        bounds = [0, *self._thresholds, 1 << _OUT]
        steps = [float(Fraction(b - a, 1 << _OUT)) for a, b in pairwise(bounds)]
        half = np.array(steps[1:]) / 2.0
        return np.concatenate([half[::-1], steps[:1], half])

    def draw(self, stream: Stream, count: int) -> np.ndarray:
        """Draw ``count`` numbers, int64 [count]."""
        leading_bits = stream.bits(count)
        signs = np.unpackbits(stream.bits(-(-count // 64)).view(np.uint8))[:count]
        magnitudes = np.searchsorted(self._high, leading_bits, side="right")
        threshold = self._high[np.maximum(magnitudes, 1) - 1]
        # Where the first 64 bits equal those of a threshold, another 64 bits decide.
        for i in np.flatnonzero((threshold == leading_bits) & (magnitudes > 0)):
            number = (int(leading_bits[i]) << 64) | int(stream.bits(1)[0])
            tied = np.flatnonzero(self._high == leading_bits[i])
            magnitudes[i] = sum(self._thresholds[k] <= number for k in tied) + tied[0]
        return np.where(signs.astype(bool), -magnitudes, magnitudes)


@lru_cache(maxsize=8)
def discrete_gaussian(variance: float) -> WeightTable:
    """Return the table of the discrete Gaussian N_Z(0, σ²): P(x) ∝ exp(-x²/(2σ²))."""
    sigma2 = Fraction(variance)
    weight, ratio = 1 << _BITS, _exp_of_minus(1 / (2 * sigma2))
    step = (ratio * ratio) >> _BITS  # exp(-1/σ²)
    weights = []
    for _ in range(_extent(variance)):
        weights.append(weight)
        weight = (weight * ratio) >> _BITS
        ratio = (ratio * step) >> _BITS
    return WeightTable(weights)


@lru_cache(maxsize=8)
def skellam(variance: float) -> WeightTable:
    """Return the table of the Skellam law: the difference of two Poissons of mean μ/2 each.

    P(x) = e^(-μ) I_x(μ), by Miller's recurrence for Bessel functions

        I_{x-1} = I_{x+1} + (2x/μ) I_x
    """
    mu = Fraction(variance)
    extent = 2 * _extent(variance)  # the error of the start vanishes on the way down
    above, weight = 0, 1 << _BITS
    weights = [weight]
    top, bottom = 2 * mu.denominator, mu.numerator
    for x in range(extent, 0, -1):
        above, weight = weight, above + weight * (top * x) // bottom
        weights.append(weight)
    return WeightTable(weights[::-1][: _extent(variance)])


def _extent(variance: float) -> int:
    """Return how many values of |Z| have mass that counts.

    Beyond them 2 exp(-x²/(2σ² + 2x/3)) is below 2^-128.
    """
    x = _TAIL / 6.0 + math.sqrt((_TAIL / 6.0) ** 2 + _TAIL * variance)
    return math.ceil(x) + 2


def _exp_of_minus(x: Fraction) -> int:
    """Return ⌊2^320 exp(-x)⌋ within a few units."""
    halvings = max(0, math.ceil(math.log2(float(x))) + 1) if x > 0.5 else 0
    small = x / 2**halvings
    unit = 1 << (_BITS + 64)
    term, total, k = unit, unit, 0
    while term:
        k += 1
        term = term * small.numerator // (small.denominator * k)
        total += -term if k % 2 else term
    for _ in range(halvings):
        total = (total * total) >> (_BITS + 64)
    return total >> 64
