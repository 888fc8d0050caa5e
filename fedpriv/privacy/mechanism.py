"""What one client answers on one lot, and the joint event of all of it.

Gaussian queries with noise multipliers z_1, z_2, … on the *same* lot are one query with

    z = (Σ_j z_j^-2)^(-1/2)

inside the sampling (the stacked vector has that multiplier); two separately sampled events would
understate it, because they would count two independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.privacy.sampling import Sampling


@dataclass(frozen=True)
class Query:
    """One answer: ``noise_multiplier`` is noise std ÷ L2 sensitivity; 0 means un-noised."""

    name: str
    noise_multiplier: float


@dataclass(frozen=True)
class Draw:
    """One lot of one client and every query answered on it. Hashable: the ledger counts draws."""

    sampling: Sampling
    queries: tuple[Query, ...]

    def event(self) -> dp_event.DpEvent:
        """The joint event of all queries (``NonPrivateDpEvent`` if one of them has no noise)."""
        joint = joint_noise_multiplier(query.noise_multiplier for query in self.queries)
        return self.sampling.event(joint) if joint > 0 else dp_event.NonPrivateDpEvent()

    @property
    def unprotected(self) -> tuple[str, ...]:
        """The queries answered without noise."""
        return tuple(q.name for q in self.queries if q.noise_multiplier == 0)


def joint_noise_multiplier(multipliers: Iterable[float]) -> float:
    """(Σ z_j^-2)^(-1/2); 0 as soon as one query has no noise."""
    multipliers = list(multipliers)
    if len(multipliers) == 1:
        return multipliers[0]  # exact: no rounding through the square
    if any(z == 0 for z in multipliers):
        return 0.0
    return 1.0 / math.hypot(*(1.0 / z for z in multipliers))


GRADIENT = "gradient_sum"
"""The clipped, noised sum of a lot's gradients; sensitivity C."""
CLIP_STATISTIC = "clip_statistic"
"""What an adaptive clipper asks of the same lot (a norm, or the fraction not clipped)."""
