"""How well any attack can do: exact curves, laws, and attacks that are made."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from scipy.stats import beta, norm

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant, ZcdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off, trade_off_of
from fedpriv.privacy.sound import Capped, Composed, Guarded, Unguarded, tightest

FPR = np.array([1e-4, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 0.99])
PLAIN = WholeData(ADD_OR_REMOVE)


def curve(accountant, composition, neighbours=ADD_OR_REMOVE):  # type: ignore[no-untyped-def]
    return trade_off(accountant.deltas_of(composition, EPSILONS, neighbours))


def gaussian(mu: float) -> np.ndarray:
    """TPR of the best attack on a Gaussian (Dong, Roth, Su 2022)."""
    return norm.cdf(norm.ppf(FPR) + mu)


@pytest.mark.parametrize("mu", [0.05, 1.0])
@pytest.mark.parametrize("accountant", [GdpAccountant(), ZcdpAccountant(), PldAccountant()])
def test_gaussians_have_the_exact_curve(accountant, mu):
    found = curve(accountant, {PLAIN.event(4 / mu): 16}).tpr(FPR)
    assert (found >= gaussian(mu) * (1 - 1e-9)).all()
    assert found == pytest.approx(gaussian(mu), rel=3e-3)


@pytest.mark.parametrize("mu", [0.05, 1.0, 3.0])
def test_renyi_divergences_bound_it_from_above(mu):
    found = curve(RdpAccountant(), {PLAIN.event(4 / mu): 16}).tpr(FPR)
    assert (found >= gaussian(mu)).all()
    assert found[1] < 2 * gaussian(mu)[1]


def test_two_units_of_gaussians_are_one_of_twice_the_mean_difference():
    found = curve(GdpAccountant(), {PLAIN.event(2.0): 1}).tpr(FPR, units=2)
    assert found == pytest.approx(gaussian(1.0), rel=3e-3)


def test_one_pair_gives_the_curve_of_wasserman_and_zhou():
    epsilon, delta = 1.0, 1e-3
    expected = np.minimum(np.e * FPR + delta, 1 - (1 - FPR - delta) / np.e)
    found = TradeOff(np.array([epsilon]), np.array([delta])).tpr(FPR)
    assert found == pytest.approx(np.minimum(expected, 1))


@pytest.mark.few(1)
@pytest.mark.parametrize(("q", "sigma"), [(0.1, 1.0), (0.5, 2.0)])
def test_one_sampled_gaussian_has_the_curve_of_neyman_and_pearson(q, sigma):
    """At a low FPR the worse direction is the record's removal: (1-q) FPR + q Φ(Φ^-1(FPR) + 1/σ)."""
    low = FPR[:5]
    exact = (1 - q) * low + q * norm.cdf(norm.ppf(low) + 1 / sigma)
    found = curve(PldAccountant(), {PoissonSampling(q).event(sigma): 1}).tpr(low)
    assert (found >= exact * (1 - 1e-9)).all()
    assert found == pytest.approx(exact, rel=5e-3)


def test_the_published_curve_of_sampled_gaussians():
    """riskcal 1.5.1 (Kulynych et al. 2024), σ = 2.114, q = .3, T = 100: FNR at FPR .001 and .01."""
    found = curve(PldAccountant(), {PoissonSampling(0.3).event(2.114): 100})
    assert found.tpr(np.array([0.001, 0.01])) == pytest.approx([0.05532695, 0.19778572], rel=1e-3)
    assert list(found.largest().values()) == found.tpr(np.array([0.001, 0.01])).tolist()


def test_the_direction_in_which_a_record_is_added_alone_would_be_too_low():
    """σ = .5, q = .002, T = 10,000: 4.8 % against 1.8 % at an FPR of .1 %."""
    composed = {PoissonSampling(0.002).event(0.5): 10_000}
    found = float(curve(PldAccountant(discretization=1e-3), composed).tpr(0.001))
    assert found == pytest.approx(0.0479, abs=2e-4)


@given(
    q=st.floats(0.01, 1.0), sigma=st.floats(0.4, 20.0), steps=st.integers(1, 3000), by=st.booleans()
)
@settings(max_examples=examples(25))
def test_every_curve_rises_is_concave_and_lies_above_chance(q, sigma, steps, by):
    event = PoissonSampling(q).event(sigma) if by else PLAIN.event(sigma)
    accountant = RdpAccountant() if by else GdpAccountant()
    found = curve(accountant, {event: steps})
    grid = np.linspace(0.0, 1.0, 401)
    tpr = found.tpr(grid)
    assert (tpr >= grid - 1e-12).all()
    assert (tpr <= 1).all()
    assert (np.diff(tpr) >= -1e-12).all()
    assert (np.diff(tpr, 2) <= 1e-9).all()
    assert (found.tpr(grid, units=2) >= tpr - 1e-12).all()
    more = curve(accountant, {event: 2 * steps})
    assert (more.tpr(grid) >= tpr - 1e-3)[1:].all()  # where tangents are kept: from an FPR of 1e-6


@pytest.mark.thorough
def test_no_likelihood_ratio_test_does_better():
    """σ = 1, q = .2, T = 10: the best attack there is, 100,000 times."""
    q, sigma, steps, trials = 0.2, 1.0, 10, 100_000
    stream, bound = (
        np.random.default_rng(0),
        curve(PldAccountant(), {PoissonSampling(0.2).event(1.0): 10}),
    )

    def scores(member: bool) -> np.ndarray:
        seen = stream.normal(0.0, sigma, (trials, steps))
        seen += member * (stream.random((trials, steps)) < q)
        return np.log1p(q * np.expm1((2 * seen - 1) / (2 * sigma**2))).sum(axis=1)

    inside, outside = scores(True), scores(False)
    for fpr in (0.001, 0.01, 0.1):
        for positive, negative in ((inside, outside), (-outside, -inside)):
            caught = int((positive > np.quantile(negative, 1 - fpr)).sum())
            low = beta.ppf(0.001, caught, trials - caught + 1)
            wrong = int(fpr * trials)  # the rate of the threshold is a sample's too
            assert low <= bound.tpr(beta.ppf(0.999, wrong + 1, trials - wrong))
        caught = (inside > np.quantile(outside, 1 - fpr)).mean()
        assert caught == pytest.approx(float(bound.tpr(fpr)), rel=0.15)


def test_randomized_response_has_a_curve():
    event = dp_event.RandomizedResponseDpEvent(0.5, 2)
    accountant = tightest(event, REPLACE_ONE)
    found = curve(accountant, {event: 3}, REPLACE_ONE)
    epsilon = accountant.epsilon_of({event: 3}, 1e-6, REPLACE_ONE)
    assert (found.tpr(FPR) >= FPR).all()
    assert (found.tpr(FPR) <= 1.02 * np.exp(epsilon) * FPR + 1.01e-6).all()


def test_what_has_no_noise_bounds_nothing():
    for accountant in (GdpAccountant(), PldAccountant(), RdpAccountant()):
        found = curve(accountant, {dp_event.NonPrivateDpEvent(): 1})
        assert not found.bounds
        assert (found.tpr(FPR) == 1).all()


def test_nothing_released_leaves_chance():
    for accountant in (GdpAccountant(), PldAccountant()):
        assert curve(accountant, {}).tpr(FPR) == pytest.approx(FPR, abs=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("accountant", [RdpAccountant(), GdpAccountant()], ids=["rdp", "gdp"])
def test_a_filter_bounds_all_that_it_lets_through(accountant):
    sampling = PoissonSampling(0.2) if isinstance(accountant, RdpAccountant) else PLAIN
    first = sampling.event(6.0)
    guard = accountant.filter(1, ADD_OR_REMOVE, first, 2.0, 1e-5)
    sound = Guarded(guard, 2.0)
    most, who = trade_off(sound.deltas(EPSILONS, 1e-5)), np.arange(1)
    spent, step = {}, 0
    while not guard.would_exceed(sampling.event(6.0 - step % 3), 1, 2.0, 1e-5).any():
        event = sampling.event(6.0 - step % 3)
        guard.add(event, who)
        spent[event], step = spent.get(event, 0) + 1, step + 1
    assert step >= 5
    assert (most.tpr(FPR) >= curve(tightest(first, ADD_OR_REMOVE), spent).tpr(FPR)).all()
    assert trade_off(sound.deltas(EPSILONS, 1e-5)).tpr(0.01) == most.tpr(0.01)
    single = TradeOff(np.array([2.0]), np.array([1e-5]))
    assert (most.tpr(FPR) <= single.tpr(FPR) + 1e-6).all()
    guard.add(sampling.event(0.5), who, 50)  # overspent
    assert not trade_off(sound.deltas(EPSILONS, 1e-5)).bounds


@pytest.mark.thorough
def test_the_worst_client_counts():
    event, other = PoissonSampling(0.1).event(2.0), PoissonSampling(0.3).event(4.0)
    sound = Composed(event, 3, ADD_OR_REMOVE, None, RdpAccountant(), lowest=False)
    sound.add(event, np.array([0]), 4)
    sound.add(other, np.array([1]), 5)
    found = trade_off(sound.deltas(EPSILONS, 1e-5)).tpr(FPR)
    alone = [curve(PldAccountant(), own).tpr(FPR) for own in ({event: 4}, {other: 5})]
    assert (found >= np.max(alone, axis=0) - 1e-12).all()
    assert found[2] == pytest.approx(np.max(alone, axis=0)[2], rel=0.02)


@pytest.mark.thorough
def test_many_histories_are_bounded_by_rdp():
    sound = Composed(
        PoissonSampling(0.1).event(2.0), 40, ADD_OR_REMOVE, None, RdpAccountant(), False
    )
    for client in range(40):
        sound.add(PoissonSampling(0.1).event(2.0 + client / 50), np.array([client]), client + 1)
    found = trade_off(sound.deltas(EPSILONS, 1e-5))
    worst = {PoissonSampling(0.1).event(2.0 + 39 / 50): 40}
    assert (found.tpr(FPR) >= curve(PldAccountant(), worst).tpr(FPR)).all()
    assert found.tpr(0.01) < 1


def test_a_schedule_with_a_total_and_one_without_a_guard():
    capped = Capped({PLAIN.event(4.0): 16}, ADD_OR_REMOVE)
    assert trade_off(capped.deltas(EPSILONS, 1e-5)).tpr(FPR) == pytest.approx(
        gaussian(1.0), rel=3e-3
    )
    assert not trade_off(Unguarded().deltas(EPSILONS, 1e-5)).bounds


def test_plain_values_are_read_back_and_others_are_not():
    written = curve(GdpAccountant(), {PLAIN.event(1.0): 1})
    read = trade_off_of(written.plain())
    assert (read.tpr(FPR) == written.tpr(FPR)).all()
    odd = (
        None, [], {"epsilon": [1.0]}, {"epsilon": [1.0], "delta": []}, {"epsilon": [-1], "delta": [0]},
        {"epsilon": [float("nan")], "delta": [0.1]}, {"epsilon": ["1"], "delta": [0.1]},
        {"epsilon": [1.0], "delta": [1.5]}, {"epsilon": [0] * 2000, "delta": [0] * 2000},
    )  # fmt: skip
    assert [trade_off_of(plain) for plain in odd] == [None] * len(odd)
