"""Lower bounds of ε from trials that are independent of one another: one canary each, in a run of its own.

Of n₁ trials with the canary and n₀ without it a threshold gets some wrong; Clopper and Pearson bound both
rates from above, each at half of the significance. (ε, δ)-DP says of any threshold

    TPR ≤ e^ε FPR + δ    and    1 - FPR ≤ e^ε (1 - TPR) + δ

Source: Nasr et al., "Adversary instantiation", S&P 2021; "Tight auditing", USENIX Security 2023 (for μ).
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
    """Bounds from above that hold together: of FPR = P[guess "in" | out] and of FNR = P[guess "out" | in]."""

    false_positives: float
    false_negatives: float

    def epsilon(self, delta: float) -> float:
        """The largest ε that both rates refute; 0 where they refute none."""
        found = 0.0
        for wrong, other in (
            (self.false_positives, self.false_negatives),
            (self.false_negatives, self.false_positives),
        ):
            right = 1.0 - other - delta
            if right > wrong:
                found = max(found, math.log(right / wrong))
        return min(found, LARGEST)

    def mu(self) -> float:
        """μ ≥ Φ⁻¹(1 - FPR) - Φ⁻¹(FNR) for a Gaussian trade-off function; at least 0."""
        found = special.ndtri(1.0 - self.false_positives) - special.ndtri(self.false_negatives)
        return max(0.0, float(found))


def errors_at(scores: Scores, threshold: float, significance: float) -> Errors:
    """Clopper-Pearson bounds for "in" above the threshold."""
    above = scores.values > threshold
    return Errors(
        _upper(
            int((above & ~scores.included).sum()), int((~scores.included).sum()), significance / 2
        ),
        _upper(int((~above & scores.included).sum()), int(scores.included.sum()), significance / 2),
    )


def _upper(count: int, trials: int, significance: float) -> float:
    """At most that probability with confidence 1 - significance, after ``count`` of ``trials``."""
    if count >= trials:
        return 1.0
    return float(special.betaincinv(count + 1.0, trials - count, 1.0 - significance))


def thresholds_of(ideal: np.ndarray) -> np.ndarray:
    """Where to cut, chosen from scores that were simulated and not from those that are tested."""
    return np.unique(np.quantile(ideal, _QUANTILES))


_QUANTILES = (0.01, 0.04, 0.1, 0.3, 0.5, 0.7, 0.9, 0.96, 0.99)


def bound(
    scores: Scores, delta: float, significance: float, thresholds: np.ndarray | None, seed: int
) -> float:
    """The ε refuted at δ, the best of ``thresholds``, each tested at its share of the significance. None: one
    threshold is chosen on half of the trials and tested on the other half."""

    def value(errors: Errors) -> float:
        return errors.epsilon(delta)

    return _best(scores, value, significance, thresholds, seed)


def gaussian_bound(
    scores: Scores, delta: float, significance: float, thresholds: np.ndarray | None, seed: int
) -> float:
    """The same for the family of Gaussian trade-off functions: ε(δ) of the smallest μ not refuted."""
    mu = _best(scores, Errors.mu, significance, thresholds, seed)
    return min(LARGEST, gaussian_epsilon(mu, delta))


def _best(
    scores: Scores,
    value: Callable[[Errors], float],
    significance: float,
    thresholds: np.ndarray | None,
    seed: int,
) -> float:
    if thresholds is not None:
        each = significance / len(thresholds)
        return max(value(errors_at(scores, float(t), each)) for t in thresholds)
    first, second = scores.split(numpy_stream(seed, "audit_threshold"))
    candidates = np.quantile(np.nan_to_num(first.values), np.linspace(0.002, 0.998, 200))
    found = [
        (value(errors_at(first, float(t), significance)), -i) for i, t in enumerate(candidates)
    ]
    return value(errors_at(second, float(candidates[-max(found)[1]]), significance))
