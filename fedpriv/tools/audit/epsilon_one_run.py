"""Lower bounds of ε from one run with m canaries, each included by its own coin.

An auditor guesses r of the m coins from scores, v of them rightly, and abstains from the others. If the
mechanism were (ε, δ)-DP, v would seldom be large.

Reference:
    Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from fedpriv.tools.audit.epsilon_guesses import Guesses

LARGEST = 200.0
"""The largest bound that is ever returned."""
_PRECISION = 1e-4  # of a bound, by bisection


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability of so many right guesses if the mechanism is (ε, δ)-DP.

    Theorem 5.2 of the paper, for m canaries, r guesses, v of them right:

        P[W ≥ v] + 2 m δ max_{1≤i≤v} P[v > W ≥ v - i] / i,    W ~ Binomial(r, e^ε/(1 + e^ε))

    Args:
        guesses: The guesses.
        epsilon: ε.
        delta: δ.

    Example:
        >>> p_value(Guesses(canaries=10, made=10, right=10), epsilon=0.0, delta=0.0)
        0.0009765625
    """
    m, r, v = guesses.canaries, guesses.made, guesses.right
    accuracy = float(special.expit(epsilon))
    counts = np.arange(1, v + 1)
    beyond = np.append(1.0, special.betainc(counts, r - counts + 1.0, accuracy))  # P[W ≥ 0 … v]
    slack = 0.0
    if delta and v:
        slack = float(np.max((beyond[v - counts] - beyond[v]) / counts))
    return min(1.0, float(beyond[v]) + 2 * m * delta * slack)


def lower_bound(guesses: Guesses, delta: float, significance: float) -> float:
    """Return the ε that is refuted: with probability at most ``significance`` the true ε is below.

    Args:
        guesses: The guesses.
        delta: δ.
        significance: Probability that the bound is wrong.
    """
    return largest_refuted(lambda epsilon: p_value(guesses, epsilon, delta) <= significance)


def largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Return sup{ε ≥ 0: refuted(ε)} by bisection; 0 if 0 is not refuted, and at most ``LARGEST``.

    Args:
        refuted: A function that is true up to some ε and false beyond.
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if low >= LARGEST:
            return LARGEST
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
