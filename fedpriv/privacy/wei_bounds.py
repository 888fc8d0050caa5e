"""Two bounds of Wei et al., as printed and as corrected: the moment bound (39) and theorem 2.

The work has U clients in all and chooses K. Here K is the number of all clients (``clients``) and m the
number chosen (``cohort``), as everywhere in fedpriv.

Source: Wei, Li, Ding, Ma, Su, Zhang, Poor, "Performance Analysis and Optimization in Privacy-Preserving
Federated Learning" (2020).
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
    """Return Δ = 2C/n, eq. (14), by which one of a client's n records is said to move its upload.

    Args:
        clip_norm: C > 0.
        records: n ≥ 1.
    """
    clip_norm = checks.number("clip_norm", clip_norm, above=0)
    return 2 * clip_norm / checks.whole("records", records, at_least=1)


def log_moment_bound(order: int, sample_rate: float, delta_over_sigma: float) -> float:
    """Return the logarithm of eq. (39), q λ(λ+1) Δ²/(2σ²).

    Args:
        order: λ ≥ 1, an integer.
        sample_rate: q in (0, 1].
        delta_over_sigma: Δ/σ > 0.
    """
    order, q, ratio = _checked(order, sample_rate, delta_over_sigma)
    return q * order * (order + 1) * ratio**2 / 2


def log_moment(order: int, sample_rate: float, delta_over_sigma: float) -> float:
    """Return the logarithm of eq. (38), which is exact for integers λ.

        D = Σ_{l=0}^{λ+1} binom(λ+1, l) (1-q)^{λ+1-l} q^l exp(l(l-1) Δ²/(2σ²))

    Args:
        order: λ ≥ 1, an integer.
        sample_rate: q in (0, 1].
        delta_over_sigma: Δ/σ > 0.
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
    """Return the smallest order λ at which eq. (39) is below the moment that it should bound, or None.

    Args:
        sample_rate: q in (0, 1].
        delta_over_sigma: Δ/σ > 0.
        largest_order: Largest λ that is tried.
    """
    for order in range(1, checks.whole("largest_order", largest_order, at_least=1) + 1):
        arguments = (order, sample_rate, delta_over_sigma)
        if log_moment(*arguments) > log_moment_bound(*arguments):
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
    """Assumptions of theorem 2 about a federated problem and its training.

    Attributes:
        smoothness: L, of every client's loss.
        curvature: μ of the Polyak-Lojasiewicz condition, at most L.
        learning_rate: η, at most 1/L.
        initial_gap: Ξ = F(w⁰) - F(w*).
        divergence: Mean over clients of ‖∇F_i - ∇F‖².
        dimension: d, the number of weights; only the corrected form depends on it.
        clients: K, the number of all clients.
        cohort: m, the number of clients in a round.
        records: n of a client.
        clip_norm: C.
        delta: δ.

    Raises:
        ArgumentError: A value is out of range.
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
        """A = 1 - 2μη + μη²L, the share of the gap that is left after a round without noise."""
        eta = self.learning_rate
        return 1 - 2 * self.curvature * eta + self.curvature * eta**2 * self.smoothness

    @property
    def sampling_gap(self) -> float:
        """(K-m)/(m(K-1)) times the divergence, the error from sampling clients."""
        left_out = (self.clients - self.cohort) / (self.cohort * (self.clients - 1))
        return left_out * self.divergence


def noise_variance(learning: Learning, epsilon: float, rounds: np.ndarray) -> np.ndarray:
    """Return s² = 2 q T Δ² ln(1/δ)/ε² of each weight of an upload, with q = m/K, eq. (15).

    Args:
        learning: The problem.
        epsilon: ε.
        rounds: T, any shape.
    """
    delta = sensitivity(learning.clip_norm, learning.records)
    q = learning.cohort / learning.clients
    return 2 * q * rounds * delta**2 * math.log(1 / learning.delta) / epsilon**2


def convergence_bound(
    rounds: Sequence[int] | np.ndarray, epsilon: float, learning: Learning, form: str = "printed"
) -> np.ndarray:
    """Return theorem 2's bound of F(w^T) - F(w*) for each T.

    ``printed``, eq. (16), with κ0 = L² Δ² ln(1/δ)/μ and κ1 = η² L² div/(2μ):

        A^T Ξ + (1-A^T) (κ0 T m/(K² ε²) + κ1 (K-m)/(m(K-1)))

    Its noise term is for one weight, as if K uploads were averaged rather than m, and is proved only for η =
    1/L. (Eq. (62) prints a further factor K before κ1's term.)

    ``corrected``, the sum of the per-round terms of eq. (59), for any η <= 1/L and d weights:

        A^T Ξ + (1-A^T)/(η(2-ηL)μ) (L/2 · d s²/m + η² L/2 · div (K-m)/(m(K-1)))

    At η = 1/L the noise term is d K/m times the printed one, and the other term is the same.

    Args:
        rounds: The values of T [r].
        epsilon: ε > 0.
        learning: The problem.
        form: ``printed`` or ``corrected``.

    Returns:
        The bound for each T [r].

    Raises:
        ArgumentError: A value is out of range.
    """
    checks.one_of("form", form, FORMS)
    epsilon = checks.number("epsilon", epsilon, above=0)
    rounds = np.asarray(rounds, dtype=float)
    if not len(rounds) or rounds.min() < 1:
        raise ArgumentError("rounds", rounds.tolist(), "numbers of rounds >= 1")
    big_l, mu, eta = learning.smoothness, learning.curvature, learning.learning_rate
    remaining_gap = learning.contraction**rounds
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
    return remaining_gap * learning.initial_gap + (1 - remaining_gap) * (noise + sampling)


def best_rounds(
    epsilon: float, learning: Learning, form: str = "printed", most: int = 10_000
) -> int:
    """Return the T from 1 to ``most`` with the smallest bound.

    Args:
        epsilon: ε > 0.
        learning: The problem.
        form: ``printed`` or ``corrected``.
        most: Largest T that is tried.
    """
    rounds = np.arange(1, checks.whole("most", most, at_least=1) + 1)
    return int(rounds[convergence_bound(rounds, epsilon, learning, form).argmin()])
