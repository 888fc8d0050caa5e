"""Randomized response on one bit per client (Warner 1965): pure ε-local differential privacy.

Each client flips its bit with probability f = 1/(1 + e^ε), so that the probabilities of an answer under the
two bits differ by a factor of at most e^ε. Of n clients, k of which hold a one, the server counts X ones, and

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
    """One bit of each client, which the client flips with probability 1/(1 + e^ε): pure ε-DP.

    The answer is Σ (bit - ½) over the clients.

    Attributes:
        name: Name of the answer in the ledger.
        epsilon: ε of one bit.

    Example:
        >>> RandomizedBit("clip_statistic", epsilon=1.0).describe()
        'clip_statistic=randomized_response(1)'
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
        """Return the randomized response of dp_accounting with p = 2 f.

        There, a coin of probability p decides whether the answer is random, so that a bit changes with
        probability p/2.
        """
        return dp_event.RandomizedResponseDpEvent(2.0 * flip_probability(self.epsilon), 2)

    def release(self, answer: Bounded, noise: Noising) -> None:
        half = noise.shares / 2.0
        ones = round(float(answer.values) + half)
        (stream,) = noise.streams
        answer.values.fill_(noised_count(ones, noise.shares, self.epsilon, stream) - half)

    def describe(self) -> str:
        return f"{self.name}=randomized_response({self.epsilon:.6g})"


def flip_probability(epsilon: float) -> float:
    """Return f = 1/(1 + e^ε), in (0, ½)."""
    return 1.0 / (1.0 + math.exp(epsilon))


def noised_count(
    ones: int, total: int, epsilon: float, stream: Stream | np.random.Generator
) -> float:
    """Return k̂, an unbiased estimate of the number of ones from flipped bits.

    The count does not depend on the order of the bits, so the ones come first.

    Args:
        ones: k, the true number of ones.
        total: n, the number of clients.
        epsilon: ε of one bit.
        stream: Source of the n uniform numbers.
    """
    flip = flip_probability(epsilon)
    bits = np.arange(total) < ones
    counted = np.count_nonzero(bits ^ (stream.random(total) < flip))
    return (counted - total * flip) / (1.0 - 2.0 * flip)
