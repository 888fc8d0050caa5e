"""Membership attacks by shadow models: of each record, some trained on it (in) and others did not (out).

lira   φ = log p/(1 - p) of the probability p of the true label. Gaussians are fitted to each record's φ over
       the shadow models. The score is  log N(φ; μ_in, σ_in²) - log N(φ; μ_out, σ_out²);  offline, from the
       models without the record alone,  (φ - μ_out)/σ_out.  Each record has its own means. Variances are
       shared by all records unless there are 64 shadow models: with few, a variance of its own would be too
       uncertain.
       Carlini et al., "Membership inference attacks from first principles", S&P 2022.
rmia   The share of records z of the population with  (p_x/Pr(x)) / (p_z/Pr(z)) ≥ γ.  Pr(x) is the mean of p_x
       over shadow models, half of them with x; offline  ½((1 + a) Pr_out(x) + (1 - a)).
       Zarifzadeh, Liu, Shokri, "Low-cost high-power membership inference attacks", ICML 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

LIRA, LIRA_OFFLINE, RMIA, RMIA_OFFLINE = "lira", "lira_offline", "rmia", "rmia_offline"
OWN_VARIANCE = 64
"""Number of shadow models from which on each record has its own variance."""
GAMMA = 2.0
OFFLINE_A = 0.3
_SMALLEST = 1e-30


@dataclass(frozen=True)
class Signals:
    """φ of records under the audited model and under the shadow models.

    Attributes:
        target: φ of each candidate under the audited model [n].
        shadows: φ of each candidate under each shadow model [s, n].
        inside: Whether each shadow model trained on each candidate [s, n] (bool).
        target_z: φ of each record of the population under the audited model [m]. No model trained on these
            records, or they are the candidates themselves.
        shadows_z: φ of each record of the population under each shadow model [s, m].
    """

    target: np.ndarray
    shadows: np.ndarray
    inside: np.ndarray
    target_z: np.ndarray
    shadows_z: np.ndarray


def scores_of(signals: Signals) -> dict[str, np.ndarray]:
    """Return each attack's score of every candidate [n], by the name of the attack."""
    own_variance = len(signals.shadows) >= OWN_VARIANCE
    return {
        LIRA: lira(signals, own_variance),
        LIRA_OFFLINE: lira_offline(signals, own_variance),
        RMIA: rmia(signals),
        RMIA_OFFLINE: rmia_offline(signals),
    }


def lira(signals: Signals, own_variance: bool) -> np.ndarray:
    """Return log N(φ; in) - log N(φ; out) of each candidate [n].

    Args:
        signals: φ under all models.
        own_variance: Whether each record has its own variance.
    """
    mean_in, var_in = _gaussians(signals.shadows, signals.inside, own_variance)
    mean_out, var_out = _gaussians(signals.shadows, ~signals.inside, own_variance)
    # A record that no shadow client used gets the mean shift of the others.
    mean_in = np.where(np.isnan(mean_in), mean_out + np.nanmean(mean_in - mean_out), mean_in)
    phi = signals.target
    return _log_density(phi, mean_in, var_in) - _log_density(phi, mean_out, var_out)


def lira_offline(signals: Signals, own_variance: bool) -> np.ndarray:
    """Return (φ - μ_out)/σ_out of each candidate [n]; see :func:`lira`."""
    mean, variance = _gaussians(signals.shadows, ~signals.inside, own_variance)
    return (signals.target - mean) / np.sqrt(variance)


def rmia(signals: Signals) -> np.ndarray:
    """Return the share of the population that each candidate exceeds γ times [n]."""
    p, inside = expit(signals.shadows), signals.inside
    mean_in, mean_out = _mean(p, inside), _mean(p, ~inside)
    reference = np.where(np.isnan(mean_in), mean_out, (mean_in + mean_out) / 2)
    return _exceeded(signals, reference, expit(signals.shadows_z).mean(0))


def rmia_offline(signals: Signals) -> np.ndarray:
    """Return the score of RMIA from shadow models without the record alone [n]."""

    def corrected(out: np.ndarray) -> np.ndarray:
        return ((1 + OFFLINE_A) * out + (1 - OFFLINE_A)) / 2

    reference = corrected(_mean(expit(signals.shadows), ~signals.inside))
    return _exceeded(signals, reference, corrected(expit(signals.shadows_z).mean(0)))


def _exceeded(signals: Signals, reference: np.ndarray, reference_z: np.ndarray) -> np.ndarray:
    """Return the share of the population with p_z/Pr(z) ≤ (p_x/Pr(x))/γ, for each candidate x [n]."""
    ratio = expit(signals.target) / np.maximum(reference, _SMALLEST)
    ratio_z = np.sort(expit(signals.target_z) / np.maximum(reference_z, _SMALLEST))
    return np.searchsorted(ratio_z, ratio / GAMMA, side="right") / len(ratio_z)


def _gaussians(
    values: np.ndarray, chosen: np.ndarray, own_variance: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of each column's chosen values [n]; the mean is nan if none is chosen."""
    mean, count = _mean(values, chosen), chosen.sum(0)
    squares = np.where(chosen, (values - mean) ** 2, 0.0).sum(0)
    shared = squares.sum() / max(1, (count - 1).clip(0).sum())
    if not own_variance:
        return mean, np.full(len(mean), max(shared, _SMALLEST))
    own_variances = np.where(count > 1, squares / np.maximum(count - 1, 1), shared)
    return mean, np.maximum(own_variances, _SMALLEST)


def _mean(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the mean of each column's chosen values [n]; nan if none is chosen."""
    count = chosen.sum(0)
    total = np.where(chosen, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _log_density(value: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the log density of a Gaussian, up to a constant."""
    return -((value - mean) ** 2) / (2 * variance) - np.log(variance) / 2
