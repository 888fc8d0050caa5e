"""Membership attacks by shadow models, of which each record trained some (in) and not the others (out).

lira   φ = log p/(1 - p) of the probability p of the true label. Gaussians are fitted to each record's φ over
       the shadow models:  log N(φ; μ_in, σ_in²) - log N(φ; μ_out, σ_out²);  offline, from those without the
       record alone:  (φ - μ_out)/σ_out.  Means are a record's own. Variances are shared by all records unless
       there are 64 shadow models: of few, a record's own is too uncertain.
       Carlini et al., "Membership inference attacks from first principles", S&P 2022
rmia   the share of records z of the population with  (p_x/Pr(x)) / (p_z/Pr(z)) ≥ γ.  Pr(x) is the mean of
       p_x over shadow models, half of them with x; offline ½((1 + a) Pr_out(x) + (1 - a)).
       Zarifzadeh, Liu, Shokri, "Low-cost high-power membership inference attacks", ICML 2024
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

LIRA, LIRA_OFFLINE, RMIA, RMIA_OFFLINE = "lira", "lira_offline", "rmia", "rmia_offline"
OWN_VARIANCE = 64
"""From so many shadow models on a record has a variance of its own."""
GAMMA = 2.0
OFFLINE_A = 0.3
_SMALLEST = 1e-30


@dataclass(frozen=True)
class Signals:
    """What models say of records, as φ: ``target`` [n] the audited one, ``shadows`` [s, n]; ``inside``
    [s, n]: whether the shadow model trained on the record. Of the population's z, which none trained on or
    which are the records themselves: ``target_z`` [m], ``shadows_z`` [s, m]."""

    target: np.ndarray
    shadows: np.ndarray
    inside: np.ndarray
    target_z: np.ndarray
    shadows_z: np.ndarray


def scores_of(signals: Signals) -> dict[str, np.ndarray]:
    """Each attack's score of every record [n]."""
    own = len(signals.shadows) >= OWN_VARIANCE
    return {
        LIRA: lira(signals, own),
        LIRA_OFFLINE: lira_offline(signals, own),
        RMIA: rmia(signals),
        RMIA_OFFLINE: rmia_offline(signals),
    }


def lira(signals: Signals, own_variance: bool) -> np.ndarray:
    """log N(φ; in) - log N(φ; out) [n]."""
    mean_in, var_in = _gaussians(signals.shadows, signals.inside, own_variance)
    mean_out, var_out = _gaussians(signals.shadows, ~signals.inside, own_variance)
    # a record that no shadow client used: moved like the others
    mean_in = np.where(np.isnan(mean_in), mean_out + np.nanmean(mean_in - mean_out), mean_in)
    phi = signals.target
    return _log_density(phi, mean_in, var_in) - _log_density(phi, mean_out, var_out)


def lira_offline(signals: Signals, own_variance: bool) -> np.ndarray:
    """(φ - μ_out)/σ_out [n]."""
    mean, variance = _gaussians(signals.shadows, ~signals.inside, own_variance)
    return (signals.target - mean) / np.sqrt(variance)


def rmia(signals: Signals) -> np.ndarray:
    """Share of the population that each record exceeds γ times [n]."""
    p, inside = expit(signals.shadows), signals.inside
    mean_in, mean_out = _mean(p, inside), _mean(p, ~inside)
    usual = np.where(np.isnan(mean_in), mean_out, (mean_in + mean_out) / 2)
    return _exceeded(signals, usual, expit(signals.shadows_z).mean(0))


def rmia_offline(signals: Signals) -> np.ndarray:
    """The same from shadow models without the record alone [n]."""

    def corrected(out: np.ndarray) -> np.ndarray:
        return ((1 + OFFLINE_A) * out + (1 - OFFLINE_A)) / 2

    usual = corrected(_mean(expit(signals.shadows), ~signals.inside))
    return _exceeded(signals, usual, corrected(expit(signals.shadows_z).mean(0)))


def _exceeded(signals: Signals, usual: np.ndarray, usual_z: np.ndarray) -> np.ndarray:
    ratio = expit(signals.target) / np.maximum(usual, _SMALLEST)
    ratio_z = np.sort(expit(signals.target_z) / np.maximum(usual_z, _SMALLEST))
    return np.searchsorted(ratio_z, ratio / GAMMA, side="right") / len(ratio_z)


def _gaussians(
    values: np.ndarray, chosen: np.ndarray, own_variance: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column's chosen values [n]; the mean is nan where there are none."""
    mean, count = _mean(values, chosen), chosen.sum(0)
    squares = np.where(chosen, (values - mean) ** 2, 0.0).sum(0)
    shared = squares.sum() / max(1, (count - 1).clip(0).sum())
    if not own_variance:
        return mean, np.full(len(mean), max(shared, _SMALLEST))
    own = np.where(count > 1, squares / np.maximum(count - 1, 1), shared)
    return mean, np.maximum(own, _SMALLEST)


def _mean(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of each column's chosen values [n]; nan where there are none."""
    count = chosen.sum(0)
    total = np.where(chosen, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _log_density(value: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Of a Gaussian, but for its constant."""
    return -((value - mean) ** 2) / (2 * variance) - np.log(variance) / 2
