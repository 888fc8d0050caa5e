"""Lower bounds of ε within a family of mechanisms whose noise is the only unknown.

Such a bound refutes "this mechanism, with at least that much noise". That is a statement about trade-off
functions f, not about (ε, δ). Another mechanism that is (ε, δ)-DP with the ε named here may pass or fail the
same test. So such a bound never refutes a claim of (ε, δ).

Reference:
    Mahloujifar, Melis, Chaudhuri, "Auditing f-differential privacy in one run", 2024 (arXiv 2410.22235).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attr
import numpy as np
from dp_accounting import dp_event
from scipy import special

from fedpriv.privacy.accountants.base import Composition
from fedpriv.privacy.accountants.gaussian import gaussian_delta
from fedpriv.privacy.accountants.pld import PldAccountant
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff
from fedpriv.tools.audit.epsilon_guesses import Guesses
from fedpriv.tools.audit.epsilon_one_run import largest_refuted

LeastFalsePositives = Callable[[float], float]
"""f̄⁻¹, a function from the true positive rate y of a test to its smallest false positive rate."""


class Family(Protocol):
    """A family of mechanisms, ordered by ε at the run's δ."""

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        """Return f̄⁻¹ of the member that is exactly (ε, δ)-DP."""


def refutes(guesses: Guesses, least: LeastFalsePositives, significance: float) -> bool:
    """Return whether the number of right guesses refutes every mechanism with this trade-off function.

    Algorithm 3 of the paper, with abstentions, for m canaries, c guesses, v of them right, and significance
    τ:

        r = τ v/m,  h = τ (c - v)/m
        for i = v-1, …, 0:   h' = max(h, f̄⁻¹(r)),   r ← r + i/(c - i) (h' - h),   h ← h'
        refuted if r + h > c/m

    Args:
        guesses: The guesses.
        least: f̄⁻¹ of the mechanism.
        significance: τ, the probability of so many right guesses by chance.
    """
    m, made, right = guesses.canaries, guesses.made, guesses.right
    r = significance * right / m
    h = significance * (made - right) / m
    for i in range(right - 1, -1, -1):
        higher = max(h, least(r))
        if higher == h:  # neither r nor h changes any more
            break
        r, h = min(1.0, r + i / (made - i) * (higher - h)), higher
    return r + h > made / m


def lower_bound(guesses: Guesses, family: Family, significance: float) -> float:
    """Return ε at δ of the noisiest member of the family that is refuted; 0 if none is.

    Args:
        guesses: The guesses.
        family: The family of mechanisms.
        significance: Probability that the bound is wrong, if the mechanism is in the family.
    """

    def refuted(epsilon: float) -> bool:
        return refutes(guesses, family.least_false_positives(epsilon), significance)

    return largest_refuted(refuted)


class GaussianFamily:
    """The Gaussian trade-off functions, f̄⁻¹(y) = Φ(Φ⁻¹(y) - μ), with μ unknown.

    Attributes:
        delta: The run's δ.
    """

    def __init__(self, delta: float):
        self.delta = delta

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        mu = gaussian_mu(epsilon, self.delta)
        return lambda rate: float(special.ndtr(special.ndtri(rate) - mu))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the μ at which μ-GDP is exactly (ε, δ)-DP, by bisection.

    Args:
        epsilon: ε.
        delta: δ, above 0.

    Example:
        >>> round(gaussian_mu(gaussian_epsilon(1.0, 1e-5), 1e-5), 3)
        1.0
    """
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) < delta:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) < delta else (low, middle)
    return low


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return ε(δ) of μ-GDP.

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 2)
        4.38
    """
    return largest_refuted(lambda epsilon: gaussian_delta(epsilon, mu) > delta) if mu > 0 else 0.0


class LedgerFamily:
    """The ledger's mechanism with its sampling and number of releases, and σ multiplied by an unknown factor.

    Members are found on a grid of factors. An ε between two members counts as that of the larger.

    Args:
        composition: The events of the worst client in the ledger, with their numbers.
        neighbours: Name of the adjacency.
        delta: The run's δ.

    Attributes:
        delta: The run's δ.
    """

    def __init__(self, composition: Composition, neighbours: str, delta: float):
        self._composition, self._neighbours, self.delta = dict(composition), neighbours, delta
        self._found: dict[int, tuple[float, TradeOff]] = {}

    def _member(self, number: int) -> tuple[float, TradeOff]:
        """Return (ε at δ, trade-off curve) of the member whose noise is _GRID^-number times the ledger's."""
        if number not in self._found:
            factor = _GRID**-number
            scaled = {with_noise(e, factor): count for e, count in self._composition.items()}
            epsilon = _ACCOUNTANT.epsilon_of(scaled, self.delta, self._neighbours)
            deltas = _ACCOUNTANT.deltas_of(scaled, EPSILONS, self._neighbours)
            self._found[number] = (epsilon, TradeOff(EPSILONS, deltas))
        return self._found[number]

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        low, high = -_WIDEST, _WIDEST
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._member(middle)[0] < epsilon else (low, middle)
        _, curve = self._member(low)
        return lambda rate: least_false_positives(curve, rate)


_GRID, _WIDEST = 1.02, 150  # the grid: factors of σ from .05 to 20
_ACCOUNTANT = PldAccountant()


def least_false_positives(curve: TradeOff, rate: float) -> float:
    """Return the smallest FPR that a test can have.

    By (ε, δ)-DP for every ε on the curve, FPR ≥ e^-ε (TPR - δ) and FPR ≥ 1 - δ - e^ε (1 - TPR).

    Args:
        curve: The trade-off curve of the mechanism.
        rate: TPR of the test.
    """
    rise = np.exp(curve.epsilons)
    low = (rate - curve.deltas) / rise
    high = 1.0 - curve.deltas - rise * (1.0 - rate)
    return max(0.0, float(np.max(np.maximum(low, high))))


def with_noise(event: dp_event.DpEvent, factor: float) -> dp_event.DpEvent:
    """Return the event with every noise multiplier in it, however deep, multiplied by ``factor``.

    Events without a noise multiplier stay as they are.
    """
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent(tuple(with_noise(e, factor) for e in event.events))
    inner = getattr(event, "event", None)
    if inner is not None:
        return attr.evolve(event, event=with_noise(inner, factor))
    if hasattr(event, "noise_multiplier"):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier * factor)
    return event
