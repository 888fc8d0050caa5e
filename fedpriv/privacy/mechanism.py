"""What is answered on one lot (or by one client), and the joint event of all of it.

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

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.names import CLIENT, REPLACE_ONE
from fedpriv.privacy.randomized_response import flip_probability
from fedpriv.privacy.sampling import Sampling, WholeData

DOUBLED = 2.0
"""Replacing a unit moves a clipped sum by up to 2C where adding one moves it by up to C."""
ONE_HOT = math.sqrt(2.0)
"""Replacing a unit moves one count of a histogram down and another up."""


@dataclass(frozen=True)
class Query:
    """One answer with Gaussian noise: ``noise_multiplier`` is noise std ÷ add/remove sensitivity.

    0 means un-noised. ``replaced``: by how many times as much replacing a unit moves the answer as
    adding one; ``by``: who adds the noise, ``client``, ``aggregator`` (trusted, simulated) or
    ``nobody`` (what was public before the first round).
    """

    name: str
    noise_multiplier: float
    replaced: float = DOUBLED
    by: str = CLIENT

    def describe(self) -> str:
        return f"{self.name}={self.noise_multiplier:.6g}"


@dataclass(frozen=True)
class RandomizedBit:
    """One bit of each client, flipped by the client with probability 1/(1 + e^ε): pure ε-DP."""

    name: str
    epsilon: float
    by = CLIENT

    def event(self) -> dp_event.DpEvent:
        """dp_accounting flips a coin with probability p and then answers at random: p = 2 · flip."""
        return dp_event.RandomizedResponseDpEvent(2.0 * flip_probability(self.epsilon), 2)

    def describe(self) -> str:
        return f"{self.name}=randomized_response({self.epsilon:.6g})"


@dataclass(frozen=True)
class Draw:
    """One lot of one client and every query answered on it. Hashable: the ledger counts draws."""

    sampling: Sampling
    queries: tuple[Query | RandomizedBit, ...]

    def event(self) -> dp_event.DpEvent:
        """The joint event of all queries (``NonPrivateDpEvent`` if one of them has no noise)."""
        joint = joint_noise_multiplier(self._multipliers())
        if joint == 0:
            return dp_event.NonPrivateDpEvent()
        if not isinstance(self.sampling, WholeData) and self._bits():
            raise FedprivError("randomized response on a sampled lot has no price here")
        bits = [q.event() for q in self._bits()]
        parts = bits if math.isinf(joint) else [self.sampling.event(joint), *bits]
        return parts[0] if len(parts) == 1 else dp_event.ComposedDpEvent(tuple(parts))

    def _bits(self) -> list[RandomizedBit]:
        return [query for query in self.queries if isinstance(query, RandomizedBit)]

    def _multipliers(self) -> Iterable[float]:
        """Of the Gaussian queries, as if each doubled its sensitivity when a unit is replaced."""
        replaces = self.sampling.neighbours == REPLACE_ONE
        for query in self.queries:
            if isinstance(query, Query):
                factor = DOUBLED / query.replaced if replaces else 1.0
                yield factor * query.noise_multiplier

    def of(self, by: str) -> Draw | None:
        """The same draw with only the queries noised by ``client`` or ``aggregator``."""
        kept = tuple(query for query in self.queries if query.by == by)
        return Draw(self.sampling, kept) if kept else None

    @property
    def unprotected(self) -> tuple[str, ...]:
        """The queries answered without noise."""
        return tuple(
            q.name for q in self.queries if isinstance(q, Query) and q.noise_multiplier == 0
        )


def joint_noise_multiplier(multipliers: Iterable[float]) -> float:
    """(Σ z_j^-2)^(-1/2); 0 as soon as one query has no noise, infinite if there is no query."""
    multipliers = list(multipliers)
    if len(multipliers) == 1:
        return multipliers[0]  # exact: no rounding through the square
    if any(z == 0 for z in multipliers):
        return 0.0
    norm = math.hypot(*(1.0 / z for z in multipliers))
    return 1.0 / norm if norm > 0 else math.inf


GRADIENT = "gradient_sum"
"""The clipped, noised sum of a lot's gradients (or of the clients' uploads); sensitivity C."""
CLIP_STATISTIC = "clip_statistic"
"""What an adaptive clipper asks of the same lot (a norm, the fraction not clipped, a histogram)."""
TRAINING_LOSS = "training_loss"
"""What a schedule may ask of the clients: the loss of the new model on their records."""
