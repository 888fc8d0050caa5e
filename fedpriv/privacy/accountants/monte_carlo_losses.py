"""Samples of the privacy loss log dP/dQ of b-min-sep sampling, as counts.

Let v_t be the factor that the rounds from t on contribute to dP/dQ, for a client that has rested (Dong &
Ganesh 2026, arXiv 2602.09338, section 5):

    v_t = (1 - q) v_{t+1} + q exp(<c_t, y> / z² - |c|² / 2z²) v_{t+b},   v = 1 beyond the last round

P is the run with the client, Q the run in which its contributions are zeros. The worst client always
contributes one and the same vector of norm 1, with |c| for c. It is the worst in both directions and also
among adaptive clients; the proof is in docs/privacy.md.
"""

from __future__ import annotations

import numpy as np

from fedpriv.common.random_streams import numpy_stream
from fedpriv.privacy.accountants.monte_carlo_bound import LARGEST, WIDTH, Losses
from fedpriv.privacy.accountants.monte_carlo_patterns import MinSepSampling, Patterns

_AT_ONCE = 4096  # samples whose rounds are worked through together, of up to 1,000 rounds
_DRAWN = 65536  # samples whose patterns are drawn together
_BLOCK = 64


def losses_with(patterns: Patterns, noise_multiplier: float, samples: int) -> Losses:
    """Return samples of log dP/dQ under R_α, a tilted P. They decide about the client's presence.

    Args:
        patterns: The patterns of R_α.
        noise_multiplier: z.
        samples: Number of samples. Equal arguments give equal samples.
    """
    stream = numpy_stream(0, "b_min_sep_with", samples)
    sampling, counts = patterns.sampling, _LossHistogram()
    at_once = _at_once(sampling)
    for done in range(0, samples, _DRAWN):
        starts = patterns.sample(stream, min(_DRAWN, samples - done))
        for first in range(0, starts.shape[1], at_once):
            chunk_starts = starts[:, first : first + at_once]
            edge = np.zeros((len(sampling.taps) - 1, chunk_starts.shape[1]), dtype=np.float32)
            padded = np.concatenate([edge, chunk_starts.astype(np.float32), edge])
            means = _correlate(padded, sampling.taps[::-1]) / np.float32(noise_multiplier)
            counts.add(_log_ratio(sampling, noise_multiplier, means, stream))
    return counts.losses(samples, patterns.order, patterns.log_total)


def losses_without(sampling: MinSepSampling, noise_multiplier: float, samples: int) -> Losses:
    """Return samples of -log dP/dQ under Q. They decide about the client's absence.

    Args:
        sampling: Who joins, and the column of a participation.
        noise_multiplier: z.
        samples: Number of samples. Equal arguments give equal samples.
    """
    stream, counts = numpy_stream(0, "b_min_sep_without", samples), _LossHistogram()
    rows = sampling.rounds + len(sampling.taps) - 1
    at_once = _at_once(sampling)
    for done in range(0, samples, at_once):
        nothing = np.zeros((rows, min(at_once, samples - done)), dtype=np.float32)
        counts.add(-_log_ratio(sampling, noise_multiplier, nothing, stream))
    return counts.losses(samples, 1, 0.0)


def _at_once(sampling: MinSepSampling) -> int:
    return max(256, _AT_ONCE * 1000 // max(1000, sampling.rounds))


def _log_ratio(
    sampling: MinSepSampling,
    noise_multiplier: float,
    means: np.ndarray,
    stream: np.random.Generator,
) -> np.ndarray:
    """Return log dP/dQ [samples] of answers with the given means.

    Args:
        sampling: Who joins, and the column of a participation.
        noise_multiplier: z.
        means: Means of the answers in units of z [n + bands - 1, samples].
        stream: Source of the noise that is added to the means.
    """
    answers = stream.standard_normal(means.shape, dtype=np.float32)
    answers += means
    ratios = _correlate(answers, sampling.taps / noise_multiplier).astype(np.float64)
    ratios -= sampling.overlaps[0] / (2.0 * noise_multiplier**2)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        np.exp(ratios, out=ratios)
        ratios *= sampling.rate
        return np.log(_recurrence(sampling, ratios))


def _recurrence(sampling: MinSepSampling, ratios: np.ndarray) -> np.ndarray:
    """Return v_0 [samples], or its mean over the rounds that a client rests at the start."""
    b, missed = sampling.separation, 1.0 - sampling.rate
    # v_t needs v_{t+1} and v_{t+b} only, so b rows suffice: v_t is in row t modulo b.
    later = np.ones((b, ratios.shape[1]))
    for t in reversed(range(sampling.rounds)):
        row = ratios[t]
        row *= later[t % b]
        np.multiply(later[(t + 1) % b], missed, out=later[t % b])
        later[t % b] += row
    return sampling.start @ later


def _correlate(values: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Return Σ_j taps[j] values[t + j] for each t [rows - bands + 1, samples]."""
    taps = taps.astype(np.float32)
    rows, bands = len(values) - len(taps) + 1, len(taps)
    sums = np.empty((rows, values.shape[1]), dtype=np.float32)
    for first in range(0, rows, _BLOCK):
        size = min(_BLOCK, rows - first)
        block = np.zeros((size, size + bands - 1), dtype=np.float32)
        for j, tap in enumerate(taps):
            block[np.arange(size), np.arange(size) + j] = tap
        np.matmul(block, values[first : first + size + bands - 1], out=sums[first : first + size])
    return sums


class _LossHistogram:
    """Counts of losses above 0 by cell, and the count of those that are too large for a cell."""

    def __init__(self) -> None:
        self._counts = np.zeros(round(LARGEST / WIDTH), dtype=np.int64)
        self._beyond = 0

    def add(self, losses: np.ndarray) -> None:
        positive = losses[~(losses <= 0)]
        inside = positive[positive < LARGEST]
        self._beyond += len(positive) - len(inside)
        cells = np.minimum((inside / WIDTH).astype(np.int64), len(self._counts) - 1)
        self._counts += np.bincount(cells, minlength=len(self._counts))

    def losses(self, samples: int, order: int, log_total: float) -> Losses:
        cells = np.flatnonzero(self._counts)
        return Losses(samples, order, log_total, cells, self._counts[cells], self._beyond)
