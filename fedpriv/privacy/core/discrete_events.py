"""Events of sums with noise of whole numbers, and their Rényi divergences.

The formulas are in :mod:`fedpriv.privacy.mechanisms.discrete_gaussian` and ``skellam``. They hold for the
adjacency under which ``l2_sensitivity`` does, and for vectors of whole numbers, whose L1 norm is at most
min(√d Δ₂, Δ₂²).
"""

# no "from __future__ import annotations": the fields' types are read by fedpriv.privacy.core.events
import math

import attr
import numpy as np
from dp_accounting import dp_event


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianSharesDpEvent(dp_event.DpEvent):
    """The sum of ``shares`` discrete Gaussians of σ² = ``variance`` each, on ``dimension`` numbers."""

    l2_sensitivity: float
    variance: float
    shares: int
    dimension: int

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Rényi divergences at ``orders`` [n]."""
        if self.variance < 0.5:  # the theorem is about σ² ≥ ½
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
    """Skellam noise, of ``variance`` μ in the sum, on each of ``dimension`` numbers."""

    l2_sensitivity: float
    variance: float
    dimension: int

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Rényi divergences at ``orders`` [n]."""
        alpha, mu = np.ceil(orders), self.variance
        square, l1 = self.l2_sensitivity**2, l1_of(self.l2_sensitivity, self.dimension)
        more = np.minimum(
            ((2.0 * alpha - 1.0) * square + 6.0 * l1) / (4.0 * mu**2), 3.0 * l1 / (2.0 * mu)
        )
        return alpha * square / (2.0 * mu) + more


DISCRETE = (DiscreteGaussianSharesDpEvent, SkellamSharesDpEvent)


def l1_of(l2: float, dimension: int) -> float:
    """The largest L1 norm of a vector of whole numbers of L2 norm at most ``l2``."""
    return min(math.sqrt(dimension) * l2, l2 * l2)


def tau_of(variance: float, shares: int) -> float:
    """τ: how far the sum of discrete Gaussians is from one."""
    k = np.arange(1.0, shares)
    return 10.0 * float(np.exp(-2.0 * math.pi**2 * variance * k / (k + 1.0)).sum())


def discrete_together(event: dp_event.DpEvent) -> bool:
    """Whether it is several of these on one sample."""
    composed = isinstance(event, dp_event.ComposedDpEvent)
    return composed and all(isinstance(part, DISCRETE) for part in event.events)
