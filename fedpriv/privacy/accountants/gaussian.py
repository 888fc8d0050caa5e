"""Accountants of plain Gaussians (GDP and zCDP), whose composition is a sum.

n Gaussians of noise multipliers z_j on the same data are one Gaussian of multiplier (Σ z_j^-2)^(-1/2). This
also holds where z_j is chosen after the earlier answers were seen, as long as Σ z_j^-2 stays within a bound
that is fixed in advance (Smith & Thakurta 2022; Koskela, Tobaben, Honkela 2023). The running total is
therefore a privacy filter.

    GDP (Dong, Roth, Su 2022):  μ = (Σ z_j^-2)^(1/2),  δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)
    zCDP (Bun & Steinke 2016):  ρ = Σ z_j^-2 / 2,      ε = ρ + 2 (ρ log(1/δ))^(1/2)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Self

import numpy as np
from dp_accounting import dp_event
from scipy import special

from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants.base import (
    Accountant,
    Composition,
    RunningTotal,
    alike,
)
from fedpriv.privacy.core.client_groups import ClientGroups, tensor
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.rdp import without_noise


class GaussianAccountant(Accountant):
    """Base class of GDP and zCDP: the cost of a composition is a function of Σ z^-2.

    Composition: corollary 3.3 of Dong, Roth, Su 2022 for GDP; lemma 1.7 of Bun & Steinke 2016 for zCDP.
    """

    has_filter = True

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        if isinstance(event, (dp_event.GaussianDpEvent, dp_event.NonPrivateDpEvent)):
            return None
        return (
            f"{self.name} is exact for Gaussians without sampling and not valid for "
            f"{event_words(event)}"
        )

    @abstractmethod
    def epsilon_of_sum(self, inverse_squares: float, delta: float) -> float:
        """Return ε at ``delta`` of Gaussians with Σ z^-2 = ``inverse_squares``.

        Args:
            inverse_squares: Σ z^-2 over all draws; 0 for nothing released, ``inf`` for a draw without noise.
            delta: δ, in (0, 1).
        """

    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        return self.epsilon_of_sum(_sum_of(composition.items()), delta)

    def deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        return deltas_of_sum(_sum_of(composition.items()), epsilons)

    def largest_sum(self, epsilon: float, delta: float) -> float:
        """Return the largest Σ z^-2 that costs at most ``epsilon`` at ``delta``, by bisection."""
        high = 1.0
        while self.epsilon_of_sum(high, delta) < epsilon:
            high *= 2.0
        low = 0.0
        # Bisect down to neighbouring floating-point numbers. The lower end always fits the budget.
        for _ in range(200):
            middle = (low + high) / 2.0
            if not low < middle < high:
                break
            fits = self.epsilon_of_sum(middle, delta) <= epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def running(self, clients: int, neighbours: str) -> GaussianTotal:
        return GaussianTotal(self, clients)

    def filter(
        self,
        clients: int,
        neighbours: str,
        first: dp_event.DpEvent,
        epsilon: float,
        delta: float,
    ) -> GaussianTotal:
        return GaussianTotal(self, clients)


class GdpAccountant(GaussianAccountant):
    """Gaussian differential privacy (Dong, Roth, Su 2022): exact for Gaussians without sampling.

        μ² = Σ z_j^-2 (corollary 3.3),    δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) (corollary 2.13)

    Example:
        >>> from dp_accounting.dp_event import GaussianDpEvent
        >>> composition = {GaussianDpEvent(2.0): 4}
        >>> round(GdpAccountant().epsilon_of(composition, 1e-5, "add_or_remove"), 3)
        4.377
    """

    name = "gdp"

    def epsilon_of_sum(self, inverse_squares: float, delta: float) -> float:
        if inverse_squares == 0:
            return 0.0
        if math.isinf(inverse_squares):
            return math.inf
        mu = math.sqrt(inverse_squares)
        if gaussian_delta(0.0, mu) <= delta:
            return 0.0
        high = mu * mu / 2.0 + mu * math.sqrt(2.0 * math.log(1.0 / delta)) + 1.0
        if mu > 1e4:  # the root is lost in rounding; zCDP's bound agrees to four digits
            return high
        from scipy import optimize

        root = optimize.brentq(
            lambda epsilon: gaussian_delta(epsilon, mu) - delta, 0.0, high, xtol=1e-12
        )
        return float(root) + 1e-12  # the root is exact to 1e-12: err upwards

    def describe(self) -> str:
        return "GDP, the exact trade-off of Gaussians"


class ZcdpAccountant(GaussianAccountant):
    """Zero-concentrated differential privacy (Bun & Steinke 2016).

        ρ = Σ z_j^-2 / 2 (proposition 1.6, lemma 1.7),    ε = ρ + 2 (ρ log(1/δ))^(1/2) (proposition 1.3)

    Example:
        >>> from dp_accounting.dp_event import GaussianDpEvent
        >>> composition = {GaussianDpEvent(2.0): 4}
        >>> round(ZcdpAccountant().epsilon_of(composition, 1e-5, "add_or_remove"), 3)
        5.299
    """

    name = "zcdp"

    def epsilon_of_sum(self, inverse_squares: float, delta: float) -> float:
        rho = inverse_squares / 2.0
        return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))

    def describe(self) -> str:
        return "zCDP"


class GaussianTotal(RunningTotal):
    """The sum Σ z^-2 of each client, which is also a privacy filter. Clients charged the same share one sum.

    Fully adaptive composition of Gaussians: Smith & Thakurta 2022; Koskela, Tobaben, Honkela 2023.

    Attributes:
        accountant: The accountant that converts a sum to ε.
    """

    def __init__(self, accountant: GaussianAccountant, clients: int):
        self.accountant = accountant
        self._sums = ClientGroups(clients, np.zeros(1))
        self._allowed: dict[tuple[float, float], float] = {}

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if count:
            step = count * inverse_square(event)
            self._sums.charge(event, clients, count, lambda spent: spent + step)

    def epsilon(self, delta: float) -> np.ndarray:
        sums = self._sums.distinct.tolist()
        epsilons = np.array([self.accountant.epsilon_of_sum(spent, delta) for spent in sums])
        return self._sums.spread(epsilons)

    def worst(self, delta: float) -> float:
        return self.accountant.epsilon_of_sum(self._largest, delta)

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        return deltas_of_sum(self._largest, epsilons)

    @property
    def _largest(self) -> float:
        return float(self._sums.distinct.max())

    def deltas_within(self, epsilons: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
        return deltas_of_sum(self._largest_sum(epsilon, delta), epsilons)

    def would_exceed(
        self,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        clients: np.ndarray | None = None,
    ) -> np.ndarray:
        step = count * inverse_square(event) if count else 0.0
        total, largest = self._sums.distinct + step, self._largest_sum(epsilon, delta)
        exceeds = ~(total <= largest)
        # Near the limit the sums are compared up to rounding only, so ε itself decides.
        for i in np.flatnonzero(exceeds & (total <= largest * (1 + 1e-9))):
            exceeds[i] = self.accountant.epsilon_of_sum(float(total[i]), delta) > epsilon
        return self._sums.spread(exceeds, clients)

    def share_of(self, epsilon: float, delta: float) -> float:
        """Return the spent share of the largest sum of z^-2 that the budget allows."""
        return float(min(1.0, self._largest / self._largest_sum(epsilon, delta)))

    def _largest_sum(self, epsilon: float, delta: float) -> float:
        if (epsilon, delta) not in self._allowed:
            self._allowed[epsilon, delta] = self.accountant.largest_sum(epsilon, delta)
        return self._allowed[epsilon, delta]

    def agrees_with(self, other: Self, delta: float) -> bool:
        return alike(*self._sums.pairs(other._sums))

    def filter_words(self) -> str:
        return "the sum of the z^-2, kept within what the budget allows, guards it"

    def state_dict(self) -> dict[str, object]:
        return {"sums": self._sums.state_dict(tensor)}

    def load_state_dict(self, state: StateDict) -> None:
        self._sums.load_state_dict(state["sums"], lambda sums: sums.cpu().numpy().copy())


def _sum_of(counted: Iterable[tuple[dp_event.DpEvent, int]]) -> float:
    """Return Σ z^-2 over events and their counts, rounded once, so that the order does not matter."""
    return math.fsum(count * inverse_square(event) for event, count in counted if count)


def inverse_square(event: dp_event.DpEvent) -> float:
    """Return z^-2 of one Gaussian; ``inf`` without noise."""
    if without_noise(event):
        return math.inf
    return event.noise_multiplier**-2


def deltas_of_sum(inverse_squares: float, epsilons: np.ndarray) -> np.ndarray:
    """Return δ at each of ``epsilons`` of Gaussians with Σ z^-2 = ``inverse_squares``.

    The result errs upwards by more than the two terms of δ may be off by rounding.
    """
    if inverse_squares == 0:
        return np.zeros_like(epsilons)
    if math.isinf(inverse_squares):
        return np.ones_like(epsilons)
    mu = math.sqrt(inverse_squares)
    exact = np.array([gaussian_delta(epsilon, mu) for epsilon in epsilons.tolist()])
    return exact + _ROUNDING


_ROUNDING = 1e-12  # more than the rounding error of the difference of the two terms of δ


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return δ(ε) of a Gaussian with sensitivity ÷ noise = μ (Balle & Wang 2018, theorem 8).

    δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), where Φ is the standard normal distribution function.
    """
    upper = special.ndtr(-epsilon / mu + mu / 2.0)
    # The exponent is at most 0, also where its two terms are too large to cancel.
    lower = np.exp(min(0.0, epsilon + special.log_ndtr(-epsilon / mu - mu / 2.0)))
    return float(upper - lower)
