"""Group privacy from the mechanism itself: data sets that differ in k clients (or records) at once.

The mechanism is a Poisson-sampled Gaussian of a cohort. Each of the k units takes part with probability q, so
that a Binomial(k, q) number of them moves the sum, by at most C each. The pair of distributions

    N(0, z²)    and    Σ_j Binomial(k, q)(j) N(j, z²)        in units of C

dominates a round (Choquette-Choo, Ganesh, Steinke, Thakurta 2023, corollary 4.7), and T rounds compose. This
is tighter than (ε, δ) group privacy, which turns ε into k ε and δ into δ (e^{kε} - 1)/(e^ε - 1).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from fedpriv.common import checks
from fedpriv.privacy.accountants.gaussian import deltas_of_sum
from fedpriv.privacy.accountants.pld import deltas_of_loss
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off

_CELL = 1e-3


def group_trade_off(
    noise_multiplier: float, sample_rate: float, rounds: int, units: int
) -> TradeOff:
    """Return the largest TPR at each FPR of an attack that tells whether k units were added.

    Args:
        noise_multiplier: z = noise std ÷ clip norm.
        sample_rate: q of every unit in every round.
        rounds: T.
        units: k ≥ 0. For units that are replaced, apply the curve twice (``TradeOff.tpr(…, 2)``).

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> curve = group_trade_off(noise_multiplier=1.0, sample_rate=1.0, rounds=1, units=2)
        >>> type(curve).__name__
        'TradeOff'
    """
    z = checks.number("noise_multiplier", noise_multiplier, above=0)
    q = checks.number("sample_rate", sample_rate, above=0, at_most=1)
    checks.whole("rounds", rounds, at_least=1)
    k = checks.whole("units", units, at_least=0)
    if k == 0:
        return trade_off(np.zeros_like(EPSILONS))
    if q == 1.0:
        return trade_off(deltas_of_sum(rounds * (k / z) ** 2, EPSILONS))
    from dp_accounting.pld import privacy_loss_distribution as library

    # Binomial weights by logarithms: k can be large enough for binomial coefficients to overflow.
    counts = np.arange(k + 1)
    log_shares = (
        special.gammaln(k + 1) - special.gammaln(counts + 1) - special.gammaln(k - counts + 1)
    )
    shares = np.exp(log_shares + counts * math.log(q) + (k - counts) * math.log1p(-q))
    once = library.from_mixture_gaussian_mechanism(
        z, counts.astype(float), shares / shares.sum(), value_discretization_interval=_CELL
    )
    return trade_off(deltas_of_loss(once.self_compose(rounds), EPSILONS))


def group_of(epsilon: float, delta: float, units: int) -> TradeOff:
    """Return the trade-off curve of k units by (ε, δ) group privacy alone.

    The curve has the one pair (k ε, δ (e^{kε} - 1)/(e^ε - 1)).

    Args:
        epsilon: ε > 0 of one unit.
        delta: δ of one unit.
        units: k ≥ 0; with k = 0 the curve is that of data sets which do not differ.

    Raises:
        ArgumentError: k is not a whole number ≥ 0.
    """
    k = checks.whole("units", units, at_least=0)
    if k == 0:
        return trade_off(np.zeros_like(EPSILONS))
    largest = min(1.0, delta * math.expm1(min(k * epsilon, 700.0)) / math.expm1(epsilon))
    return TradeOff(np.array([k * epsilon]), np.array([largest]))
