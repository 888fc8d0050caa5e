"""Shares of Skellam noise.

Each client adds the difference of two Poissons of mean μ/2 (variance μ) to each coordinate. The sum of h
shares is a Skellam of variance hμ, exactly. For integers α > 1 (corollary 3.6), with μ of the sum,

    ε(α) ≤ α Δ₂²/(2μ) + min{ ((2α - 1) Δ₂² + 6Δ₁) / (4μ²),  3Δ₁ / (2μ) }

Any other order costs at most what the next integer order costs.

Source: Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially private federated learning", NeurIPS
2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.privacy.core.discrete_events import SkellamSharesDpEvent
from fedpriv.privacy.core.integer_noise import WeightTable, skellam
from fedpriv.privacy.mechanisms.discrete import DiscreteQuery

FAMILY = "skellam"


@dataclass(frozen=True)
class SkellamQuery(DiscreteQuery):
    """Secure sum with shares of Skellam noise; see :class:`DiscreteQuery` for the attributes."""

    family = FAMILY

    def event(self) -> dp_event.DpEvent:
        return SkellamSharesDpEvent(self.sensitivity, self.variance * self.honest, self.dimension)

    def _table(self) -> WeightTable:
        return skellam(self.variance)
