"""Shuffle model: ε of n local reports whose senders are hidden from the server by a random order.

Every ε₀-DP report hides as a clone of the report in question with probability r, so that the shuffled reports
are a function of a sample of P or Q:

    C ~ Bin(n - 1, r),  A ~ Bin(C, 1/2),  Δ ~ Bernoulli(e^ε₀ / (e^ε₀ + 1))
    P = (A + Δ, C - A + 1 - Δ),           Q = (A + 1 - Δ, C - A + Δ)

r = e^-ε₀ for any pure report. For a bit flipped by randomized response r = 2/(e^ε₀ + 1), the probability with
which the report is a fair coin whatever the bit was. Given C = c the ratio P/Q grows with the first count a,
so

    δ_c(ε) = P[a ≥ a*] - e^ε Q[a ≥ a*],   a* the first a at which P > e^ε Q;     δ(ε) = E δ_C(ε)

exactly, up to the tails of C, which are added to δ. P and Q are mirror images, so one direction is enough.
Neighbours replace one client's report, once. Reports that are (ε₀, δ₀)-DP (Gaussian ones) have

    δ' = δ + (e^ε + 1)(1 + e^-ε₀/2) n δ₀

(theorem 3.8 of the first source), which is of use only where δ₀ is far below δ/n.

Sources: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021, and "Stronger privacy amplification
by shuffling for Rényi and approximate differential privacy", SODA 2023.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE

PURE, BIT = "pure", "randomized_response"
REPORTS = (PURE, BIT)
_TAILS = 1e-3  # share of δ for the tails of C
_STEPS = 50  # of the bisection
_SHARE = 0.1  # share of δ for the δ₀ of all reports


def clone_probability(epsilon: float, report: str) -> float:
    """Return r, the probability with which a report hides as a clone."""
    return math.exp(-epsilon) if report == PURE else 2.0 / (math.exp(epsilon) + 1.0)


def delta_of_shuffled(
    epsilon: float, report_epsilon: float, reports: int, report: str = PURE, tails: float = 1e-12
) -> float:
    """Return an upper bound of δ at ``epsilon`` of n shuffled reports.

    Args:
        epsilon: ε of the shuffled reports.
        report_epsilon: ε₀ of one report.
        reports: n.
        report: ``pure`` or ``randomized_response``.
        tails: Probability of the tails of C that is added to δ rather than summed.

    Returns:
        δ, at most ``tails`` above the numerical value; 0 where ``epsilon`` is at least ε₀.
    """
    if epsilon >= report_epsilon:
        return 0.0
    rate = clone_probability(report_epsilon, report)
    low, high = binom.isf([1.0 - tails / 4, tails / 4], reports - 1, rate).astype(int)
    clones = np.arange(max(0, low - 1), min(reports - 1, high + 1) + 1)
    weights = binom.pmf(clones, reports - 1, rate)
    outside = binom.cdf(clones[0] - 1, reports - 1, rate) + binom.sf(clones[-1], reports - 1, rate)
    alpha, grown = 1.0 / (1.0 + math.exp(-report_epsilon)), math.exp(epsilon)
    # P/Q > e^ε where b(a-1)/b(a) = a/(c - a + 1) > odds, b the probabilities of A
    odds = (grown * alpha - (1.0 - alpha)) / (alpha - grown * (1.0 - alpha))
    first = np.floor(odds * (clones + 1) / (1.0 + odds)) + 1.0
    above, at = binom.sf(first - 2, clones, 0.5), binom.sf(first - 1, clones, 0.5)
    p = alpha * above + (1.0 - alpha) * at
    q = (1.0 - alpha) * above + alpha * at
    return float(weights @ np.maximum(p - grown * q, 0.0) + outside)


def epsilon_of_shuffled(
    report_epsilon: float, reports: int, delta: float, report: str = PURE, report_delta: float = 0.0
) -> float:
    """Return ε at δ of n shuffled reports, at most ε₀ of a single report.

    Args:
        report_epsilon: ε₀ > 0.
        reports: n, one report of each client.
        delta: δ of the answer.
        report: ``pure`` for any ε₀-DP reports, ``randomized_response`` for flipped bits.
        report_delta: δ₀ of reports that are (ε₀, δ₀)-DP.

    Raises:
        ArgumentError: A value is out of range, or δ₀ is not far below δ/n.

    Example:
        >>> 0 < epsilon_of_shuffled(report_epsilon=1.0, reports=10_000, delta=1e-6) < 0.1
        True
    """
    checks.number("report_epsilon", report_epsilon, above=0, at_most=50)
    checks.whole("reports", reports, at_least=1, at_most=10**9)
    checks.number("delta", delta, above=0, below=1)
    checks.one_of("report", report, REPORTS)
    checks.number("report_delta", report_delta, at_least=0, below=1)
    if report_delta:
        if report != PURE:
            raise ArgumentError("report_delta", report_delta, f"0 with report={report}")
        if _lost(report_epsilon, report_epsilon, reports, report_delta) > _SHARE * delta:
            most = _SHARE * delta / _lost(report_epsilon, report_epsilon, reports, 1.0)
            raise ArgumentError(
                "report_delta",
                report_delta,
                f"<= {most:.3g}, far below delta/n = {delta / reports:.3g}",
                "shuffling amplifies reports of larger delta by no theorem that is used here",
            )

    def achieved(epsilon: float) -> bool:
        lost = _lost(epsilon, report_epsilon, reports, report_delta)
        shuffled_delta = delta_of_shuffled(epsilon, report_epsilon, reports, report, _TAILS * delta)
        return shuffled_delta + lost <= delta

    # δ falls with ε: bisect, and return the end that is certain to achieve δ.
    low, high = 0.0, report_epsilon
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if achieved(middle) else (middle, high)
        if high - low < 1e-6 * high:
            break
    return high


def _lost(epsilon: float, report_epsilon: float, reports: int, report_delta: float) -> float:
    """Return the share of δ that the δ₀ of all reports takes."""
    factor = (math.exp(epsilon) + 1.0) * (1.0 + math.exp(-report_epsilon) / 2.0)
    return factor * reports * report_delta


def gaussian_report(noise_multiplier: float, reports: int, delta: float) -> tuple[float, float]:
    """Return ε₀ and δ₀ of a Gaussian report under replacement, where n reports take a tenth of δ.

    ε₀ and δ₀ depend on each other through e^ε₀, so δ₀ is made smaller until both fit.

    Args:
        noise_multiplier: z of one report.
        reports: n.
        delta: δ of the shuffled reports.

    Raises:
        ArgumentError: The noise is so small that no δ₀ fits.
    """
    checks.number("noise_multiplier", noise_multiplier, above=0)
    event = dp_event.GaussianDpEvent(noise_multiplier)
    report_delta = delta / reports
    for _ in range(200):
        epsilon = GdpAccountant().epsilon_of({event: 1}, report_delta, REPLACE_ONE)
        most = _SHARE * delta / _lost(min(epsilon, 700.0), epsilon, reports, 1.0)
        if report_delta <= most:
            return epsilon, report_delta
        report_delta = most / 2
        if report_delta < 1e-90:
            break
    raise ArgumentError(
        "noise_multiplier",
        noise_multiplier,
        "so large that a report has a delta far below delta/n at a small epsilon",
        "shuffling does not amplify these reports by any theorem that is used here",
    )


def secure_sum_epsilon(report_epsilon: float, reports: int, delta: float) -> float:
    """Return ε of a secure sum of n bits that is as accurate as the sum of n flipped bits.

    In the secure sum the clients add shares of Gaussian noise, and the server sees nothing but the noised
    sum. Flipped bits give the sum with standard deviation √(n e^ε₀)/(e^ε₀ - 1). A Gaussian of this deviation
    on the exact sum, which one client moves by 1, has the ε returned. Neighbours replace a client's bit.

    Args:
        report_epsilon: ε₀ of a flipped bit.
        reports: n.
        delta: δ.
    """
    std = math.sqrt(reports * math.exp(report_epsilon)) / math.expm1(report_epsilon)
    event = dp_event.GaussianDpEvent(std)
    return GdpAccountant().epsilon_of({event: 1}, delta, ADD_OR_REMOVE)
