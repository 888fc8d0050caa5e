"""Lower bounds of ε from independent trials: one canary each, in a run of its own.

A threshold gets some of n₁ trials with the canary and of n₀ trials without it wrong. Clopper and Pearson
bound both error rates from above, each at half of the significance. (ε, δ)-DP says of any threshold

    TPR ≤ e^ε FPR + δ    and    1 - FPR ≤ e^ε (1 - TPR) + δ

Reference:
    Nasr et al., "Adversary instantiation", S&P 2021; "Tight auditing", USENIX Security 2023 (for μ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedpriv.common.random_streams import numpy_stream
from fedpriv.tools.audit.epsilon_families import gaussian_epsilon
from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_one_run import LARGEST


@dataclass(frozen=True)
class Errors:
    """Upper bounds of both error rates of a threshold, which hold together.

    Attributes:
        false_positives: Bound of FPR = P[guess "in" | out].
        false_negatives: Bound of FNR = P[guess "out" | in].
    """

    false_positives: float
    false_negatives: float

    def epsilon(self, delta: float) -> float:
        """Return the largest ε that the rates refute at δ; 0 if they refute none."""
        largest = 0.0
        for wrong, other in (
            (self.false_positives, self.false_negatives),
            (self.false_negatives, self.false_positives),
        ):
            right = 1.0 - other - delta
            if right > wrong:
                largest = max(largest, math.log(right / wrong))
        return min(largest, LARGEST)

    def mu(self) -> float:
        """Return the largest refuted μ of a Gaussian trade-off function, at least 0.

        μ ≥ Φ⁻¹(1 - FPR) - Φ⁻¹(FNR)
        """
        mu = special.ndtri(1.0 - self.false_positives) - special.ndtri(self.false_negatives)
        return max(0.0, float(mu))


def errors_at(scores: Scores, threshold: float, significance: float) -> Errors:
    """Return Clopper-Pearson bounds of the error rates of guessing "in" above a threshold.

    Args:
        scores: Scores and coins of independent trials.
        threshold: The threshold.
        significance: Probability that one of the bounds is wrong, half of it for each.
    """
    above, included = scores.values > threshold, scores.included
    false_positives, false_negatives = (above & ~included).sum(), (~above & included).sum()
    return Errors(
        _upper(int(false_positives), int((~included).sum()), significance / 2),
        _upper(int(false_negatives), int(included.sum()), significance / 2),
    )


def _upper(count: int, trials: int, significance: float) -> float:
    """Return the Clopper-Pearson upper bound of a probability after ``count`` of ``trials``."""
    if count >= trials:
        return 1.0
    return float(special.betaincinv(count + 1.0, trials - count, 1.0 - significance))


def thresholds_of(ideal: np.ndarray) -> np.ndarray:
    """Return thresholds chosen from simulated scores, not from those that are tested."""
    return np.unique(np.quantile(ideal, (0.01, 0.04, 0.1, 0.3, 0.5, 0.7, 0.9, 0.96, 0.99)))


def bound(
    scores: Scores, delta: float, significance: float, thresholds: np.ndarray | None, seed: int
) -> float:
    """Return the largest ε that is refuted at δ by any of several thresholds.

    Args:
        scores: Scores and coins of independent trials.
        delta: δ.
        significance: Probability that the bound is wrong.
        thresholds: Thresholds chosen beforehand, each of which is tested at its share of the significance.
            None chooses one threshold on half of the trials and tests it on the other half.
        seed: Seed of the halves.
    """
    return _best(scores, lambda errors: errors.epsilon(delta), significance, thresholds, seed)


def gaussian_bound(
    scores: Scores, delta: float, significance: float, thresholds: np.ndarray | None, seed: int
) -> float:
    """Return ε(δ) of the largest refuted μ, for a Gaussian trade-off function; see :func:`bound`."""
    mu = _best(scores, Errors.mu, significance, thresholds, seed)
    return min(LARGEST, gaussian_epsilon(mu, delta))


def _best(
    scores: Scores,
    value: Callable[[Errors], float],
    significance: float,
    thresholds: np.ndarray | None,
    seed: int,
) -> float:
    """Return the best ``value`` of the errors of any threshold; see :func:`bound`."""
    if thresholds is not None:
        share = significance / len(thresholds)
        return max(value(errors_at(scores, float(t), share)) for t in thresholds)
    first, second = scores.split(numpy_stream(seed, "audit_threshold"))
    candidates = np.quantile(np.nan_to_num(first.values), np.linspace(0.002, 0.998, 200)).tolist()
    # max returns the first of several equally good thresholds
    threshold = max(candidates, key=lambda t: value(errors_at(first, t, significance)))
    return value(errors_at(second, threshold, significance))
