"""Randomized response on one bit per client (Warner 1965): pure ε-local differential privacy.

Each client flips its bit with probability f = 1/(1 + e^ε), so that the two answers differ in
probability by a factor e^ε at most. Of n clients with k ones the server counts X ones, and

    k̂ = (X - n f) / (1 - 2f),   E k̂ = k,   Var k̂ = n f (1 - f) / (1 - 2f)²
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError
from fedpriv.common.secret_streams import Stream
from fedpriv.privacy.core.names import CLIENT
from fedpriv.privacy.mechanisms.bounded import DOUBLED
from fedpriv.privacy.mechanisms.query import Noising, Query

if TYPE_CHECKING:
    from fedpriv.privacy.mechanisms.bounded import Bounded


@dataclass(frozen=True)
class RandomizedBit(Query):
    """One bit of each client, flipped by the client with probability 1/(1 + e^ε): pure ε-DP.

    Its answer is Σ (bit - ½) over the clients.
    """

    name: str
    epsilon: float
    by = CLIENT
    replaced = DOUBLED
    protects = True

    @property
    def purpose_of_all(self) -> str:
        return self.name

    def noised_by(self, by: str) -> RandomizedBit:
        if by == CLIENT:
            return self
        raise ConfigError(
            "clipper.bit_mechanism", "randomized_response", "gaussian with a trusted server"
        )

    def event(self) -> dp_event.DpEvent:
        """dp_accounting flips a coin with probability p and then answers at random: p = 2 · flip."""
        return dp_event.RandomizedResponseDpEvent(2.0 * flip_probability(self.epsilon), 2)

    def release(self, answer: Bounded, noise: Noising) -> None:
        half = noise.shares / 2.0
        ones = round(float(answer.values) + half)
        (stream,) = noise.streams
        answer.values.fill_(noised_count(ones, noise.shares, self.epsilon, stream) - half)

    def describe(self) -> str:
        return f"{self.name}=randomized_response({self.epsilon:.6g})"


def flip_probability(epsilon: float) -> float:
    """f = 1/(1 + e^ε), in (0, ½)."""
    return 1.0 / (1.0 + math.exp(epsilon))


def noised_count(
    ones: int, total: int, epsilon: float, stream: Stream | np.random.Generator
) -> float:
    """k̂, an unbiased estimate of ``ones`` = k from the flipped bits of ``total`` = n clients.

    Whose bit is whose does not matter for the count: the ones come first.
    """
    flip = flip_probability(epsilon)
    bits = np.arange(total) < ones
    counted = np.count_nonzero(bits ^ (stream.random(total) < flip))
    return (counted - total * flip) / (1.0 - 2.0 * flip)
