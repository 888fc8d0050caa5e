"""The rounds in which one client may take part, over which sensitivity is maximised.

A pattern is a set of rounds; a participation is the set of patterns that are allowed:

once_per_epoch(b)      at most one round of every b: [0, b), [b, 2b), …
min_separation(b, k)   rounds at least b apart
cyclic(b)              rounds that are a multiple of b apart

each with at most k rounds. Every subset of a pattern is a pattern too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

NEVER = -1
"""Value of a client's last round before it has taken part in any."""


@dataclass(frozen=True)
class Participation(ABC):
    """A set of patterns of rounds.

    Attributes:
        separation: b.
        most: k, the largest number of rounds of a client; None for no limit.
    """

    separation: int
    most: int | None = None
    _rule: ClassVar[str]  # the participation in words, with a place for b

    @property
    def apart(self) -> int:
        """Smallest distance of two rounds of a pattern."""
        return self.separation

    @abstractmethod
    def together(self, rounds: int) -> np.ndarray:
        """Return whether two different rounds may be in one pattern, bool [n, n] for n = ``rounds``."""

    @abstractmethod
    def largest(self, weights: np.ndarray) -> np.ndarray:
        """Return the largest sum of ``weights`` [..., n], all ≥ 0, over a pattern [...]."""

    @abstractmethod
    def may(self, round_index: int, last: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Return whether each client may take part in a round [K].

        Args:
            round_index: The round.
            last: The last round of each client [K]; :data:`NEVER` for none.
            count: Number of rounds of each client so far [K].
        """

    def describe(self) -> str:
        """Describe the participation for the ledger."""
        most = "" if self.most is None else f", at most {self.most} rounds of a client"
        return self._rule.format(self.separation) + most

    def times(self, rounds: int) -> int:
        """Return the largest number of ``rounds`` rounds in which a client can take part."""
        blocks = -(-rounds // self.separation)
        return blocks if self.most is None else min(blocks, self.most)

    def _left(self, count: np.ndarray) -> np.ndarray:
        return np.ones(len(count), dtype=bool) if self.most is None else count < self.most

    def _blocks(self, weights: np.ndarray) -> np.ndarray:
        """Return ``weights`` [..., n] in blocks of b rounds [..., blocks, b], filled up with zeros."""
        rounds = weights.shape[-1]
        missing = -rounds % self.separation
        padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])
        return padded.reshape(*weights.shape[:-1], -1, self.separation)

    def _largest_few(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the k largest values along the last axis."""
        if self.most is None or self.most >= values.shape[-1]:
            return values.sum(axis=-1)
        if self.most == 0:
            return np.zeros(values.shape[:-1])
        return np.partition(values, -self.most, axis=-1)[..., -self.most :].sum(axis=-1)


@dataclass(frozen=True)
class MinSeparation(Participation):
    """Rounds at least b apart, at most k of them (Choquette-Choo et al. 2023, arXiv 2306.08153)."""

    _rule = "rounds of a client at least {} apart"

    def together(self, rounds: int) -> np.ndarray:
        index = np.arange(rounds)
        return np.abs(index[:, None] - index) >= self.separation

    def largest(self, weights: np.ndarray) -> np.ndarray:
        """Return the largest sum over a pattern, by dynamic programming.

        best[i] = max(best[i + 1], w_i + best[i + b] with one round less)
        """
        rounds = weights.shape[-1]
        best = np.zeros((*weights.shape[:-1], rounds + self.separation))
        blocks = -(-rounds // self.separation)
        if self.most is None or self.most >= blocks:  # the limit k does not matter
            for i in range(rounds - 1, -1, -1):
                taken = weights[..., i] + best[..., i + self.separation]
                best[..., i] = np.maximum(best[..., i + 1], taken)
            return best[..., 0]
        for _ in range(self.most):
            best[..., :rounds] = weights + best[..., self.separation :]
            best = np.maximum.accumulate(best[..., ::-1], axis=-1)[..., ::-1]
        return best[..., 0]

    def may(self, round_index: int, last: np.ndarray, count: np.ndarray) -> np.ndarray:
        rested = (last == NEVER) | (round_index - last >= self.separation)
        return rested & self._left(count)


@dataclass(frozen=True)
class Cyclic(Participation):
    """Rounds that are a multiple of b apart: groups of clients in a fixed order, again and again."""

    _rule = "rounds of a client a multiple of {} apart"

    def together(self, rounds: int) -> np.ndarray:
        index = np.arange(rounds)
        apart = index[:, None] - index
        return (apart % self.separation == 0) & (apart != 0)

    def largest(self, weights: np.ndarray) -> np.ndarray:
        return self._largest_few(np.swapaxes(self._blocks(weights), -1, -2)).max(axis=-1)

    def may(self, round_index: int, last: np.ndarray, count: np.ndarray) -> np.ndarray:
        turn = (last == NEVER) | (
            (round_index > last) & ((round_index - last) % self.separation == 0)
        )
        return turn & self._left(count)


@dataclass(frozen=True)
class OncePerEpoch(Participation):
    """At most one round in each epoch of b rounds, where each epoch has an order of its own."""

    _rule = "one round of a client in every {}"

    @property
    def apart(self) -> int:
        return 1  # the last round of an epoch and the first of the next are neighbours

    def together(self, rounds: int) -> np.ndarray:
        epoch = np.arange(rounds) // self.separation
        return epoch[:, None] != epoch

    def largest(self, weights: np.ndarray) -> np.ndarray:
        return self._largest_few(self._blocks(weights).max(axis=-1))

    def may(self, round_index: int, last: np.ndarray, count: np.ndarray) -> np.ndarray:
        elsewhere = (last == NEVER) | (last // self.separation < round_index // self.separation)
        return elsewhere & self._left(count)
