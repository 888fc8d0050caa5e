"""An estimate of ε from random canaries: no confidence, no guarantee.

Scores of canaries that were included, and of others, are taken for two normal distributions, and ε(δ) is
that of telling these two apart. One that is not normal, or canaries that are not the worst case, make it
too large or too small. Of two Gaussians that are one standard deviation apart it is above the truth in about
90 % of trials: unequal sample variances pass for privacy loss. So no claim is ever refuted by it.
Source: Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar, "One-shot empirical privacy estimation for
federated learning", ICLR 2024 (arXiv 2302.03098).
"""

from __future__ import annotations

import numpy as np

from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_one_run import largest_refuted

_WIDTH, _POINTS = 12.0, 20_001


def estimate(scores: Scores, delta: float) -> float:
    """ε(δ) of N(mean, variance of included) against N(mean, variance of the others)."""
    inside, outside = scores.values[scores.included], scores.values[~scores.included]
    if min(len(inside), len(outside)) < 2:
        return 0.0
    one = (float(inside.mean()), float(inside.std(ddof=1)))
    other = (float(outside.mean()), float(outside.std(ddof=1)))
    if min(one[1], other[1]) <= 0:
        return 0.0 if one == other else np.inf
    return max(_epsilon(one, other, delta), _epsilon(other, one, delta))


def _epsilon(one: tuple[float, float], other: tuple[float, float], delta: float) -> float:
    ends = [mean + side * _WIDTH * sd for mean, sd in (one, other) for side in (-1, 1)]
    points = np.linspace(min(ends), max(ends), _POINTS)
    log_p, log_q = _log_density(points, *one), _log_density(points, *other)
    step = points[1] - points[0]

    def exceeds(epsilon: float) -> bool:
        # ∫ (p - e^ε q)₊
        more = log_p > log_q + epsilon
        gap = np.exp(log_p[more]) - np.exp(log_q[more] + epsilon)
        return float(gap.sum() * step) > delta

    return largest_refuted(exceeds)


def _log_density(points: np.ndarray, mean: float, sd: float) -> np.ndarray:
    return -0.5 * ((points - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
