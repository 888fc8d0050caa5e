"""ε of b-min-sep sampling, from sampled privacy losses.

Sources: Choquette-Choo et al. 2024 (arXiv 2410.06266); Dong & Ganesh 2026 (arXiv 2602.09338).

The result is the smallest ε at which δ(ε) < δ - β is certified, for the client's presence and for its
absence. β = δ / 1000 is the probability that the certificate fails. β counts as a part of δ: where the
certificate fails, nothing is promised (as in Wang et al. 2023, arXiv 2304.07927). The samples are drawn from
public streams, the same in every run, so that a privacy cost is a function of the event and δ.

A calibration asks about many noise multipliers, and picks one because of what the samples say of it. Noise
multipliers are therefore rounded down to a grid, and β is shared out among all multipliers on the grid.
"""

from __future__ import annotations

import functools
import math
import sys

import numpy as np

from fedpriv.privacy.accountants.gaussian import GdpAccountant
from fedpriv.privacy.accountants.monte_carlo_bound import LARGEST, ROUNDING, Losses
from fedpriv.privacy.accountants.monte_carlo_losses import losses_with, losses_without
from fedpriv.privacy.accountants.monte_carlo_patterns import MinSepSampling, best_patterns
from fedpriv.privacy.core.array_cache import cached_file, read_arrays, write_arrays
from fedpriv.privacy.core.min_sep_events import BMinSepDpEvent

VERSION = 1
"""Number of the sampling scheme. It rises whenever the samples of an event would change."""

SAMPLES = 5_000_000
"""Number of samples at a δ of 1e-5 and more."""

MOST_NUMBERS = 2e10
"""Largest samples × rounds, which takes about seven minutes."""

FAILURE = 1e-3  # β ÷ δ
_PER_DELTA = 50.0  # samples × δ at a smaller δ; about 35 suffice if no sample exceeds ε
_TILTED = 10  # tilted losses need this many times fewer samples, because large losses are frequent
_STEP = 0.002  # step of the grid of noise multipliers: 0.2 %
_MULTIPLIERS = math.ceil(math.log(1e9) / _STEP)  # multipliers on the grid, from 1e-3 to 1e6
_DIGIT = 1e-4  # ε is rounded up to a multiple of this
_PILOT = 20_000  # samples of an estimate
_SILENT = 1e9  # samples × rounds that take about 20 s; more are announced
_NOTHING = 0.01  # an ε up to this is not worth any samples


def samples_for(delta: float) -> int:
    """Return how many samples a certificate at ``delta`` takes."""
    return max(SAMPLES, math.ceil(_PER_DELTA / delta))


def refusal(event: BMinSepDpEvent, delta: float) -> str | None:
    """Return the reason why ε cannot be certified at this δ, or None."""
    samples = samples_for(delta)
    if samples * event.rounds <= MOST_NUMBERS:
        return None
    if samples == SAMPLES:
        return (
            f"rounds must be <= {MOST_NUMBERS / SAMPLES:.0f} with algorithm.participation=b_min_sep, got "
            f"{event.rounds}: its privacy loss is sampled, round by round"
        )
    least = _PER_DELTA * event.rounds / MOST_NUMBERS
    return (
        f"delta must be >= {least:.2g} with algorithm.participation=b_min_sep and {event.rounds} rounds, got "
        f"{delta:g}: its privacy loss is sampled, and that would take {samples:.2g} samples"
    )


def epsilon_of(event: BMinSepDpEvent, delta: float, samples: int) -> float:
    """Return ε at ``delta``, certified by ``samples`` samples.

    ε without amplification is returned where it is smaller, or where it is at most 0.01, which is not worth
    any samples. The samples are read from the user's cache folder. Where they are not there yet, they are
    drawn (which is announced on stderr if it takes more than about 20 s) and written there.

    Args:
        event: The releases of the whole run.
        delta: δ, of which a thousandth is the probability of a wrong certificate.
        samples: Number of samples.

    Returns:
        ε, rounded up to a multiple of 1e-4.
    """
    plain = _unamplified(event, delta)
    if plain <= _NOTHING:
        return plain
    return min(plain, _smallest(_sampled(*_on_grid(event), samples), delta))


def about(event: BMinSepDpEvent, delta: float) -> float:
    """Return an estimate near :func:`epsilon_of` from 20,000 new samples. It is no bound.

    The samples are drawn anew by every call, in a fraction of the time of :func:`epsilon_of`.
    """
    if (plain := _unamplified(event, delta)) <= _NOTHING:
        return plain
    sampling, multiplier = _on_grid(event)
    patterns = best_patterns(sampling, multiplier)
    pilot = losses_with(patterns, multiplier, _PILOT)
    return min(plain, _smallest((pilot,), delta, failure=0.5))


def _unamplified(event: BMinSepDpEvent, delta: float) -> float:
    """Return ε of a client that takes part as often as its rest allows.

    The rounds of one client are b or more apart, where columns do not overlap, so they compose as one
    Gaussian (Dong, Roth, Su 2022, corollary 3.3).
    """
    times = -(-event.rounds // event.separation)
    square = sum(c * c for c in event.column) / event.event.noise_multiplier**2
    return GdpAccountant().epsilon_of_sum(times * square, delta)


def _smallest(known: tuple[Losses, ...], delta: float, failure: float | None = None) -> float:
    """Return the smallest ε that all histograms certify; ``inf`` where too few samples certify any."""
    log_failure = math.log(failure or delta * FAILURE / (2 * _MULTIPLIERS))
    remaining_delta = delta * (1.0 - FAILURE)
    low, high = math.ceil(ROUNDING / _DIGIT), round((LARGEST - 1.0) / _DIGIT)
    if not all(losses.certifies(high * _DIGIT, remaining_delta, log_failure) for losses in known):
        return math.inf
    while low < high:
        middle = (low + high) // 2
        if all(losses.certifies(middle * _DIGIT, remaining_delta, log_failure) for losses in known):
            high = middle
        else:
            low = middle + 1
    return low * _DIGIT


def _on_grid(event: BMinSepDpEvent) -> tuple[MinSepSampling, float]:
    """Return the sampling of ``event`` and its noise multiplier, rounded down to the grid."""
    level = math.floor(math.log(event.event.noise_multiplier) / _STEP)
    kind = (event.rounds, event.separation, event.rate, event.warm_start, tuple(event.column))
    return MinSepSampling(*kind), math.exp(level * _STEP)


@functools.lru_cache(maxsize=64)
def _sampled(sampling: MinSepSampling, multiplier: float, samples: int) -> tuple[Losses, Losses]:
    """Return the losses of the client's presence and of its absence.

    They are kept in the user's cache, whose numbers are taken as they are.
    """
    key = f"{VERSION} {sampling!r} {multiplier!r} {samples}"
    path = cached_file(f"b-min-sep-{sampling.rounds}", key, digest_size=12)
    known = _from_arrays(read_arrays(path))
    if known is not None:
        return known
    if samples * sampling.rounds > _SILENT:
        sys.stderr.write("sampling the privacy loss of b_min_sep (once: the samples are kept)\n")
    patterns = best_patterns(sampling, multiplier)
    tilted = samples if patterns.order == 1 else samples // _TILTED
    sampled = (
        losses_with(patterns, multiplier, tilted),
        losses_without(sampling, multiplier, samples),
    )
    arrays: dict[str, np.ndarray] = {}
    for i, losses in enumerate(sampled):
        whole = (losses.samples, losses.order, losses.beyond)
        arrays[f"whole{i}"] = np.array(whole, dtype=np.int64)
        arrays[f"log_total{i}"] = np.array([losses.log_total])
        arrays[f"cells{i}"], arrays[f"counts{i}"] = losses.cells, losses.counts
    write_arrays(path, arrays)
    return sampled


def _from_arrays(arrays: dict[str, np.ndarray]) -> tuple[Losses, Losses] | None:
    """Return the losses that a cache file holds, or None where arrays are missing or damaged."""
    pair = []
    try:
        for i in range(2):
            samples, order, beyond = map(int, arrays[f"whole{i}"])
            (log_total,) = map(float, arrays[f"log_total{i}"])
            cells, counts = arrays[f"cells{i}"], arrays[f"counts{i}"]
            pair.append(Losses(samples, order, log_total, cells, counts, beyond))
    except (ValueError, KeyError, TypeError):
        return None
    return pair[0], pair[1]
