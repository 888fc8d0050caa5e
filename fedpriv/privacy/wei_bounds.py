"""The two bounds of Wei et al., as printed and as they are: the moment bound (39) and theorem 2.

Their letters: U clients in all and K chosen; here K in all (``clients``) and m chosen (``cohort``), as
everywhere in fedpriv.

Wei, Li, Ding, Ma, Su, Zhang, Poor: Performance Analysis and Optimization in Privacy-Preserving
Federated Learning (2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

FORMS = ("printed", "corrected")


def sensitivity(clip_norm: float, records: int) -> float:
    """Δ = 2C/n, eq. (14): what one of a client's n records is said to move its upload by."""
    clip_norm = checks.number("clip_norm", clip_norm, above=0)
    return 2 * clip_norm / checks.whole("records", records, at_least=1)


def log_moment_bound(order: int, sample_rate: float, delta_over_sigma: float) -> float:
    """Logarithm of eq. (39): q λ(λ+1) Δ²/(2σ²), for a moment of order λ."""
    order, q, ratio = _checked(order, sample_rate, delta_over_sigma)
    return q * order * (order + 1) * ratio**2 / 2


def log_moment(order: int, sample_rate: float, delta_over_sigma: float) -> float:
    """Logarithm of eq. (38), which is exact for whole orders λ:

    D = Σ_{l=0}^{λ+1} binom(λ+1, l) (1-q)^{λ+1-l} q^l exp(l(l-1) Δ²/(2σ²)).
    """
    order, q, ratio = _checked(order, sample_rate, delta_over_sigma)
    n, l = order + 1, np.arange(order + 2)  # noqa: E741  (the paper's letter)
    binomial = gammaln(n + 1) - gammaln(l + 1) - gammaln(n - l + 1)
    return float(
        logsumexp(binomial + xlogy(n - l, 1 - q) + xlogy(l, q) + l * (l - 1) * ratio**2 / 2)
    )


def first_failure(
    sample_rate: float, delta_over_sigma: float, largest_order: int = 100
) -> int | None:
    """The least order λ at which eq. (39) is below the moment it is to bound; None: at none."""
    for order in range(1, checks.whole("largest_order", largest_order, at_least=1) + 1):
        place = (order, sample_rate, delta_over_sigma)
        if log_moment(*place) > log_moment_bound(*place):
            return order
    return None


def _checked(order: int, sample_rate: float, delta_over_sigma: float) -> tuple[int, float, float]:
    return (
        checks.whole("order", order, at_least=1),
        checks.number("sample_rate", sample_rate, above=0, at_most=1),
        checks.number("delta_over_sigma", delta_over_sigma, above=0),
    )


@dataclass(frozen=True)
class Learning:
    """What theorem 2 presumes about a federated problem and its training.

    Attributes:
        smoothness: L, of every client's loss.
        curvature: μ of the Polyak-Lojasiewicz condition, at most L.
        learning_rate: η, at most 1/L.
        initial_gap: Ξ = F(w⁰) - F(w*).
        divergence: Mean over clients of ‖∇F_i - ∇F‖².
        dimension: d, the number of weights; only the corrected form depends on it.
        clients, cohort: K, and m of them in a round.
        records: n of a client.
        clip_norm: C.
        delta: δ.
    """

    smoothness: float
    curvature: float
    learning_rate: float
    initial_gap: float
    divergence: float
    dimension: int
    clients: int
    cohort: int
    records: int
    clip_norm: float
    delta: float

    def __post_init__(self) -> None:
        largest = checks.number("smoothness", self.smoothness, above=0)
        checks.number("curvature", self.curvature, above=0, at_most=largest)
        checks.number("learning_rate", self.learning_rate, above=0)
        if self.learning_rate * largest > 1 + 1e-12:
            raise ArgumentError("learning_rate", self.learning_rate, f"<= 1/L = {1 / largest:g}")
        checks.number("initial_gap", self.initial_gap, at_least=0)
        checks.number("divergence", self.divergence, at_least=0)
        checks.whole("dimension", self.dimension, at_least=1)
        checks.whole("clients", self.clients, at_least=2)
        checks.whole("cohort", self.cohort, at_least=1, at_most=self.clients)
        sensitivity(self.clip_norm, self.records)
        checks.number("delta", self.delta, above=0, below=1)

    @property
    def contraction(self) -> float:
        """A = 1 - 2μη + μη²L: what is left of the gap after a round without noise."""
        eta = self.learning_rate
        return 1 - 2 * self.curvature * eta + self.curvature * eta**2 * self.smoothness

    @property
    def sampling_gap(self) -> float:
        """(K-m)/(m(K-1)) times the divergence: what sampling clients adds."""
        left_out = (self.clients - self.cohort) / (self.cohort * (self.clients - 1))
        return left_out * self.divergence


def noise_variance(learning: Learning, epsilon: float, rounds: np.ndarray) -> np.ndarray:
    """s² = 2 q T Δ² ln(1/δ)/ε², eq. (15), of each weight of an upload; q = m/K."""
    delta = sensitivity(learning.clip_norm, learning.records)
    q = learning.cohort / learning.clients
    return 2 * q * rounds * delta**2 * math.log(1 / learning.delta) / epsilon**2


def convergence_bound(
    rounds: Sequence[int] | np.ndarray, epsilon: float, learning: Learning, form: str = "printed"
) -> np.ndarray:
    """Theorem 2's bound of F(w^T) - F(w*) for each T in ``rounds``.

    ``printed``, eq. (16), with κ0 = L² Δ² ln(1/δ)/μ and κ1 = η² L² div/(2μ):

        A^T Ξ + (1-A^T) (κ0 T m/(K² ε²) + κ1 (K-m)/(m(K-1)))

    Its noise term is for one weight, as if K uploads were averaged rather than m, and it is proved only
    for η = 1/L. (Eq. (62) prints a further factor K before κ1's term.)

    ``corrected``, the sum of the per-round terms of eq. (59), for any η <= 1/L and d weights:

        A^T Ξ + (1-A^T)/(η(2-ηL)μ) (L/2 · d s²/m + η² L/2 · div (K-m)/(m(K-1)))

    At η = 1/L the noise term is d K/m times the printed one, and the other term is the same.
    """
    checks.one_of("form", form, FORMS)
    epsilon = checks.number("epsilon", epsilon, above=0)
    rounds = np.asarray(rounds, dtype=float)
    if not len(rounds) or rounds.min() < 1:
        raise ArgumentError("rounds", rounds.tolist(), "numbers of rounds >= 1")
    big_l, mu, eta = learning.smoothness, learning.curvature, learning.learning_rate
    left = learning.contraction**rounds
    if form == "printed":
        delta = sensitivity(learning.clip_norm, learning.records)
        kappa_0 = big_l**2 * delta**2 * math.log(1 / learning.delta) / mu
        noise = kappa_0 * rounds * learning.cohort / (learning.clients**2 * epsilon**2)
        sampling = eta**2 * big_l**2 / (2 * mu) * learning.sampling_gap
    else:
        per_round = 1 / (eta * (2 - eta * big_l) * mu)
        variance = noise_variance(learning, epsilon, rounds) / learning.cohort
        noise = per_round * big_l / 2 * learning.dimension * variance
        sampling = per_round * eta**2 * big_l / 2 * learning.sampling_gap
    return left * learning.initial_gap + (1 - left) * (noise + sampling)


def best_rounds(
    epsilon: float, learning: Learning, form: str = "printed", most: int = 10_000
) -> int:
    """The T from 1 to ``most`` with the least bound."""
    rounds = np.arange(1, checks.whole("most", most, at_least=1) + 1)
    return int(rounds[convergence_bound(rounds, epsilon, learning, form).argmin()])
