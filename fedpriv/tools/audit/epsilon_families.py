"""Lower bounds of ε within a family of mechanisms whose noise is the one thing unknown.

They refute "this mechanism, with at least that much noise". That is a statement about trade-off functions
f, not about (ε, δ): another mechanism that is (ε, δ)-DP with the ε named here may pass or fail the same
test, so such a bound never refutes a claim of (ε, δ).
Source: Mahloujifar, Melis, Chaudhuri, "Auditing f-differential privacy in one run", 2024 (arXiv 2410.22235).
"""

from __future__ import annotations

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


class Family(Protocol):
    """Mechanisms ordered by ε at the run's δ."""

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        """Of the member that is exactly (ε, δ)-DP."""

    def words(self) -> str:
        """What is assumed."""


class LeastFalsePositives(Protocol):
    """f̄⁻¹: the true positive rate y of a test → its false positive rate at least."""

    def __call__(self, rate: float) -> float: ...


def refutes(guesses: Guesses, least: LeastFalsePositives, significance: float) -> bool:
    """Whether so many right guesses have a probability below ``significance`` for every mechanism with this
    trade-off (algorithm 3, with abstentions):

    from  r = τ v/m,  h = τ (c - v)/m,   for i = v-1, …, 0:
        h' = max(h, f̄⁻¹(r)),   r ← r + i/(c - i) (h' - h),   h ← h';     refuted if r + h > c/m

    m canaries, c guesses, v right.
    """
    m, made, right = guesses.canaries, guesses.made, guesses.right
    r = significance * right / m
    h = significance * (made - right) / m
    for i in range(right - 1, -1, -1):
        higher = max(h, least(r))
        if higher == h:  # neither moves any more
            break
        r, h = min(1.0, r + i / (made - i) * (higher - h)), higher
    return r + h > made / m


def lower_bound(guesses: Guesses, family: Family, significance: float) -> float:
    """The ε at δ of the noisiest member of the family that is refuted; 0 where none is."""

    def refuted(epsilon: float) -> bool:
        return refutes(guesses, family.least_false_positives(epsilon), significance)

    return largest_refuted(refuted)


class GaussianFamily:
    """Gaussian trade-off functions, f̄⁻¹(y) = Φ(Φ⁻¹(y) - μ), with μ unknown."""

    def __init__(self, delta: float):
        self.delta = delta

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        mu = gaussian_mu(epsilon, self.delta)
        return lambda rate: float(special.ndtr(special.ndtri(rate) - mu))

    def words(self) -> str:
        return "a Gaussian trade-off function"


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ at which μ-GDP is exactly (ε, δ)-DP."""
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) < delta:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) < delta else (low, middle)
    return low


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε(δ) of μ-GDP."""
    return largest_refuted(lambda epsilon: gaussian_delta(epsilon, mu) > delta) if mu > 0 else 0.0


class LedgerFamily:
    """The ledger's own mechanism, its sampling and its number of releases, with σ multiplied by an unknown
    factor. Members are found on a grid of factors: an ε between two of them counts as the larger's."""

    def __init__(self, composition: Composition, neighbours: str, delta: float):
        self._composition, self._neighbours, self.delta = dict(composition), neighbours, delta
        self._found: dict[int, tuple[float, TradeOff]] = {}

    def _member(self, number: int) -> tuple[float, TradeOff]:
        """(ε at δ, trade-off) of the member whose noise is GRID^-number of the ledger's."""
        if number not in self._found:
            factor = _GRID**-number
            scaled = {with_noise(e, factor): count for e, count in self._composition.items()}
            account = _ACCOUNTANT
            epsilon = account.epsilon_of(scaled, self.delta, self._neighbours)
            deltas = account.deltas_of(scaled, EPSILONS, self._neighbours)
            self._found[number] = (epsilon, TradeOff(EPSILONS, deltas))
        return self._found[number]

    def least_false_positives(self, epsilon: float) -> LeastFalsePositives:
        low, high = -_WIDEST, _WIDEST
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._member(middle)[0] < epsilon else (low, middle)
        curve = self._member(low)[1]
        return lambda rate: least_false_positives(curve, rate)

    def words(self) -> str:
        return "the ledger's mechanism, σ unknown"


_GRID, _WIDEST = 1.02, 150  # factors of σ from .05 to 20
_ACCOUNTANT = PldAccountant()


def least_false_positives(curve: TradeOff, rate: float) -> float:
    """The smallest FPR that a TPR of ``rate`` can have."""
    rise = np.exp(curve.epsilons)
    low = (rate - curve.deltas) / rise
    high = 1.0 - curve.deltas - rise * (1.0 - rate)
    return max(0.0, float(np.max(np.maximum(low, high))))


def with_noise(event: dp_event.DpEvent, factor: float) -> dp_event.DpEvent:
    """The same event with the noise of its Gaussians multiplied."""
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent(tuple(with_noise(e, factor) for e in event.events))
    inner = getattr(event, "event", None)
    if inner is not None:
        return attr.evolve(event, event=with_noise(inner, factor))
    if hasattr(event, "noise_multiplier"):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier * factor)
    return event
