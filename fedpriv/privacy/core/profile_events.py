"""Mechanisms that are known by their privacy profile, and what sampling makes of a profile.

The profile of a mechanism is δ(x) = sup H_α(M(D)‖M(D')), α = e^x, over neighbours D, D' in both orders, with
H_α(P‖Q) = ∫ (P - αQ)₊. A profile is that of one pair of distributions, which composes (Zhu, Dong, Wang 2022).

The events here are those of dp_accounting's development version, which its releases lack. ε and sensitivity
refer to the neighbouring relation of the guarantee: replacing a unit does not double them.
"""

# There is no "from __future__ import annotations" here, because core.events reads the types of the fields.
import math
from collections.abc import Callable
from dataclasses import dataclass

import attr
import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.core.names import REPLACE_ONE

_MOST_SIGMA = 1e4  # a larger discrete Gaussian has no table of its distribution
_TAIL = 10.5  # standard deviations beyond which a discrete Gaussian has a mass below 1e-25
_CUT = 39.0  # standard deviations beyond which its mass is 0 in floating point


@dataclass(frozen=True)
class Profile:
    """The profile of a pair of distributions.

    Attributes:
        deltas: δ at each x [n].
        largest: Largest loss up to a mass of ``deltas(largest)``, which counts as an infinite loss.
        smallest: Smallest loss.
    """

    deltas: Callable[[np.ndarray], np.ndarray]
    largest: float
    smallest: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaEvent(dp_event.DpEvent):
    """Any (ε, δ)-DP mechanism.

    The worst such mechanism is randomized response with probability 1 - δ, and tells all else (Kairouz, Oh,
    Viswanath 2017).
    """

    epsilon: float
    delta: float

    def profile(self) -> Profile:
        """Return δ(x) = δ + (1 - δ) (e^ε - e^x)₊ / (1 + e^ε) for x >= -ε."""
        share = 1.0 / (1.0 + math.exp(-self.epsilon))

        def deltas(x: np.ndarray) -> np.ndarray:
            above = -np.expm1(np.minimum(x - self.epsilon, 0.0)) * share
            return self.delta + (1.0 - self.delta) * np.maximum(
                above, -np.expm1(np.minimum(x, 0.0))
            )

        return Profile(deltas, self.epsilon, -self.epsilon)

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return the RDP of randomized response (Mironov 2017, proposition 5); infinite where δ > 0."""
        if self.delta:
            return np.full(len(orders), math.inf)
        epsilon, less = self.epsilon, 2.0 * orders - 1.0
        moment = np.logaddexp(0.0, -less * epsilon) - np.logaddexp(0.0, -epsilon)
        return np.minimum(epsilon + moment / (orders - 1.0), epsilon)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ExponentialMechanismEvent(dp_event.DpEvent):
    """An exponential mechanism that is ε-DP; its loss lies in [t - ε, t] for some t (bounded range).

    Source: Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential mechanisms".
    """

    epsilon: float

    def profile(self) -> Profile:
        """Return δ(x) = (e^(ε/2) - e^(x/2))² / (e^ε - 1) for |x| <= ε.

        The worst pair for one t has the losses t, with probability (e^ε - e^t)/(e^ε - 1), and t - ε. Its H_α
        is largest at t = (ε + x)/2.
        """

        def deltas(x: np.ndarray) -> np.ndarray:
            half = -np.expm1((np.minimum(x, self.epsilon) - self.epsilon) / 2.0)
            inside = half**2 / -math.expm1(-self.epsilon)
            return np.where(x < -self.epsilon, -np.expm1(np.minimum(x, 0.0)), inside)

        return Profile(deltas, self.epsilon, -self.epsilon)

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return the RDP of the worst t at each order.

        With A = e^ε - e^-(α-1)ε and B = 1 - e^-(α-1)ε, the moment y^(α-1) (A - yB)/(e^ε - 1), y = e^t, is
        largest at y = (α - 1)A / (αB).
        """
        epsilon, less = self.epsilon, orders - 1.0
        # The logarithms of A e^-ε, of B, and of 1 - e^-ε.
        log_a, log_b, log_c = (
            np.log(-np.expm1(-epsilon * factor)) for factor in (orders, less, np.ones_like(orders))
        )
        log_y = epsilon + log_a - log_b + np.log(less / orders)
        return np.minimum(log_y + (log_a - log_c - np.log(orders)) / less, epsilon)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PermuteAndFlipEvent(dp_event.DpEvent):
    """Permute-and-flip (McKenna & Sheldon 2020), dominated by Laplace noise of scale sensitivity/ε.

    It reports the noisy maximum with exponential noise (Ding et al. 2021). Let D be the difference of the
    noisy maxima inside and outside a set of answers, in units of the noise. A neighbour moves D by at most
    ε. The hazard rates of D and -D are at most 1, that of an exponential variable: |G'| <= min(G, 1 - G) for
    G(t) = P(D > t), with equality for a Laplace variable. Hence no set of answers distinguishes neighbours
    better than Laplace noise does.
    """

    epsilon: float

    def profile(self) -> Profile:
        """Return δ(x) = 1 - e^((x - ε)/2) for |x| <= ε, that of Laplace noise."""

        def deltas(x: np.ndarray) -> np.ndarray:
            inside = -np.expm1((np.minimum(x, self.epsilon) - self.epsilon) / 2.0)
            return np.where(x < -self.epsilon, -np.expm1(np.minimum(x, 0.0)), inside)

        return Profile(deltas, self.epsilon, -self.epsilon)

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return the RDP of Laplace noise (Mironov 2017, proposition 6)."""
        epsilon, less, twice = self.epsilon, orders - 1.0, 2.0 * orders - 1.0
        # 1/(α-1) log( α/(2α-1) e^((α-1)ε) + (α-1)/(2α-1) e^(-αε) ), with e^((α-1)ε) taken out
        moment = np.log1p(less / twice * np.expm1(-twice * epsilon))
        return epsilon + moment / less


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianEvent(dp_event.DpEvent):
    """A vector of whole numbers with discrete Gaussian noise (Canonne, Kamath, Steinke 2020).

    Attributes:
        sigma: Scale of the noise.
        sensitivity: Largest L2 distance of the vectors of neighbours.
        dimension: Length of the vector; None if it is unknown.
    """

    sigma: float
    sensitivity: float
    dimension: int | None

    def profile(self) -> Profile | None:
        """Return the profile of one number; None for vectors, which no single shift dominates.

        A half-line of outputs distinguishes best, and the largest shift Δ is the worst: with the distribution
        function F of the noise, δ(x) = F(k) - e^x F(k - Δ) for the largest k < Δ/2 - σ² x/Δ.
        """
        shift = math.floor(self.sensitivity)
        if self.dimension != 1 or self.sigma > _MOST_SIGMA or shift > _MOST_SIGMA:
            return None
        if shift == 0:  # whole numbers that differ by less than one are equal
            return Profile(lambda x: -np.expm1(np.minimum(x, 0.0)), 0.0, 0.0)
        ratio = shift / self.sigma
        largest = ratio**2 / 2.0 + _TAIL * ratio
        end = math.ceil(_CUT * self.sigma) + shift + 1
        masses = np.exp(-0.5 * (np.arange(-end, end + 1) / self.sigma) ** 2)
        below = np.cumsum(masses)
        below /= below[-1]
        with np.errstate(divide="ignore"):
            log_below = np.log(below)

        def deltas(x: np.ndarray) -> np.ndarray:
            last = np.ceil(shift / 2.0 - self.sigma**2 * x / shift).astype(int) - 1 + end
            inside = below[np.clip(last, 0, 2 * end)]
            shifted = np.exp(np.minimum(x + log_below[np.clip(last - shift, 0, 2 * end)], 0.0))
            return np.clip(inside - shifted, np.maximum(-np.expm1(np.minimum(x, 0.0)), 0.0), 1.0)

        return Profile(deltas, largest, -largest)

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Return α Δ²/(2σ²) (Canonne, Kamath, Steinke 2020, proposition 5), whatever the dimension."""
        # One whole number moves by whole numbers; the L2 distance of vectors need not be whole.
        shift = math.floor(self.sensitivity) if self.dimension == 1 else self.sensitivity
        return orders * (shift / self.sigma) ** 2 / 2.0


PROFILED = (
    EpsilonDeltaEvent, ExponentialMechanismEvent, PermuteAndFlipEvent, DiscreteGaussianEvent,
)  # fmt: skip


def profile_of_event(event: dp_event.DpEvent, neighbours: str) -> Profile | None:
    """Return the profile of one event that is not sampled; None where it is not known.

    Args:
        event: One draw; noise and sensitivity are those under ``neighbours``.
        neighbours: The neighbouring relation.
    """
    if isinstance(event, PROFILED):
        return event.profile()
    if isinstance(event, dp_event.LaplaceDpEvent):
        return PermuteAndFlipEvent(1.0 / event.noise_multiplier).profile()
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return _discrete_laplace(event.noise_parameter, event.sensitivity)
    if isinstance(event, dp_event.RandomizedResponseDpEvent) and neighbours == REPLACE_ONE:
        return _randomized_response(event.noise_parameter, max(event.num_buckets, 2))
    return None


def sampled_profiles(event: dp_event.DpEvent, neighbours: str) -> tuple[Profile, Profile] | None:
    """Return the profiles of removing and of adding a unit; None where no theorem is known here.

    Known are Poisson lots under add/remove, lots without replacement under replace-one, and whole data, of
    mechanisms with a profile. Both profiles are one where the order of the neighbours does not matter.

    Args:
        event: One draw.
        neighbours: The neighbouring relation.
    """
    if isinstance(event, dp_event.PoissonSampledDpEvent) and neighbours != REPLACE_ONE:
        inner = profile_of_event(event.event, neighbours)
        return None if inner is None else _poisson(inner, event.sampling_probability)
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent) and neighbours == REPLACE_ONE:
        inner = profile_of_event(event.event, neighbours)
        rate = event.sample_size / event.source_dataset_size
        return None if inner is None else (_without_replacement(inner, rate),) * 2
    whole = profile_of_event(event, neighbours)
    return None if whole is None else (whole, whole)


def _poisson(inner: Profile, rate: float) -> tuple[Profile, Profile]:
    """Return the profiles of Poisson lots of rate q.

    With A the outputs without the unit and B those with it, the pair is M = (1-q)A + qB and A. With α = e^x,

        H_α(M‖A) = q H_b(B‖A),  b = 1 + (α-1)/q, for α >= 1-q, and 1-α below
        H_α(A‖M) = (1 - α(1-q)) H_c(A‖B),  c = αq/(1 - α(1-q)), for 1 <= α < 1/(1-q), and 0 above
    """
    limit = -math.log1p(-rate) if rate < 1.0 else math.inf

    def removed(x: np.ndarray) -> np.ndarray:
        some = np.expm1(np.minimum(x, 0.0)) > -rate  # α > 1 - q
        inside = rate * inner.deltas(_log_b(np.where(some, x, 0.0), rate))
        return np.where(some, inside, -np.expm1(np.minimum(x, 0.0)))

    def added(x: np.ndarray) -> np.ndarray:
        # 1 - α(1-q), kept where 0 <= x < -log(1-q)
        left = rate - np.expm1(np.clip(x, 0.0, 1.0 + limit)) * (1.0 - rate)
        some = (x < limit) & (left > 0.0)
        left = np.where(some, left, 1.0)
        above = left * inner.deltas(
            np.where(some, np.maximum(x, 0.0), 0.0) + math.log(rate) - np.log(left)
        )
        below = _turned(np.minimum(x, 0.0), removed(np.maximum(-x, 0.0)))
        return np.where(x < 0.0, below, np.where(some, above, 0.0))

    most = _amplified(inner.largest, rate)
    least = -math.log1p(rate * math.expm1(-inner.largest))
    return Profile(removed, most, -least), Profile(added, least, -most)


def _without_replacement(inner: Profile, rate: float) -> Profile:
    """Return the profile of lots of fixed size, a share q of the records.

    H_α <= q δ(b), b = 1 + (α-1)/q, for α >= 1, in both orders (the proof in
    :mod:`fedpriv.privacy.accountants.without_replacement` holds for every mechanism with that profile).
    """

    def deltas(x: np.ndarray) -> np.ndarray:
        above = rate * inner.deltas(_log_b(np.abs(x), rate))
        return np.where(x < 0.0, _turned(np.minimum(x, 0.0), above), above)

    most = _amplified(inner.largest, rate)
    return Profile(deltas, most, -most)


def _log_b(x: np.ndarray, rate: float) -> np.ndarray:
    """Return log(1 + (e^x - 1)/q) for x > log(1-q), also where e^x is beyond floating point."""
    near = np.log1p(np.expm1(np.minimum(x, 1.0)) / rate)
    far = x + np.log1p((rate - 1.0) * np.exp(-np.maximum(x, 1.0))) - math.log(rate)
    return np.where(x <= 1.0, near, far)


def _turned(x: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Return H_α(Q‖P) = 1 - α + α H_(1/α)(P‖Q) at α = e^x <= 1, given H_(1/α)(P‖Q)."""
    return -np.expm1(x) + np.exp(x) * deltas


def _amplified(epsilon: float, rate: float) -> float:
    """Return log(1 + q(e^ε - 1)), the largest loss of a sampled mechanism."""
    return float(
        np.logaddexp(math.log1p(-rate) if rate < 1.0 else -math.inf, epsilon + math.log(rate))
    )


def _discrete_laplace(parameter: float, sensitivity: int) -> Profile:
    """Return the profile of DLap(a) with a shift by C.

    With F its distribution function, δ(x) = F(k) - e^x F(k - C) for the largest k < (C - x/a)/2.
    """
    largest = parameter * sensitivity
    share = 1.0 / (1.0 + math.exp(-parameter))

    def deltas(x: np.ndarray) -> np.ndarray:
        last = np.ceil((sensitivity - np.clip(x, -largest, largest) / parameter) / 2.0) - 1.0
        last = np.clip(last, 0.0, sensitivity - 1.0)
        inside = 1.0 - share * np.exp(-parameter * (last + 1.0))
        shifted = share * np.exp(np.minimum(x - parameter * (sensitivity - last), 0.0))
        inside = np.maximum(inside - shifted, -np.expm1(np.minimum(x, 0.0)))
        return np.where(x >= largest, 0.0, np.maximum(inside, 0.0))

    return Profile(deltas, largest, -largest)


def _randomized_response(parameter: float, buckets: int) -> Profile:
    """Return the profile of randomized response over k >= 2 buckets under replace-one.

    The pair has the masses (a, b) and (b, a) on two buckets, and b on each of the others.
    """
    other = parameter / buckets
    own = 1.0 - parameter + other
    largest = math.log(own / other)

    def deltas(x: np.ndarray) -> np.ndarray:
        alpha = np.exp(np.minimum(x, largest))  # beyond the largest loss all terms are 0
        rest = (buckets - 2) * other * -np.expm1(np.minimum(x, 0.0))
        return np.maximum(own - alpha * other, 0.0) + np.maximum(other - alpha * own, 0.0) + rest

    return Profile(deltas, largest, -largest)
