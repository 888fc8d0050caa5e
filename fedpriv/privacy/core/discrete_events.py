"""Events of sums with discrete noise, and their Rényi divergences.

The bounds hold for vectors of whole numbers, whose L1 norm is at most min(√d Δ₂, Δ₂²), under the adjacency
that ``l2_sensitivity`` refers to. The mechanisms are :mod:`fedpriv.privacy.mechanisms.discrete_gaussian` and
``skellam``.
"""

# There is no "from __future__ import annotations" here, because core.events reads the types of the fields.
import math

import attr
import numpy as np
from dp_accounting import dp_event


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianSharesDpEvent(dp_event.DpEvent):
    """Sum with discrete Gaussian noise that several clients add in shares.

    Source: Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning
    with secure aggregation", ICML (arXiv 2102.06387).

    Attributes:
        l2_sensitivity: Δ₂, in steps of the grid.
        variance: σ² of each share.
        shares: Number of shares in the sum.
        dimension: d, the length of the vector.
    """

    l2_sensitivity: float
    variance: float
    shares: int
    dimension: int

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return the Rényi divergence at each of ``orders`` [n].

        With σ_n² = shares · σ², Δ₁ the largest L1 norm and τ of :func:`tau_of`, the RDP at α is the least of

            α Δ₂²/(2σ_n²) + τ d
            α/2 (Δ₂²/σ_n² + 2 τ Δ₁/σ_n + τ² d)
            α/2 (Δ₂/σ_n + τ √d)²
        """
        if self.variance < 0.5:  # the theorem assumes σ² ≥ ½
            return np.full(len(orders), math.inf)
        root, d = math.sqrt(self.dimension), self.dimension
        ratio = self.l2_sensitivity / math.sqrt(self.shares * self.variance)
        l1 = l1_of(self.l2_sensitivity, d) / math.sqrt(self.shares * self.variance)
        tau = tau_of(self.variance, self.shares)
        half = orders / 2.0
        return np.minimum(
            half * ratio**2 + tau * d,
            half * min(ratio**2 + 2.0 * l1 * tau + tau**2 * d, (ratio + root * tau) ** 2),
        )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamSharesDpEvent(dp_event.DpEvent):
    """Sum with Skellam noise.

    Source: Agarwal, Kairouz, Liu 2021, "The Skellam mechanism for differentially private federated learning",
    NeurIPS (arXiv 2110.04995).

    Attributes:
        l2_sensitivity: Δ₂, in steps of the grid.
        variance: μ, the variance of the noise in the sum.
        dimension: d, the length of the vector.
    """

    l2_sensitivity: float
    variance: float
    dimension: int

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return the Rényi divergence at each of ``orders`` [n]; orders are rounded up to whole numbers.

        With the variance μ, the largest L1 norm Δ₁ (:func:`l1_of`) and a whole order α, the RDP is at most

            α Δ₂²/(2μ) + min( ((2α - 1) Δ₂² + 6 Δ₁)/(4μ²), 3 Δ₁/(2μ) )
        """
        alpha, mu = np.ceil(orders), self.variance
        square, l1 = self.l2_sensitivity**2, l1_of(self.l2_sensitivity, self.dimension)
        more = np.minimum(
            ((2.0 * alpha - 1.0) * square + 6.0 * l1) / (4.0 * mu**2), 3.0 * l1 / (2.0 * mu)
        )
        return alpha * square / (2.0 * mu) + more


DISCRETE = (DiscreteGaussianSharesDpEvent, SkellamSharesDpEvent)


def l1_of(l2: float, dimension: int) -> float:
    """Return the largest L1 norm of a vector of whole numbers whose L2 norm is at most ``l2``.

    It is at most √``dimension`` times the L2 norm, and at most its square, as |x| ≤ x² for whole numbers.

    Args:
        l2: The L2 norm.
        dimension: Length of the vector.
    """
    return min(math.sqrt(dimension) * l2, l2 * l2)


def tau_of(variance: float, shares: int) -> float:
    """Return τ, the distance of a sum of discrete Gaussians from one discrete Gaussian.

        τ = 10 Σ_{k=1}^{shares-1} exp(-2π² σ² k/(k + 1))

    Args:
        variance: σ² of each share.
        shares: Number of shares in the sum; τ is 0 for one share.
    """
    k = np.arange(1.0, shares)
    return 10.0 * float(np.exp(-2.0 * math.pi**2 * variance * k / (k + 1.0)).sum())


def discrete_together(event: dp_event.DpEvent) -> bool:
    """Return whether the event is a composition of discrete events on one sample."""
    composed = isinstance(event, dp_event.ComposedDpEvent)
    return composed and all(isinstance(part, DISCRETE) for part in event.events)
