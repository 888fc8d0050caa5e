"""Privacy profiles against mechanisms that are written out, and against dp_accounting's own losses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp import RdpAccountant as LibraryRdp

from fedpriv.privacy.accountants import CannotAccount, PldAccountant, RdpAccountant
from fedpriv.privacy.accountants.pld import _loss_of, deltas_of_loss
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.profile_events import (
    DiscreteGaussianEvent,
    EpsilonDeltaEvent,
    ExponentialMechanismEvent,
    PermuteAndFlipEvent,
    profile_of_event,
    sampled_profiles,
)

PLD, RDP = PldAccountant(), RdpAccountant()
CELL = 1e-4
ORDERS = np.array([1.1, 1.5, 2.0, 4.0, 16.0, 128.0])
X = np.linspace(-1.2, 1.2, 97)


def hockey_stick(p: np.ndarray, q: np.ndarray, x: float) -> float:
    """H_α(P‖Q) = Σ (p - e^x q)₊."""
    return float(np.maximum(p - math.exp(x) * q, 0.0).sum())


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    there = (p > 0) & (q > 0)
    logs = order * np.log(p[there]) + (1.0 - order) * np.log(q[there])
    return float(np.logaddexp.reduce(logs)) / (order - 1.0)


def softmax(quality: np.ndarray, epsilon: float) -> np.ndarray:
    """The exponential mechanism, at a sensitivity of 1."""
    weights = np.exp(epsilon * quality / 2.0)
    return weights / weights.sum()


def permute_and_flip(quality: np.ndarray, epsilon: float) -> np.ndarray:
    """McKenna & Sheldon 2020, algorithm 1: take answers in random order until a coin accepts one."""
    accept = np.exp(epsilon * (quality - quality.max()) / 2.0)
    chosen = np.zeros(len(quality))
    orders = list(itertools.permutations(range(len(quality))))
    for order in orders:
        rest = 1.0
        for answer in order:
            chosen[answer] += rest * accept[answer]
            rest *= 1.0 - accept[answer]
    return chosen / len(orders)


def neighbours_in_quality(answers: int, tries: int = 60):
    """Pairs of quality scores that differ by at most 1 in each answer."""
    generator = np.random.default_rng(0)
    yield np.zeros(answers), np.r_[1.0, -np.ones(answers - 1)]
    for _ in range(tries):
        quality = generator.normal(0, 2, answers)
        yield quality, quality + generator.choice([-1.0, 1.0], answers)


MECHANISMS = [(ExponentialMechanismEvent, softmax), (PermuteAndFlipEvent, permute_and_flip)]


@pytest.mark.parametrize(("event", "mechanism"), MECHANISMS, ids=["exponential", "flip"])
@pytest.mark.parametrize("answers", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_no_mechanism_of_selection_is_above_its_profile_and_rdp(event, mechanism, answers, epsilon):
    known = event(epsilon)
    profile, rdp = known.profile().deltas(X), known.rdp(ORDERS)
    for quality, other in neighbours_in_quality(answers):
        pair = mechanism(quality, epsilon), mechanism(other, epsilon)
        for p, q in (pair, pair[::-1]):
            assert all(hockey_stick(p, q, x) <= d + 1e-12 for x, d in zip(X, profile, strict=True))
            assert all(renyi(p, q, a) <= r + 1e-12 for a, r in zip(ORDERS, rdp, strict=True))


@pytest.mark.parametrize(("event", "mechanism"), MECHANISMS, ids=["exponential", "flip"])
@pytest.mark.parametrize("x", [0.0, 0.3, -0.3])
def test_two_answers_reach_the_profile(event, mechanism, x):
    """At the best gap between the two scores; so the profile is no larger than it must be."""
    gaps = np.linspace(-3.0, 3.0, 6001)
    reached = max(
        hockey_stick(mechanism(np.r_[g + 1, -1.0], 1.0), mechanism(np.r_[g, 0.0], 1.0), x)
        for g in gaps[::5]
    )
    assert reached == pytest.approx(event(1.0).profile().deltas(np.array([x]))[0], abs=1e-5)


def test_the_rdp_of_bounded_range_is_below_the_bound_of_dp_accounting():
    """Bun & Steinke's ε²/8 with the constant of arXiv 2004.07223, section 3."""
    for epsilon in (0.1, 1.0, 4.0):
        share = epsilon / math.expm1(epsilon)
        linear = share - 1 - math.log(share) - epsilon**2 / 8 + epsilon**2 / 8 * ORDERS
        rdp = ExponentialMechanismEvent(epsilon).rdp(ORDERS)
        assert (rdp <= np.minimum(linear, epsilon) + 1e-12).all()
        assert (rdp > 0).all()


def test_the_rdp_of_epsilon_dp_is_that_of_randomized_response():
    epsilon = 0.7
    p = np.array([math.exp(epsilon), 1.0]) / (1.0 + math.exp(epsilon))
    expected = [renyi(p, p[::-1], order) for order in ORDERS]
    assert EpsilonDeltaEvent(epsilon, 0.0).rdp(ORDERS) == pytest.approx(expected)
    assert RDP.supports(EpsilonDeltaEvent(epsilon, 0.0), ADD_OR_REMOVE) is None
    assert "(epsilon, delta)" in RDP.supports(EpsilonDeltaEvent(epsilon, 1e-9), ADD_OR_REMOVE)


def test_the_rdp_of_permute_and_flip_is_that_of_laplace_noise():
    by_library = LibraryRdp(list(ORDERS)).compose(dp_event.LaplaceDpEvent(2.0))._rdp
    assert PermuteAndFlipEvent(0.5).rdp(ORDERS) == pytest.approx(by_library)


def discrete_gaussian(sigma: float, shift: int, width: int = 50) -> np.ndarray:
    weights = np.exp(-((np.arange(-width, width + 1) - shift) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


@pytest.mark.parametrize(("sigma", "shift"), [(0.7, 1), (2.0, 1), (5.0, 3)])
def test_the_profile_of_a_discrete_gaussian_is_that_of_its_masses(sigma, shift):
    profile = DiscreteGaussianEvent(sigma, shift + 0.5, 1).profile()  # whole numbers: Δ rounds down
    p, q = discrete_gaussian(sigma, 0), discrete_gaussian(sigma, shift)
    expected = [hockey_stick(p, q, x) for x in X]
    assert profile.deltas(X) == pytest.approx(expected, abs=1e-13)
    assert [renyi(p, q, a) for a in (2, 4)] <= list(
        DiscreteGaussianEvent(sigma, shift, 1).rdp(np.array([2.0, 4.0])) + 1e-12
    )


def test_a_vector_with_discrete_gaussian_noise_has_rdp_only():
    for dimension in (None, 3):
        event = DiscreteGaussianEvent(2.0, 1.0, dimension)
        assert event.profile() is None
        assert PLD.supports(event, ADD_OR_REMOVE)
        assert RDP.supports(event, ADD_OR_REMOVE) is None


def test_what_whole_numbers_below_one_apart_release_costs_nothing():
    event = DiscreteGaussianEvent(2.0, 0.5, 1)
    assert PLD.epsilon_of({event: 50}, 1e-5, ADD_OR_REMOVE) == 0.0


# ---- sampling, against masses of mixtures


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_a_sampled_profile_is_that_of_the_mixture(rate):
    event = DiscreteGaussianEvent(2.0, 1.0, 1)
    with_unit, without = discrete_gaussian(2.0, 1), discrete_gaussian(2.0, 0)
    mixture = (1 - rate) * without + rate * with_unit
    sampled = dp_event.PoissonSampledDpEvent(rate, event)
    removed, added = sampled_profiles(sampled, ADD_OR_REMOVE)
    expected = [hockey_stick(mixture, without, x) for x in X]
    assert removed.deltas(X) == pytest.approx(expected, abs=1e-13)
    expected = [hockey_stick(without, mixture, x) for x in X]
    assert added.deltas(X) == pytest.approx(expected, abs=1e-13)
    for profile in (removed, added):
        assert profile.deltas(np.array([profile.largest + 1e-9]))[0] < 1e-20


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_lots_without_replacement_are_not_above_their_profile(rate):
    """A record replaced in a lot: the mixtures share the lots without it."""
    event = dp_event.SampledWithoutReplacementDpEvent(
        100, round(100 * rate), DiscreteGaussianEvent(2.0, 1.0, 1)
    )
    (profile, _) = sampled_profiles(event, REPLACE_ONE)
    base = discrete_gaussian(2.0, 0)
    for one, other in ((1, 0), (0, -1), (1, 1)):
        p = (1 - rate) * base + rate * discrete_gaussian(2.0, one)
        q = (1 - rate) * base + rate * discrete_gaussian(2.0, other)
        for x, bound in zip(X, profile.deltas(X), strict=True):
            assert hockey_stick(p, q, x) <= bound + 1e-12
            assert hockey_stick(q, p, x) <= bound + 1e-12


@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_sampled_epsilon_dp_is_amplified_as_published(rate):
    """Balle, Barthe, Gaboardi 2018: log(1 + q(e^ε - 1)), and δ is multiplied by q."""
    amplified = math.log1p(rate * math.expm1(1.0))
    poisson = dp_event.PoissonSampledDpEvent(rate, EpsilonDeltaEvent(1.0, 1e-6))
    fixed = dp_event.SampledWithoutReplacementDpEvent(
        1000, round(1000 * rate), EpsilonDeltaEvent(1.0, 1e-6)
    )
    for event, neighbours in ((poisson, ADD_OR_REMOVE), (fixed, REPLACE_ONE)):
        deltas = [
            profile.deltas(np.array([amplified]))[0]
            for profile in sampled_profiles(event, neighbours)
        ]
        assert max(deltas) == pytest.approx(rate * 1e-6, abs=1e-9)
    assert PLD.epsilon_of({poisson: 1}, 1.01 * rate * 1e-6, ADD_OR_REMOVE) == pytest.approx(
        amplified, abs=2 * CELL
    )


# ---- against dp_accounting


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_losses_from_profiles_are_those_of_the_library(epsilon):
    """Laplace noise alone and in Poisson lots, and discrete Laplace noise."""
    discrete = dp_event.DiscreteLaplaceDpEvent(epsilon / 4, 4)
    sampled = dp_event.PoissonSampledDpEvent(0.2, dp_event.LaplaceDpEvent(1 / epsilon))
    cases = (
        (PermuteAndFlipEvent(epsilon), library.from_laplace_mechanism(1 / epsilon)),
        (discrete, library.from_discrete_laplace_mechanism(epsilon / 4, 4)),
        (sampled, library.from_laplace_mechanism(1 / epsilon, sampling_prob=0.2)),
    )
    epsilons = np.linspace(0.0, 3.0, 40)
    for event, expected in cases:
        profiles = sampled_profiles(event, ADD_OR_REMOVE)
        found = _loss_of(profiles, CELL).self_compose(7)
        assert deltas_of_loss(found, epsilons) == pytest.approx(
            deltas_of_loss(expected.self_compose(7), epsilons), abs=1e-6, rel=1e-3
        )


DEVELOPMENT = [
    (PermuteAndFlipEvent(0.5), 20, 9.105543668290194),
    (PermuteAndFlipEvent(0.5), 100, 28.501646131998502),
    (EpsilonDeltaEvent(0.5, 1e-7), 20, 9.88915430079531),
    (EpsilonDeltaEvent(0.5, 1e-7), 100, 39.980762552160535),
]


@pytest.mark.parametrize(("event", "count", "expected"), DEVELOPMENT)
def test_epsilon_is_that_of_the_development_version(event, count, expected):
    """dp_accounting's PLDAccountant at commit b5b0286 of google/differential-privacy."""
    assert PLD.epsilon_of({event: count}, 1e-5, ADD_OR_REMOVE) == pytest.approx(expected, rel=1e-6)


def test_an_exponential_mechanism_costs_less_than_any_mechanism_of_its_epsilon_but_adds_up():
    """dp_accounting's RdpAccountant at commit b5b0286 charges 100 of them as one, 0.5035."""
    once, often = (
        PLD.epsilon_of({ExponentialMechanismEvent(0.5): n}, 1e-5, ADD_OR_REMOVE) for n in (1, 100)
    )
    assert once == pytest.approx(0.4960, abs=1e-3)
    assert often < PLD.epsilon_of({EpsilonDeltaEvent(0.5, 0.0): 100}, 1e-5, ADD_OR_REMOVE)
    # What 100 two-valued losses of one t cost, by the binomial distribution.
    epsilon, t, count = 0.5, 0.25, 100
    high = math.expm1(epsilon - t) / (math.exp(-t) * math.expm1(epsilon))
    number = np.arange(count + 1)
    log_ways = np.array([math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
                         for k in number])  # fmt: skip
    masses = np.exp(log_ways + number * math.log(high) + (count - number) * math.log1p(-high))
    losses = number * t + (count - number) * (t - epsilon)
    delta = float(np.maximum(masses * -np.expm1(often - losses), 0.0)[losses > often].sum())
    assert 0 < delta <= 1e-5


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_composition_of_epsilon_delta_is_the_optimal_one(count):
    """Kairouz, Oh, Viswanath 2017, theorem 3.3."""
    epsilon, small = 0.4, 1e-4
    price = PLD.epsilon_of({EpsilonDeltaEvent(epsilon, small): count}, 1e-3 * count, ADD_OR_REMOVE)

    def delta_at(total: float) -> float:
        of_k = (
            sum(
                math.comb(count, j)
                * max(math.exp((count - j) * epsilon) - math.exp(total + j * epsilon), 0.0)
                for j in range(count + 1)
            )
            / (1 + math.exp(epsilon)) ** count
        )
        return 1 - (1 - small) ** count * (1 - of_k)

    assert delta_at(price) <= 1e-3 * count * (1 + 1e-9)
    assert delta_at(price - count * CELL) > 1e-3 * count * (1 - 1e-9)


def test_sampled_mechanisms_cost_less_than_alone_and_more_with_more_draws():
    event = dp_event.PoissonSampledDpEvent(0.1, ExponentialMechanismEvent(0.5))
    one, many = (PLD.epsilon_of({event: n}, 1e-5, ADD_OR_REMOVE) for n in (1, 100))
    assert one < 0.0635 < many < PLD.epsilon_of({event.event: 100}, 1e-5, ADD_OR_REMOVE)


@pytest.mark.parametrize("event", [
    dp_event.LaplaceDpEvent(1.0),
    dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.LaplaceDpEvent(1.0)),
    dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.RandomizedResponseDpEvent(0.3, 3)),
    dp_event.DiscreteLaplaceDpEvent(0.5, 2),
], ids=lambda event: type(event).__name__[:12])  # fmt: skip
def test_replace_one_is_priced_where_the_library_does_not(event):
    from fedpriv.privacy.core.rdp import RELATION

    assert not PLDAccountant(RELATION[REPLACE_ONE]).supports(event)
    assert 0 < PLD.epsilon_of({event: 1}, 1e-6, REPLACE_ONE) <= profile_bound(event) + 2 * CELL


def profile_bound(event: dp_event.DpEvent) -> float:
    """The pure ε of the event, amplified by sampling."""
    inner = getattr(event, "event", event)
    whole = profile_of_event(inner, REPLACE_ONE).largest
    rate = 0.1 if inner is not event else 1.0
    return math.log1p(rate * math.expm1(whole))


def test_poisson_lots_of_other_mechanisms_under_replace_one_have_no_price():
    event = dp_event.PoissonSampledDpEvent(0.1, ExponentialMechanismEvent(0.5))
    assert "Poisson lots" in PLD.supports(event, REPLACE_ONE)


@pytest.mark.few(2)
@pytest.mark.parametrize("event", [
    ExponentialMechanismEvent(1000.0), PermuteAndFlipEvent(1000.0), EpsilonDeltaEvent(1000.0, 0.0),
    DiscreteGaussianEvent(1.0, 50.0, 1), dp_event.DiscreteLaplaceDpEvent(1e-3, 10**6),
], ids=lambda event: type(event).__name__)  # fmt: skip
def test_losses_beyond_the_range_of_exp_are_kept(event, wide_cells):
    """e^710 is infinite in floating point; sampling half of the data leaves nearly all of the loss."""
    alone = PLD.epsilon_of({event: 1}, 1e-5, ADD_OR_REMOVE)
    sampled = PLD.epsilon_of({dp_event.PoissonSampledDpEvent(0.5, event): 1}, 1e-5, ADD_OR_REMOVE)
    lots = dp_event.SampledWithoutReplacementDpEvent(10, 5, event)
    assert alone > 900
    assert sampled == pytest.approx(alone, rel=0.01)
    assert PLD.epsilon_of({lots: 1}, 1e-5, REPLACE_ONE) == pytest.approx(alone, rel=0.01)


def test_huge_epsilons_and_counts_end():
    assert PLD.epsilon_of({ExponentialMechanismEvent(1e6): 10}, 1e-5, ADD_OR_REMOVE) > 1e6
    many = PLD.epsilon_of({PermuteAndFlipEvent(1e-6): 10**9}, 1e-5, ADD_OR_REMOVE)
    assert 0 < many < 1.0
    assert PLD.epsilon_of({EpsilonDeltaEvent(1.0, 1e-3): 10**6}, 1e-5, ADD_OR_REMOVE) == math.inf
    with pytest.raises(CannotAccount, match="more than 2,000,000"):
        PLD.epsilon_of({EpsilonDeltaEvent(1e-4, 1e-15): 10**9}, 1e-5, ADD_OR_REMOVE)
