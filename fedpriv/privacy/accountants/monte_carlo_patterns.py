"""Patterns of one client's rounds under b-min-sep sampling: α of them at once, tilted.

With P = Σ_S p(S) N(m_S, z²) over patterns S, m_S the sum of their columns, and Q = N(0, z²),

    (dP/dQ)^α Q = Z_α R_α,   Z_α = E_Q (dP/dQ)^α
    R_α: patterns S_1 … S_α with weights Π p(S_k) exp(Σ_{k<l} <m_Sk, m_Sl> / z²), then N(Σ_k m_Sk, z²)

A pattern is a Markov chain over the rounds that are left to rest. Columns b rounds apart do not overlap.
Hence α patterns are a chain over the number of them that have r rounds to rest. Z_α follows backward over
rounds, samples of R_α forward.

Sampling: Dong & Ganesh 2026 (arXiv 2602.09338).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py, xlogy


@dataclass(frozen=True)
class MinSepSampling:
    """The rounds in which clients join, and the column c that a participation adds; see ``BMinSepDpEvent``.

    Entries of c count by their absolute value. A column is not cut off at the last round, which costs at
    least as much.

    Attributes:
        rounds: n.
        separation: b; a client that took part rests for b - 1 rounds.
        rate: q, the probability that a rested client joins a round.
        warm_start: Whether clients begin as if there had been rounds before; else all of them are rested.
        column: c_0, c_1, …, at most b entries.
    """

    rounds: int
    separation: int
    rate: float
    warm_start: bool
    column: tuple[float, ...]

    @cached_property
    def taps(self) -> np.ndarray:
        """The absolute values |c| [bands]."""
        return np.abs(np.asarray(self.column, dtype=float))

    @cached_property
    def overlaps(self) -> np.ndarray:
        """Inner products <column i, column i + d> by distance d [b]; 0 beyond the bands."""
        bands = len(self.taps)
        products = [self.taps[d:] @ self.taps[: bands - d] for d in range(bands)]
        return np.pad(products, (0, self.separation - bands))

    @cached_property
    def start(self) -> np.ndarray:
        """Probability of r rounds left to rest before the first round, by r [b]."""
        if not self.warm_start:
            return np.eye(1, self.separation)[0]
        ready = 1.0 / (1.0 + (self.separation - 1) * self.rate)
        return np.r_[ready, np.full(self.separation - 1, self.rate * ready)]


class Patterns:
    """α patterns under R_α at one noise multiplier.

    Attributes:
        sampling: Who joins, and the column of a participation.
        order: α.
    """

    def __init__(self, sampling: MinSepSampling, order: int, noise_multiplier: float):
        self.sampling, self.order = sampling, order
        self._precision = 1.0 / noise_multiplier**2
        self._counts, self._next = _states(sampling.separation, order)
        # The log weight of each number of starting patterns, by state: the ways to choose them among the
        # patterns that are ready, the coins of all that are ready, and |c|² / z² for each pair that starts.
        ready, starting = self._counts[:, :1], np.arange(order + 1)
        with np.errstate(divide="ignore"):
            chosen = gammaln(ready + 1) - gammaln(starting + 1)
            chosen = chosen - gammaln(np.maximum(ready - starting, 0) + 1)
            coins = xlogy(starting, sampling.rate)
            coins = coins + xlog1py(np.maximum(ready - starting, 0), -sampling.rate)
        pairs = starting * (starting - 1) / 2 * (sampling.overlaps[0] * self._precision)
        self._log_weights = np.where(starting <= ready, chosen + coins + pairs, -np.inf)

    @cached_property
    def _log_rest(self) -> np.ndarray:
        """Log of the total weight of the rounds that follow, by round and state [n + 1, states]."""
        rounds = self.sampling.rounds
        log_rest = np.zeros((rounds + 1, len(self._counts)))
        for t in reversed(range(rounds)):
            log_rest[t] = logsumexp(self._step(t) + log_rest[t + 1][self._next], axis=1)
        return log_rest

    def _step(self, round_index: int) -> np.ndarray:
        """Return the log weight of each number of patterns that start in a round, by state [states, α + 1].

        Patterns that rest from the start of the run have no earlier column that could overlap.
        """
        b = self.sampling.separation
        since = b - np.arange(1, b)  # rounds since a client with r to rest took part
        overlap = np.where(since <= round_index, self.sampling.overlaps[since], 0.0)
        overlap = (self._counts[:, 1:] @ overlap) * self._precision
        return self._log_weights + np.arange(self.order + 1) * overlap[:, None]

    @cached_property
    def _log_start(self) -> np.ndarray:
        logs = gammaln(self.order + 1) - gammaln(self._counts + 1).sum(axis=1)
        with np.errstate(divide="ignore"):
            return logs + xlogy(self._counts, self.sampling.start).sum(axis=1)

    @cached_property
    def log_total(self) -> float:
        """The number log Z_α."""
        return float(logsumexp(self._log_start + self._log_rest[0]))

    def sample(self, stream: np.random.Generator, samples: int) -> np.ndarray:
        """Return how many of the α patterns begin a participation in each round [n, samples] (int8)."""
        rounds = self.sampling.rounds
        first = np.cumsum(np.exp(self._log_start + self._log_rest[0] - self.log_total))
        state = np.searchsorted(first, stream.random(samples) * first[-1], side="right")
        state = np.minimum(state, len(first) - 1)
        starts = np.zeros((rounds, samples), dtype=np.int8)
        for t in range(rounds):
            logs = self._step(t) + self._log_rest[t + 1][self._next]
            below = np.cumsum(np.exp(logs - self._log_rest[t][:, None]), axis=1)
            # Most draws are 0. Only the others are compared with further cumulated probabilities.
            drawn = stream.random(samples)
            starting = np.flatnonzero(drawn >= below[state, 0])
            count = np.ones(len(starting), dtype=np.int64)
            for k in range(1, self.order):
                count += drawn[starting] >= below[state[starting], k]
            count = np.minimum(
                count, self._counts[state[starting], 0]
            )  # rounding may leave the last cumulated probability below 1
            starts[t, starting] = count
            after = self._next[state, 0]
            after[starting] = self._next[state[starting], count]
            state = after
        return starts


def _states(separation: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the states of α patterns and the transitions between them.

    Returns:
        The number of patterns with r rounds to rest, by state [states, b]; the next state by the number of
        rested patterns that begin a participation [states, α + 1].
    """
    chosen = np.array(list(combinations_with_replacement(range(separation), order)))
    counts = np.zeros((len(chosen), separation), dtype=np.int64)
    np.add.at(counts, (np.arange(len(chosen))[:, None], chosen), 1)
    index_of = {row.tobytes(): i for i, row in enumerate(counts)}
    after = np.zeros((len(counts), order + 1), dtype=np.int64)
    for starting in range(order + 1):
        able = np.flatnonzero(counts[:, 0] >= starting)
        moved = np.roll(counts[able], -1, axis=1)  # one round less to rest
        moved[:, -1] -= counts[able, 0]
        moved[:, 0] += counts[able, 0] - starting
        moved[:, -1] += starting
        after[able, starting] = [index_of[row.tobytes()] for row in moved]
    return counts, after


MOST_STATES, MOST_NUMBERS, MOST_ORDER = 12_000, 6_000_000, 24
"""Limits of a chain: its states; states × rounds; α."""


def best_patterns(
    sampling: MinSepSampling, noise_multiplier: float, delta: float = 1e-5
) -> Patterns:
    """Return the patterns of the order α whose largest weight reaches δ at the smallest ε.

    Orders are tried upwards from 1 until ε rises, α is ``MOST_ORDER``, or the chain would have more states
    than the limits of this module allow. The choice does not depend on samples, so that it does not bias
    them.

    Args:
        sampling: Who joins, and the column of a participation.
        noise_multiplier: z.
        delta: δ that the orders are compared at.
    """
    best = Patterns(sampling, 1, noise_multiplier)
    least = math.inf
    for order in range(2, MOST_ORDER + 1):
        states = math.comb(sampling.separation + order - 1, order)
        if states > MOST_STATES or states * sampling.rounds > MOST_NUMBERS:
            break
        patterns = Patterns(sampling, order, noise_multiplier)
        tilt = order - 1
        epsilon = (patterns.log_total + log_peak(tilt) - math.log(delta)) / tilt
        if epsilon > least:
            break
        best, least = patterns, epsilon
    return best


def log_peak(tilt: int) -> float:
    """Return the log of the largest value of e^(-tilt x) (1 - e^-x) over x > 0."""
    return tilt * math.log(tilt / (1.0 + tilt)) - math.log1p(tilt) if tilt else 0.0
