"""Shares of Skellam noise (Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially private federated
learning", NeurIPS 2021).

Each client adds the difference of two Poissons of mean μ/2 (variance μ) to each coordinate. The sum of h of
them is a Skellam of variance hμ, exactly. For whole α > 1 (corollary 3.6), with μ of the sum,

    ε(α) ≤ α Δ₂²/(2μ) + min{ ((2α - 1) Δ₂² + 6Δ₁) / (4μ²),  3Δ₁ / (2μ) }

Another order costs at most what the next whole one does.
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
    """A sum with shares of Skellam noise."""

    family = FAMILY

    def event(self) -> dp_event.DpEvent:
        return SkellamSharesDpEvent(self.sensitivity, self.variance * self.honest, self.dimension)

    def _table(self) -> WeightTable:
        return skellam(self.variance)
