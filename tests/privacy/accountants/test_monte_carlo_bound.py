"""The bound on δ fails as seldom as it says, for losses whose δ(ε) is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from fedpriv.privacy.accountants.gaussian import deltas_of_sum
from fedpriv.privacy.accountants.monte_carlo_bound import LARGEST, WIDTH, Losses

MU, DELTA = 1.0, 0.02


def losses(rng: np.random.Generator, samples: int, order: int) -> Losses:
    """Of a Gaussian of multiplier 1 / μ: the loss is N((α - ½) μ², μ²) under R_α, Z_α = e^(α (α-1) μ²/2)."""
    drawn = rng.normal((order - 0.5) * MU**2, MU, samples)
    inside = drawn[(drawn > 0) & (drawn < LARGEST)]
    cells, counts = np.unique((inside / WIDTH).astype(np.int64), return_counts=True)
    total = order * (order - 1) / 2 * MU**2
    return Losses(samples, order, total, cells, counts, int((drawn >= LARGEST).sum()))


def true_epsilon(delta: float) -> float:
    def above(epsilon: float) -> float:
        return float(deltas_of_sum(MU**2, np.array([epsilon]))[0]) - delta

    return optimize.brentq(above, 0, 20)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_it_fails_no_more_often_than_it_says(order):
    rng, failure, trials = np.random.default_rng(order), 0.2, 400
    below = true_epsilon(DELTA) * (1 - 1e-9)
    failed = sum(
        losses(rng, 2000, order).certifies(below, DELTA, math.log(failure)) for _ in range(trials)
    )
    assert failed <= stats.binom.ppf(0.999, trials, failure)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_it_is_near_the_truth(order):
    found = losses(np.random.default_rng(order), 200_000, order)
    epsilon, log_failure = true_epsilon(DELTA), math.log(1e-6)
    assert not found.certifies(0.999 * epsilon, DELTA, log_failure)
    assert found.certifies(1.04 * epsilon, DELTA, log_failure)


@pytest.mark.parametrize("order", [1, 4])
def test_what_is_certified_at_an_epsilon_is_certified_beyond(order):
    found = losses(np.random.default_rng(7), 5000, order)
    said = [found.certifies(e, DELTA, math.log(1e-3)) for e in np.arange(0.0, 6.0, 0.01)]
    assert said == sorted(said)
    assert said[-1]


def test_samples_that_saw_nothing_certify_what_their_number_does():
    nothing = np.zeros(0, dtype=np.int64)
    for samples, enough in ((100_000, False), (5_000_000, True)):
        found = Losses(samples, 1, 0.0, nothing, nothing, 0)
        assert found.certifies(1.0, 1e-5, math.log(1e-8)) == enough


def test_a_loss_that_is_too_large_for_a_cell_counts_as_the_worst():
    cells, counts = np.array([100]), np.array([10])
    seen = Losses(10_000, 1, 0.0, cells, counts, 0)
    assert seen.certifies(1.0, 0.003, math.log(1e-3))
    assert not Losses(10_000, 1, 0.0, cells, counts, 40).certifies(1.0, 0.003, math.log(1e-3))


def test_a_weight_that_is_forgotten_is_seen():
    """A planted fault: plain samples that are taken for tilted ones cost too little."""
    plain = losses(np.random.default_rng(0), 100_000, 1)
    fault = Losses(plain.samples, 3, 3 * MU**2, plain.cells, plain.counts, plain.beyond)
    assert fault.certifies(0.8 * true_epsilon(DELTA), DELTA, math.log(1e-6))
