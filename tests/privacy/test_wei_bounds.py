"""The moment bound and the convergence bound of Wei et al.: where they hold, and their values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.wei_bounds import (
    Learning,
    best_rounds,
    convergence_bound,
    first_failure,
    log_moment,
    log_moment_bound,
    noise_variance,
    sensitivity,
)

SIGMA = 0.01
PAPER = Learning(
    smoothness=1, curvature=0.02, learning_rate=1, initial_gap=2.3, divergence=0.1,
    dimension=25450, clients=50, cohort=30, records=128, clip_norm=1, delta=0.01,
)  # fmt: skip


def over_sigma(clip_norm: float, records: int = 128) -> float:
    return sensitivity(clip_norm, records) / SIGMA


@pytest.mark.parametrize(
    ("clip_norm", "records", "first"),
    [(1, 128, 1), (0.1, 128, 70), (0.05, 128, None), (0.05, 64, 70)],
)
def test_the_moment_bound_fails_from_an_order_that_depends_on_the_clip_norm(
    clip_norm, records, first
):
    assert first_failure(0.9, over_sigma(clip_norm, records), largest_order=100) == first


@pytest.mark.parametrize(("order", "q", "ratio"), [(1, 0.9, 1.5), (3, 0.5, 0.7), (7, 0.1, 1.0)])
def test_the_exact_moment_is_the_integral(order, q, ratio):
    """E over N(0, 1) of (1 - q + q exp((2zΔ - Δ²)/2))^(λ+1), in units of σ."""

    def integrand(z: float) -> float:
        return norm.pdf(z) * (1 - q + q * math.exp(z * ratio - ratio**2 / 2)) ** (order + 1)

    value, _ = quad(integrand, -15, 30, limit=400)
    assert log_moment(order, q, ratio) == pytest.approx(math.log(value), rel=1e-7)


def test_a_moment_without_sampling_meets_its_bound():
    assert log_moment(9, 1.0, 0.8) == pytest.approx(log_moment_bound(9, 1.0, 0.8))


def test_a_moment_of_the_first_order_by_hand():
    """(1-q)² + 2q(1-q) + q² e^{r²}, which is 1 + q² (e^{r²} - 1)."""
    assert log_moment(1, 0.3, 1.2) == pytest.approx(math.log1p(0.09 * math.expm1(1.44)))


@given(st.integers(1, 200), st.floats(0.01, 1), st.floats(1e-3, 10))
def test_a_moment_is_finite_and_at_least_one(order, q, ratio):
    assert 0 <= log_moment(order, q, ratio) + 1e-9 < math.inf


def test_the_noise_is_that_of_the_paper():
    """.0670614 at ε = 10, q = 1, T = 200; .0519456 at q = .6."""
    everyone = replace(PAPER, cohort=50)
    assert math.sqrt(noise_variance(everyone, 10, 200)) == pytest.approx(0.0670614, abs=1e-7)
    assert math.sqrt(noise_variance(PAPER, 10, 200)) == pytest.approx(0.0519456, abs=1e-7)


def test_the_printed_bound_by_hand():
    small = Learning(
        smoothness=2, curvature=0.5, learning_rate=0.5, initial_gap=3, divergence=0.8,
        dimension=7, clients=10, cohort=4, records=20, clip_norm=1, delta=math.exp(-2),
    )  # fmt: skip
    assert small.contraction == pytest.approx(0.75)  # 1 - 2·.5·.5 + .5·.25·2
    # Δ = .1; κ0 = 4·.01·2/.5 = .16; κ1 = .25·4·.8/(2·.5) = .8; T = 2, ε = .5
    # κ0 T m/(K² ε²) = .16·2·4/25 = .0512; κ1 (K-m)/(m(K-1)) = .8·6/36 = .13333
    # .5625·3 + .4375·(.0512 + .13333)
    assert convergence_bound([2], 0.5, small, "printed") == pytest.approx(1.7682333)
    # s² = 2·.4·2·.01·2/.25 = .128; noise 1/.25 · 2/2 · 7 · .128/4 = .896; the rest as printed
    assert convergence_bound([2], 0.5, small, "corrected") == pytest.approx(
        1.6875 + 0.4375 * (0.896 + 0.8 / 6)
    )


@given(st.integers(1, 500), st.floats(0.1, 100))
def test_at_the_largest_learning_rate_the_corrected_noise_is_d_k_over_m_times_the_printed(
    rounds, epsilon
):
    still = replace(PAPER, initial_gap=0, divergence=0)
    printed, corrected = (
        convergence_bound([rounds], epsilon, still, form)[0] for form in ("printed", "corrected")
    )
    assert corrected == pytest.approx(printed * 25450 * 50 / 30)


def test_the_corrected_bound_is_the_recursion_it_sums():
    slow = replace(PAPER, learning_rate=0.4, divergence=0.3)
    per_round = 0.5 * 25450 * noise_variance(slow, 30, 60) / 30 + 0.4**2 / 2 * slow.sampling_gap
    gap = slow.initial_gap
    for _ in range(60):
        gap = slow.contraction * gap + per_round
    assert convergence_bound([60], 30, slow, "corrected")[0] == pytest.approx(gap)


FORMS = [("printed", (0.1, 0.2, 0.5, 1)), ("corrected", (20, 50, 100, 200))]


@pytest.mark.parametrize(("form", "epsilons"), FORMS)
def test_the_bound_falls_to_the_best_number_of_rounds_and_rises_from_there(form, epsilons):
    rounds = np.arange(1, 401)
    for epsilon in epsilons:
        bound = convergence_bound(rounds, epsilon, PAPER, form)
        best = best_rounds(epsilon, PAPER, form, 400)
        assert 1 < best < 400
        assert (np.diff(bound[:best]) < 0).all()
        assert (np.diff(bound[best - 1 :]) > 0).all()


@pytest.mark.parametrize(("form", "epsilons"), FORMS)
def test_the_best_number_of_rounds_grows_with_epsilon(form, epsilons):
    best = [best_rounds(epsilon, PAPER, form) for epsilon in epsilons]
    assert best == sorted(set(best))


@given(st.integers(1, 300), st.floats(0.05, 50), st.sampled_from(["printed", "corrected"]))
def test_more_epsilon_is_never_worse(rounds, epsilon, form):
    low, high = (convergence_bound([rounds], e, PAPER, form)[0] for e in (epsilon, 2 * epsilon))
    assert high <= low


def test_without_sampling_the_divergence_does_not_matter():
    everyone = replace(PAPER, cohort=50)
    assert everyone.sampling_gap == 0


@pytest.mark.parametrize(
    ("argument", "value", "allowed"),
    [
        ("learning_rate", 1.1, "<= 1/L = 1"),
        ("learning_rate", 0, "> 0"),
        ("curvature", 2, "> 0 and <= 1"),
        ("smoothness", -1, "> 0"),
        ("cohort", 51, "<= 50"),
        ("cohort", 0, ">= 1"),
        ("clients", 1, ">= 2"),
        ("records", 0, ">= 1"),
        ("clip_norm", 0, "> 0"),
        ("delta", 1, "< 1"),
        ("dimension", 0.5, "a whole number"),
        ("initial_gap", -1, ">= 0"),
        ("divergence", math.nan, "finite"),
    ],
)
def test_an_argument_that_cannot_be_is_refused(argument, value, allowed):
    with pytest.raises(ArgumentError, match=argument) as caught:
        replace(PAPER, **{argument: value})
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "argument"),
    [
        (([0], 1, PAPER, "printed"), "rounds"),
        (([], 1, PAPER, "printed"), "rounds"),
        (([5], 0, PAPER, "printed"), "epsilon"),
        (([5], 1, PAPER, "exact"), "form"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(given_, argument):
    with pytest.raises(ArgumentError, match=argument):
        convergence_bound(*given_)


@pytest.mark.parametrize("bad", [(0, 0.5, 1), (1.5, 0.5, 1), (2, 0, 1), (2, 1.1, 1), (2, 0.5, 0)])
def test_a_moment_that_cannot_be_is_refused(bad):
    with pytest.raises(ArgumentError):
        log_moment(*bad)
