"""When one client takes part under b-min-sep sampling, α times over: the tilted distribution of its patterns.

With P = Σ_S p(S) N(m_S, z²) over patterns S, m_S the sum of their columns, and Q = N(0, z²),

    (dP/dQ)^α Q = Z_α R_α,   Z_α = E_Q (dP/dQ)^α
    R_α: patterns S_1 … S_α with weights Π p(S_k) exp(Σ_{k<l} <m_Sk, m_Sl> / z²), then N(Σ_k m_Sk, z²)

A pattern is a Markov chain (rounds left to rest), and columns b rounds apart do not meet, so α patterns are a
chain over how many of them have r rounds to rest: Z_α follows backward over rounds, samples of R_α forward.
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
    """Who joins, and the column c that a participation adds: see ``BMinSepDpEvent``. Entries of c count by
    their absolute value; a column is not cut off at the last round, which costs at least as much."""

    rounds: int
    separation: int
    rate: float
    warm_start: bool
    column: tuple[float, ...]

    @cached_property
    def taps(self) -> np.ndarray:
        """|c| [bands]."""
        return np.abs(np.asarray(self.column, dtype=float))

    @cached_property
    def overlaps(self) -> np.ndarray:
        """<column i, column i + d> by d [b], 0 beyond the bands."""
        bands = len(self.taps)
        found = [self.taps[d:] @ self.taps[: bands - d] for d in range(bands)]
        return np.pad(found, (0, self.separation - bands))

    @cached_property
    def start(self) -> np.ndarray:
        """The probability of r rounds left to rest before the first round [b]."""
        if not self.warm_start:
            return np.eye(1, self.separation)[0]
        ready = 1.0 / (1.0 + (self.separation - 1) * self.rate)
        return np.r_[ready, np.full(self.separation - 1, self.rate * ready)]


class Patterns:
    """α patterns under R_α, at noise multiplier z."""

    def __init__(self, sampling: MinSepSampling, order: int, noise_multiplier: float):
        self.sampling, self.order = sampling, order
        self._precision = 1.0 / noise_multiplier**2
        self._counts, self._next = _states(sampling.separation, order)
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
        """log of the total weight of what follows, by round and state [n + 1, states]."""
        rounds = self.sampling.rounds
        found = np.zeros((rounds + 1, len(self._counts)))
        for t in reversed(range(rounds)):
            found[t] = logsumexp(self._step(t) + found[t + 1][self._next], axis=1)
        return found

    def _step(self, round_index: int) -> np.ndarray:
        """log weight of so many starting in a round, by state [states, α + 1]; those that rest from the
        start of the run have no column that could be met."""
        b = self.sampling.separation
        since = b - np.arange(1, b)  # rounds since a client with r to rest took part
        met = np.where(since <= round_index, self.sampling.overlaps[since], 0.0)
        met = (self._counts[:, 1:] @ met) * self._precision
        return self._log_weights + np.arange(self.order + 1) * met[:, None]

    @cached_property
    def _log_start(self) -> np.ndarray:
        logs = gammaln(self.order + 1) - gammaln(self._counts + 1).sum(axis=1)
        with np.errstate(divide="ignore"):
            return logs + xlogy(self._counts, self.sampling.start).sum(axis=1)

    @cached_property
    def log_total(self) -> float:
        """log Z_α."""
        return float(logsumexp(self._log_start + self._log_rest[0]))

    def sample(self, stream: np.random.Generator, samples: int) -> np.ndarray:
        """How many of the α patterns begin a participation in each round [n, samples] (int8)."""
        rounds = self.sampling.rounds
        first = np.cumsum(np.exp(self._log_start + self._log_rest[0] - self.log_total))
        state = np.searchsorted(first, stream.random(samples) * first[-1], side="right")
        state = np.minimum(state, len(first) - 1)
        starts = np.zeros((rounds, samples), dtype=np.int8)
        for t in range(rounds):
            logs = self._step(t) + self._log_rest[t + 1][self._next]
            below = np.cumsum(np.exp(logs - self._log_rest[t][:, None]), axis=1)
            drawn = stream.random(samples)
            some = np.flatnonzero(drawn >= below[state, 0])
            count = np.ones(len(some), dtype=np.int64)
            for k in range(1, self.order):
                count += drawn[some] >= below[state[some], k]
            count = np.minimum(count, self._counts[state[some], 0])  # a sum may end below 1
            starts[t, some] = count
            after = self._next[state, 0]
            after[some] = self._next[state[some], count]
            state = after
        return starts


def _states(separation: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """(how many patterns have r rounds to rest, by state [states, b]; the next state when so many that need
    not rest begin a participation [states, α + 1])."""
    chosen = np.array(list(combinations_with_replacement(range(separation), order)))
    counts = np.zeros((len(chosen), separation), dtype=np.int64)
    np.add.at(counts, (np.arange(len(chosen))[:, None], chosen), 1)
    place = {row.tobytes(): i for i, row in enumerate(counts)}
    after = np.zeros((len(counts), order + 1), dtype=np.int64)
    for starting in range(order + 1):
        able = np.flatnonzero(counts[:, 0] >= starting)
        moved = np.roll(counts[able], -1, axis=1)  # one round less to rest
        moved[:, -1] -= counts[able, 0]
        moved[:, 0] += counts[able, 0] - starting
        moved[:, -1] += starting
        after[able, starting] = [place[row.tobytes()] for row in moved]
    return counts, after


MOST_STATES, MOST_NUMBERS, MOST_ORDER = 12_000, 6_000_000, 24
"""Of a chain: states, states × rounds; α."""


def best_patterns(
    sampling: MinSepSampling, noise_multiplier: float, delta: float = 1e-5
) -> Patterns:
    """Those of the order whose largest weight is δ at the least ε: none of it depends on samples."""
    best = Patterns(sampling, 1, noise_multiplier)
    least = math.inf
    for order in range(2, MOST_ORDER + 1):
        states = math.comb(sampling.separation + order - 1, order)
        if states > MOST_STATES or states * sampling.rounds > MOST_NUMBERS:
            break
        found = Patterns(sampling, order, noise_multiplier)
        tilt = order - 1
        epsilon = (found.log_total + log_peak(tilt) - math.log(delta)) / tilt
        if epsilon > least:
            break
        best, least = found, epsilon
    return best


def log_peak(tilt: int) -> float:
    """log of the largest e^(-tilt x) (1 - e^-x), x > 0."""
    return tilt * math.log(tilt / (1.0 + tilt)) - math.log1p(tilt) if tilt else 0.0
