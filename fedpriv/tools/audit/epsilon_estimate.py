"""An estimate of ε from random canaries, without confidence or guarantee.

The scores of included canaries, and those of the others, are taken for two normal distributions. The estimate
is the ε(δ) of telling these two apart. It is too large or too small if a distribution is not normal or the
canaries are not the worst case. For two Gaussians that are one standard deviation apart it is above the truth
in about 90 % of trials, because unequal sample variances pass for privacy loss. So it never refutes a claim.

Reference:
    Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar, "One-shot empirical privacy estimation for federated
    learning", ICLR 2024 (arXiv 2302.03098).
"""

from __future__ import annotations

import numpy as np

from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_one_run import largest_refuted

_WIDTH, _POINTS = 12.0, 20_001  # the integral's reach in standard deviations, and its grid points


def estimate(scores: Scores, delta: float) -> float:
    """Return ε(δ) of N(mean, variance of included) against N(mean, variance of the others).

    Args:
        scores: Scores and coins of the canaries.
        delta: δ.

    Returns:
        The estimate; 0 with fewer than two canaries of each kind.
    """
    inside, outside = scores.values[scores.included], scores.values[~scores.included]
    if min(len(inside), len(outside)) < 2:
        return 0.0
    p = (float(inside.mean()), float(inside.std(ddof=1)))
    q = (float(outside.mean()), float(outside.std(ddof=1)))
    if min(p[1], q[1]) <= 0:
        return 0.0 if p == q else np.inf
    return max(_epsilon(p, q, delta), _epsilon(q, p, delta))


def _epsilon(p: tuple[float, float], q: tuple[float, float], delta: float) -> float:
    """Return the largest ε with ∫ max(p - e^ε q, 0) > δ, for normal p and q as (mean, standard deviation)."""
    ends = [mean + side * _WIDTH * sd for mean, sd in (p, q) for side in (-1, 1)]
    points = np.linspace(min(ends), max(ends), _POINTS)
    log_p, log_q = _log_density(points, *p), _log_density(points, *q)
    step = points[1] - points[0]

    def exceeds(epsilon: float) -> bool:
        positive = log_p > log_q + epsilon
        gap = np.exp(log_p[positive]) - np.exp(log_q[positive] + epsilon)
        return float(gap.sum() * step) > delta

    return largest_refuted(exceeds)


def _log_density(points: np.ndarray, mean: float, sd: float) -> np.ndarray:
    return -0.5 * ((points - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
