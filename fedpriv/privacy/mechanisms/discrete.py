"""Integer sums modulo 2^b, as secure aggregation adds them up, with integer noise.

A client encodes its vector x (‖x‖ ≤ C), and the server decodes the sum:

    y  = (k/C) H D x                  a random rotation that flattens: signs D, normalised Hadamard H
    r  = randomised rounding of y     to integers, unbiased
    v  = r + noise   mod 2^b          the noise is the client's share
    Σv mod 2^b  →  to [-2^(b-1), 2^(b-1))  →  (C/k) D Hᵀ ·

k (``cells``) is the number of grid steps in a clip norm. A vector of d numbers is padded to a power of two.
The signs are public. Everything after the noise is post-processing, including the reduction modulo 2^b.

**Sensitivity** of Σ r in integers, for one unit more or less (zeros in its place):

- ``vectors`` (the unit is the client; Kairouz, Liu, Steinke 2021): r is drawn again until ‖r‖ ≤ B with

      B² = min{ (k + √d)²,  k² + d/4 + √(2 ln(1/β)) (k + √d/2) },   β = e^(-1/2)

  A draw keeps to B with probability ≥ 1 - β. The client moves nothing but its own r, so Δ₂ = B.
- ``sums`` (the unit is a record, x the client's sum of clipped records): r_j = ⌊y_j + u_j⌋ with u_j uniform
  on [0, 1), so that y_j is rounded up with probability y_j - ⌊y_j⌋. Fix u, which does not depend on records.
  One record more moves y by δ, ‖δ‖ ≤ k, and moves r_j by ⌊y_j + δ_j + u_j⌋ - ⌊y_j + u_j⌋. This is ⌊δ_j⌋ or
  ⌈δ_j⌉, hence differs from δ_j by less than 1. So ‖Δr‖ < k + √d for every u. Divergences are jointly
  quasi-convex, so a bound for every u holds for the mixture over u: Δ₂ = k + √d. (Rounding each record by
  itself would need every record's rotated gradient, and the rounding errors of records would add up.) k is
  taken 1e-5 larger, to cover the error of floating point.

Both bound vectors of integers, whose L1 norm is at most min(√d Δ₂, Δ₂²).

**Wrapping around** modulo 2^b does not affect privacy, but ruins the sum. With random signs a coordinate of
the rotated sum is subgaussian of variance ≤ (n k)²/d, and the roundings are less than n in all. So for every
λ > 0

    P(some coordinate wraps) ≤ 2 d exp( -λ (2^(b-1) - n) + λ² n² k² / (2 d) + n log E e^(λ share) )
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.core.names import CLIENT
from fedpriv.privacy.mechanisms.bounded import DOUBLED
from fedpriv.privacy.mechanisms.query import Noising, Query

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.core.integer_noise import WeightTable
    from fedpriv.privacy.mechanisms.bounded import Bounded

VECTORS, SUMS = "vectors", "sums"
BETA = math.exp(-0.5)
_HIDDEN = 1e-5  # relative error of floating point in the distance that a record moves the sum
LARGEST_SHARE = 2.0**13
"""Largest standard deviation of a share, in grid steps: a finer grid gains nothing."""
_LARGEST_CELLS = 2.0**24
_LARGEST_RATE = 3.0  # of λ; every λ > 0 gives a valid bound
_FACTORS = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05)


class IntegerQuery(Query):
    """Answer with integer shares of noise, which only the clients can add.

    Attributes:
        family: Distribution of the shares.
    """

    family: str
    by = CLIENT
    replaced = DOUBLED
    protects = True

    def noised_by(self, by: str) -> Query:
        if by == CLIENT:
            return self
        raise ConfigError(f"{self.name} is noised by the clients' shares, and by nobody else")

    def describe(self) -> str:
        return f"{self.name}={self.family}({self.noise_multiplier:.6g})"


@dataclass(frozen=True)
class DiscreteQuery(IntegerQuery):
    """Sum of the clients' vectors modulo 2^``bits``, with integer noise. The module has the formulas.

    Attributes:
        name: Name of the answer in the ledger.
        noise_multiplier: Standard deviation of ``honest`` shares together ÷ clip norm.
        cells: k, grid steps in a clip norm.
        clients: n, number of clients announced for the round.
        honest: h, number of shares that protect for certain.
        dimension: Length of a padded vector, a power of two.
        bits: b of the modulus.
        rounding: ``vectors`` or ``sums``, which decides the sensitivity.
        masked: Always False. It is in the digests behind random streams, which must not change.
        family: Distribution of the shares, set by the subclass.
    """

    name: str
    noise_multiplier: float
    cells: float
    clients: int
    honest: int = field()  # no default, unlike that of other queries
    dimension: int
    bits: int
    rounding: str
    masked: bool = False

    family = ""

    @property
    def variance(self) -> float:
        """Variance of one share, in squared grid steps."""
        return (self.noise_multiplier * self.cells) ** 2 / self.honest

    @property
    def sensitivity(self) -> float:
        """Δ₂ in grid steps, the bound on ‖Δr‖ of the module."""
        return rounded_norm(self.cells, self.dimension, self.rounding)

    @property
    def bytes_per_client(self) -> int:
        """Upload of a client in a round, in bytes."""
        return math.ceil(self.dimension * self.bits / 8)

    @property
    def wrap_probability(self) -> float:
        """Upper bound of the probability that some coordinate of a round's sum wraps around."""
        return wrap_probability(
            self.family, self.cells, self.variance, self.clients, self.dimension, self.bits
        )

    @abstractmethod
    def _table(self) -> WeightTable:
        """Return the weights that the shares are drawn from (:mod:`fedpriv.privacy.core.integer_noise`)."""

    def release(self, answer: Bounded, noise: Noising) -> Tensor:
        """Replace the clients' rows [c, d] by the decoded mean [1, d] of their noised sum."""
        from fedpriv.privacy.core.modular import Coding, aggregate

        coding = Coding(
            unit=float(answer.sensitivity) / self.cells,
            longest=self.cells,
            bound=self.sensitivity if self.rounding == VECTORS else None,
            dimension=self.dimension,
            bits=self.bits,
        )
        # One stream for the public rotation, and one for each client's share.
        rotation, *noise_streams = noise.streams
        total = aggregate(answer.values, coding, self._table(), rotation, noise_streams)
        answer.values = total.div_(answer.divided_by)[None]
        return answer.sensitivity.double() * (self.noise_multiplier / math.sqrt(self.honest))

    def describe_in_full(self) -> str:
        return (
            f"{self.name} ({self.family.replace('_', ' ')}, noise multiplier {self.noise_multiplier:g}; "
            f"{self.bits} bits for each of {self.dimension} coordinates, {self.bytes_per_client} bytes from "
            f"a client; {self.cells:.4g} steps in a clip norm; wraps around with probability <= "
            f"{self.wrap_probability:.2g} in a round)"
        )


def padded(size: int) -> int:
    """Return the power of two to which a vector of ``size`` numbers is padded."""
    return 1 << max(0, size - 1).bit_length()


def rounded_norm(cells: float, dimension: int, rounding: str) -> float:
    """Return Δ₂ in grid steps: B for ``vectors``, k + √d for ``sums``.

    Args:
        cells: k.
        dimension: d after padding.
        rounding: ``vectors`` or ``sums``.
    """
    longest = cells + math.sqrt(dimension)
    if rounding == SUMS:
        return longest + _HIDDEN * cells
    likely = cells**2 + dimension / 4.0
    likely += math.sqrt(2.0 * math.log(1.0 / BETA)) * (cells + math.sqrt(dimension) / 2.0)
    return min(longest, math.sqrt(likely))


def wrap_probability(
    family: str, cells: float, variance: float, clients: int, dimension: int, bits: int
) -> float:
    """Return the bound of the module on the probability of wrapping around, at most 1.

    Args:
        family: Distribution of the shares, ``discrete_gaussian`` or ``skellam``.
        cells: k.
        variance: Variance of one share, in squared grid steps.
        clients: n.
        dimension: d after padding.
        bits: b.
    """
    # Every client's rounding moves a coordinate by less than 1, which leaves this much room for sum
    # and noise.
    room = 2.0 ** (bits - 1) - clients
    if room <= 0:
        return 1.0
    spread = (clients * cells) ** 2 / dimension + clients * variance
    best = 0.0
    # Every λ > 0 gives a valid bound. These are around the best λ for Gaussian tails.
    for factor in _FACTORS:
        rate = factor * min(room / spread, _LARGEST_RATE)
        exponent = -rate * room + rate**2 * (clients * cells) ** 2 / (2.0 * dimension)
        # log E e^(λ share): exact for a Skellam; a bound for a discrete Gaussian, which is subgaussian.
        if family == "skellam":
            exponent += clients * (variance * (math.cosh(rate) - 1.0))
        else:
            exponent += clients * (variance * rate**2 / 2.0)
        best = min(best, exponent)
    return min(1.0, 2.0 * dimension * math.exp(best))


@lru_cache(maxsize=4096)
def largest_cells(
    family: str,
    noise_multiplier: float,
    clients: int,
    honest: int,
    dimension: int,
    bits: int,
    limit: float,
) -> float:
    """Return the finest grid k whose sums wrap around with probability ≤ ``limit`` in a round.

    Args:
        family: Distribution of the shares.
        noise_multiplier: Standard deviation of ``honest`` shares together ÷ clip norm.
        clients: n.
        honest: h.
        dimension: d after padding.
        bits: b.
        limit: The largest probability of wrapping around.

    Returns:
        k, which may be below 1; 0 if no grid keeps to the limit.
    """

    def fits(cells: float) -> bool:
        variance = (noise_multiplier * cells) ** 2 / honest
        if variance > LARGEST_SHARE**2:
            return False
        return wrap_probability(family, cells, variance, clients, dimension, bits) <= limit

    if not fits(2.0**-60):  # roundings alone may wrap around
        return 0.0
    # Double the grid until it no longer fits, halve it until it fits, then bisect.
    high = 1.0
    while fits(high) and high < _LARGEST_CELLS:
        high *= 2.0
    low = high / 2.0
    while not fits(low):
        low, high = low / 2.0, low
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
