"""Shares of discrete Gaussian noise.

Each client adds N_Z(0, σ²), P(x) ∝ exp(-x²/(2σ²)) on integers, to each of d coordinates. The sum of h shares
is close to N_Z(0, hσ²), up to τ, and has the Rényi divergence (proposition 14), the smallest of

    α Δ₂²/(2hσ²) + τ d,   (α/2) (Δ₂²/(hσ²) + 2τΔ₁/(√h σ) + τ²d),   (α/2) (Δ₂/(√h σ) + τ√d)²

    τ = 10 Σ_{k=1}^{h-1} exp(-2π²σ² k/(k+1)),     σ² ≥ ½

Source: Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation", ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.privacy.core.discrete_events import DiscreteGaussianSharesDpEvent
from fedpriv.privacy.core.integer_noise import WeightTable, discrete_gaussian
from fedpriv.privacy.mechanisms.discrete import DiscreteQuery

FAMILY = "discrete_gaussian"


@dataclass(frozen=True)
class DiscreteGaussianQuery(DiscreteQuery):
    """Secure sum with shares of discrete Gaussian noise; see :class:`DiscreteQuery` for the attributes."""

    family = FAMILY

    def event(self) -> dp_event.DpEvent:
        return DiscreteGaussianSharesDpEvent(
            self.sensitivity, self.variance, self.honest, self.dimension
        )

    def _table(self) -> WeightTable:
        return discrete_gaussian(self.variance)
