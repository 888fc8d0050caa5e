"""Joint queries: all queries answered on one sample, and their joint event.

Gaussian queries with noise multipliers z_1, z_2, … on the *same* sample are one query with

    z = (Σ_j z_j^-2)^(-1/2)

inside the sampling, because the stacked vector has that multiplier. Two events that are sampled separately
would understate the cost, because they would count two independent samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import Sampling, WholeData
from fedpriv.privacy.mechanisms.bounded import DOUBLED
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.query import Query

GRADIENT = "gradient_sum"
"""Name of the clipped, noised sum of a lot's gradients (or of the clients' uploads); sensitivity C."""
CLIP_STATISTIC = "clip_statistic"
"""Name of an adaptive clipper's statistic of the same lot (a norm, the fraction not clipped, a histogram)."""
TRAINING_LOSS = "training_loss"
"""Name of the loss of the new model on the clients' records, which a schedule may ask for."""

FEATURE_STATISTICS = "feature_statistics"
"""Name of the statistics of their records that clients may release once, before the first round."""


@dataclass(frozen=True)
class JointQuery:
    """One sample of one participant and every query answered on this sample.

    A joint query is hashable: the ledger counts releases by it.

    Attributes:
        sampling: How the sample is drawn, which also gives the amplification and the adjacency.
        queries: Queries answered on the sample, the gradient's first.

    Example:
        >>> from fedpriv.privacy.core.sampling import WholeData
        >>> gradient, bits = GaussianQuery(GRADIENT, 2.0), GaussianQuery(CLIP_STATISTIC, 2.0)
        >>> joint = JointQuery(WholeData("add_or_remove"), (gradient, bits))
        >>> round(joint.noise_multiplier, 6)  # 2/√2
        1.414214
    """

    sampling: Sampling
    queries: tuple[Query, ...]

    def event(self) -> dp_event.DpEvent:
        """Return the joint event of all queries, or ``NonPrivateDpEvent`` if one query has no noise.

        Raises:
            ConfigError: A query with other than Gaussian noise is answered on a sampled lot, which no theorem
                used here prices.
        """
        return _event(self)

    @property
    def noise_multiplier(self) -> float:
        """Joint noise multiplier (Σ_j z_j^-2)^(-1/2) of the Gaussian queries; infinite if there are none."""
        return joint_noise_multiplier(_multipliers(self))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the queries."""
        return frozenset(query.name for query in self.queries)

    def query(self, name: str) -> Query:
        """Return the query of that name.

        Raises:
            KeyError: No query has that name.
        """
        for query in self.queries:
            if query.name == name:
                return query
        raise KeyError(f"{name} is not among {', '.join(sorted(self.names))}")

    def only(self, *names: str) -> JointQuery:
        """Return the same sample with only the queries of these names."""
        return JointQuery(self.sampling, tuple(q for q in self.queries if q.name in names))

    def noised_by(self, by: str) -> JointQuery | None:
        """Return the same sample with only the queries that ``by`` noises, or None if there are none.

        Args:
            by: ``client`` or ``aggregator``.
        """
        queries = tuple(query for query in self.queries if query.by == by)
        return JointQuery(self.sampling, queries) if queries else None

    @property
    def unprotected(self) -> tuple[str, ...]:
        """Names of the queries answered without noise."""
        return tuple(query.name for query in self.queries if not query.protects)


@lru_cache(maxsize=4096)  # asked for in every round, and the same in most
def _event(joint: JointQuery) -> dp_event.DpEvent:
    multiplier = joint.noise_multiplier
    if multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    # Queries such as randomized bits, whose cost is known without sampling only.
    not_gaussian = [query for query in joint.queries if not isinstance(query, GaussianQuery)]
    if not_gaussian and not isinstance(joint.sampling, WholeData):
        names = " and ".join(query.describe() for query in not_gaussian)
        raise ConfigError(f"{names} on a sampled lot has no known privacy cost; use Gaussian noise")
    parts = [query.event() for query in not_gaussian]
    if not math.isinf(multiplier):
        parts.insert(0, joint.sampling.event(multiplier))
    return parts[0] if len(parts) == 1 else dp_event.ComposedDpEvent(tuple(parts))


def _multipliers(joint: JointQuery) -> Iterable[float]:
    """Iterate over the multipliers of the Gaussian queries, scaled to the adjacency of the sampling.

    Events for replace-one adjacency presume that replacing a unit doubles the sensitivity. A query that moves
    less (r < 2) has the larger multiplier 2/r · z there.
    """
    replaces = joint.sampling.neighbours == REPLACE_ONE
    for query in joint.queries:
        if isinstance(query, GaussianQuery):
            factor = DOUBLED / query.replaced if replaces else 1.0
            yield factor * query.noise_multiplier


def joint_noise_multiplier(multipliers: Iterable[float]) -> float:
    """Return (Σ_j z_j^-2)^(-1/2).

    Args:
        multipliers: z_j ≥ 0 of each query on the same sample.

    Returns:
        The joint multiplier: 0 as soon as one query has no noise, infinite if there is no query.

    Example:
        >>> joint_noise_multiplier([3.0, 4.0])
        2.4000000000000004
    """
    multipliers = list(multipliers)
    if len(multipliers) == 1:
        return multipliers[0]  # exact: no rounding through the square
    if any(z == 0 for z in multipliers):
        return 0.0
    norm = math.hypot(*(1.0 / z for z in multipliers))
    return 1.0 / norm if norm > 0 else math.inf
