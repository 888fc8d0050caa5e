"""Random stopping: Rényi DP of the best of a random, secret number of runs.

A search draws K from a law fixed in advance, runs K independent copies of a mechanism Q, and releases only
the best outcome, by a score that is a function of what Q released and of public data. K and the other K - 1
outcomes stay secret.

Truncated negative binomial law (theorem 2), η > -1, 0 < γ < 1:

    P[K = k] = (1-γ)^k / (γ^-η - 1) · Π_{l<k} (l+η)/(l+1)      (η ≠ 0),      (1-γ)^k / (k log(1/γ))   (η = 0)

If Q is (α, ε)-RDP and (α̂, ε̂)-RDP, the search is (α, ε')-RDP with

    ε' = ε + (1+η) (1 - 1/α̂) ε̂ + (1+η) log(1/γ) / α̂ + log(E[K]) / (α-1)

Poisson law of mean μ (theorem 6): if Q is (α, ε)-RDP and (log(1 + 1/(α-1)), δ̂)-DP, the search is
(α, ε')-RDP with

    ε' = ε + μ δ̂ + log(μ) / (α-1)

Source: Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", 2022.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta
from scipy.optimize import brentq

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

_LARGEST = 1_000_000  # largest number of trials that a law is tabulated for
_SMALLEST_GAMMA = 1e-4  # keeps the probability beyond the table at e^-100


class NegativeBinomialTrials:
    """Number of trials K ≥ 1 with the truncated negative binomial law.

    Args:
        eta: η > -1; 0 is the logarithmic law, 1 the geometric law.
        gamma: γ in [1e-4, 1).
    """

    def __init__(self, eta: float, gamma: float):
        self.eta = checks.number("eta", eta, above=-1)
        self.gamma = checks.number("gamma", gamma, at_least=_SMALLEST_GAMMA, below=1)

    @classmethod
    def of_mean(cls, eta: float, mean: float) -> NegativeBinomialTrials:
        """Return the law with this η and E[K].

        Args:
            eta: η.
            mean: E[K] > 1.

        Raises:
            ArgumentError: γ would be below 1e-4. Most searches would then be short and a few endless.
        """
        largest, mean = cls(eta, _SMALLEST_GAMMA).mean, checks.number("mean", mean, above=1)
        if mean > largest:
            raise ArgumentError("mean", mean, f"<= {largest:.4g} with eta={eta:g}")

        def excess(log_gamma: float) -> float:
            return math.log(cls(eta, math.exp(log_gamma)).mean / mean)

        # E[K] falls with γ, from that largest one towards 1
        ends = math.log(_SMALLEST_GAMMA * (1 + 1e-12)), -1e-9
        return cls(eta, math.exp(brentq(excess, *ends, xtol=1e-14)))

    @property
    def words(self) -> str:
        """Description of the law and its parameters."""
        return f"negative binomial law, eta {self.eta:g}, gamma {self.gamma:.6g} ({self.mean:.4g} on average)"

    def quantile(self, probability: float) -> int:
        """Return the smallest k with P[K ≤ k] > ``probability``. Applied to a uniform number this draws K."""
        # The table is normalised by its own sum, so that rounding cannot leave a gap below 1.
        beyond = 100 / self.gamma + 20 * self.mean  # from here on, (1-γ)^k is below e^-100
        upto = np.cumsum(self.probabilities(int(beyond)))
        return 1 + int(np.searchsorted(upto / upto[-1], probability, side="right"))

    @property
    def mean(self) -> float:
        """E[K]."""
        eta, gamma = self.eta, self.gamma
        if eta == 0:
            return (1 / gamma - 1) / math.log(1 / gamma)
        return eta * (1 - gamma) / (gamma * (1 - gamma**eta))

    def probabilities(self, most: int) -> np.ndarray:
        """Return P[K = 1], …, P[K = most]."""
        eta, gamma = self.eta, self.gamma
        k = np.arange(1, min(most, _LARGEST) + 1, dtype=float)
        if eta == 0:
            return (1 - gamma) ** k / (k * math.log(1 / gamma))
        # the first factor of the product is η, whose sign is that of γ^-η - 1
        first = eta / (gamma**-eta - 1)
        factors = np.concatenate([[1.0], (k[1:] - 1 + eta) / k[1:]])
        return first * (1 - gamma) ** k * np.cumprod(factors)

    def rdp(self, rdp: np.ndarray, orders: np.ndarray) -> np.ndarray:
        """Return the RDP of the search at each order, with the best α̂.

        Args:
            rdp: RDP of one trial at each order.
            orders: Orders α > 1, ascending.
        """
        rdp, orders = np.asarray(rdp, dtype=float), np.asarray(orders, dtype=float)
        each = 1 + self.eta
        extra = each * ((1 - 1 / orders) * rdp + math.log(1 / self.gamma) / orders)
        return _monotone(rdp + float(np.min(extra)) + math.log(self.mean) / (orders - 1))


class PoissonTrials:
    """Number of trials K with the Poisson law. With K = 0 the search releases nothing about the data.

    Args:
        mean: μ ≥ 1.
    """

    def __init__(self, mean: float):
        self.mean = checks.number("mean", mean, at_least=1, below=_LARGEST / 10)

    @property
    def words(self) -> str:
        """Description of the law and its parameter."""
        return f"Poisson law of mean {self.mean:g}"

    def quantile(self, probability: float) -> int:
        """Return the smallest k with P[K ≤ k] > ``probability``. Applied to a uniform number this draws K."""
        upto = np.cumsum(self.probabilities(int(2 * self.mean) + 100))
        return int(np.searchsorted(upto / upto[-1], probability, side="right"))

    def probabilities(self, most: int) -> np.ndarray:
        """Return P[K = 0], …, P[K = most]."""
        k = np.arange(most + 1)
        logs = k * math.log(self.mean) - self.mean - np.array([math.lgamma(i + 1.0) for i in k])
        return np.exp(logs)

    def rdp(self, rdp: np.ndarray, orders: np.ndarray) -> np.ndarray:
        """Return the RDP of the search at each order.

        Args:
            rdp: RDP of one trial at each order.
            orders: Orders α > 1, ascending.
        """
        rdp, orders = np.asarray(rdp, dtype=float), np.asarray(orders, dtype=float)
        total = np.empty_like(rdp)
        for i, order in enumerate(orders):
            delta, _ = compute_delta(orders, rdp, math.log1p(1 / (order - 1)))
            total[i] = rdp[i] + self.mean * delta + math.log(self.mean) / (order - 1)
        return _monotone(total)


def _monotone(rdp: np.ndarray) -> np.ndarray:
    """Return the smallest valid RDP at each order: a bound at a higher order holds at every lower order."""
    return np.minimum.accumulate(rdp[::-1])[::-1]
