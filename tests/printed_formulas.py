"""Formulas as published works print them, and what is true instead, for the tests to compare."""

from __future__ import annotations

import math

from fedpriv.privacy.accountants.gaussian import GdpAccountant
from fedpriv.privacy.mechanisms.claims import wei_budget


def wei_noise_std(
    epsilon: float, delta: float, sensitivity: float, sample_rate: float, rounds: int
) -> float:
    """Eq. (15): s = D (2 q T log(1/δ))^(1/2) / ε, the noise of every upload."""
    return math.sqrt(rounds / wei_budget(epsilon, delta, sensitivity, sample_rate))


def wei_recalculated_noise_std(
    epsilon: float,
    delta: float,
    sensitivity: float,
    sample_rate: float,
    rounds: float,
    earlier: list[float],
) -> float:
    """Eq. (19): s_t after uploads with noise ``earlier`` = s_0 … s_{t-1}, when T is now ``rounds``.

        s_t = ( (T - t) / ( ε² / (2 q D² log(1/δ)) - Σ_{τ<t} s_τ^-2 ) )^(1/2)

    ``inf`` when nothing of the budget is left.
    """
    whole = wei_budget(epsilon, delta, sensitivity, sample_rate)
    left = whole - math.fsum(s**-2 for s in earlier)
    return math.sqrt((rounds - len(earlier)) / left) if left > 0 else math.inf


def wei_true_epsilon(claimed: float, delta: float, understated: float = 1.0) -> float:
    """The exact ε of a Gaussian that eq. (15) calls ``claimed``.

    μ = r ε/(2 log(1/δ))^(1/2) with r = ``understated``, the true sensitivity over the claimed one
    (1: as claimed; n_i: an upload clipped after training moves by 2C, not 2C/n_i).
    """
    mu = understated * claimed / math.sqrt(2.0 * math.log(1.0 / delta))
    return GdpAccountant().epsilon_of_sum(mu**2, delta)


def ldp_epsilon(noise_multiplier: float, reports: int, delta: float, sensitivity: float) -> float:
    """ε of ``reports`` Gaussian reports with noise C σ when an input moves one by ``sensitivity`` · C.

    μ = s R^(1/2) / σ. Local DP compares any two inputs, so s = 2; s = 1 understates it.
    """
    return GdpAccountant().epsilon_of_sum(reports * (sensitivity / noise_multiplier) ** 2, delta)


def naseri_printed_multipliers(
    noise_multiplier: float, sample_rate: float, clients: int
) -> dict[str, float]:
    """What σ = z S/q on a mean of realised size means, in multiples of S.

    ``noise_on_mean``: σ/S = z/q, also the sound multiplier; ``fixed_denominator``: z/(qK), the noise on
    the mean that multiplier z asks for (McMahan et al. 2018); ``ratio``: how much more is printed, K.
    """
    printed = noise_multiplier / sample_rate
    fixed = noise_multiplier / (sample_rate * clients)
    return {"noise_on_mean": printed, "fixed_denominator": fixed, "ratio": printed / fixed}
