"""Sampled privacy losses against enumeration, quadrature, and what other accountants know."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy import stats

from fedpriv.privacy.accountants import monte_carlo_losses as module
from fedpriv.privacy.accountants.monte_carlo_bound import ROUNDING, Losses
from fedpriv.privacy.accountants.monte_carlo_losses import losses_with, losses_without
from fedpriv.privacy.accountants.monte_carlo_patterns import MinSepSampling, Patterns, best_patterns
from tests.privacy.accountants import enumerated

DELTA, LOG_FAILURE = 1e-3, math.log(1e-6)


def smallest(losses: Losses, delta: float = DELTA, log_failure: float = LOG_FAILURE) -> float:
    found = np.arange(0, 20, 0.001)
    return next(e for e in found if losses.certifies(e, delta, log_failure))


@pytest.mark.parametrize(
    "sampling",
    [
        MinSepSampling(7, 3, 0.3, True, (1.0, 0.5, 0.25)),
        MinSepSampling(7, 3, 0.3, False, (1.0, 0.5)),
        MinSepSampling(7, 1, 0.1, True, (1.0,)),
        MinSepSampling(7, 2, 1.0, True, (1.0, 0.9)),
    ],
    ids=str,
)
@pytest.mark.parametrize("z", [0.4, 3.0])
def test_the_loss_is_that_of_all_patterns(sampling, z):
    rng, rows = np.random.default_rng(0), sampling.rounds + len(sampling.column) - 1
    means = rng.choice(enumerated.means(sampling)[0], 500).T.astype(np.float32) / np.float32(z)
    found = module._log_ratio(sampling, z, means, np.random.default_rng(2))
    noise = np.random.default_rng(2).standard_normal((rows, 500), dtype=np.float32)
    expected = enumerated.log_ratio(sampling, z, z * (noise.astype(float) + means))
    assert np.abs(found - expected).max() < ROUNDING


def test_single_precision_is_within_what_is_allowed_for():
    """Many rounds, many bands, little noise: losses of some hundreds."""
    sampling, rng = (
        MinSepSampling(1000, 20, 0.3, True, tuple(0.95 ** np.arange(20))),
        np.random.default_rng(3),
    )
    starts = Patterns(sampling, 1, 1.0).sample(rng, 50)
    padded = np.pad(starts, ((19, 19), (0, 0))).astype(np.float32)
    means = module._correlate(padded, sampling.taps[::-1])
    found = module._log_ratio(sampling, 1.0, means, np.random.default_rng(4))
    noise = np.random.default_rng(4).standard_normal(means.shape, dtype=np.float32)
    answers = noise.astype(float) + means
    ratios = np.stack([sampling.taps @ answers[t : t + 20] for t in range(1000)])
    later = np.ones((1020, 50))
    for t in reversed(range(1000)):
        own = np.exp(ratios[t] - sampling.overlaps[0] / 2)
        later[t] = 0.7 * later[t + 1] + 0.3 * own * later[t + 20]
    expected = np.log(sampling.start @ later[:20])
    inside = np.abs(expected) < 64
    assert np.abs(found - expected)[inside].max(initial=0) < ROUNDING
    assert np.abs(found - expected).max() < 20 * ROUNDING


def quadrature(sampling: MinSepSampling, z: float, epsilon: float) -> tuple[float, float]:
    """δ of presence and absence, in three dimensions."""
    axis = np.linspace(-6, 8, 91) * z
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij")).reshape(3, -1)
    density = stats.norm.pdf(grid, scale=z).prod(axis=0) * (axis[1] - axis[0]) ** 3
    ratio = np.exp(enumerated.log_ratio(sampling, z, grid))
    present = density @ np.maximum(ratio - np.exp(epsilon), 0)
    return present, density @ np.maximum(1 - np.exp(epsilon) * ratio, 0)


def test_what_is_certified_lies_just_above_the_truth():
    sampling, z = MinSepSampling(2, 2, 0.4, True, (1.0, 0.5)), 0.8
    with_it = losses_with(best_patterns(sampling, z), z, 50_000)
    without = losses_without(sampling, z, 200_000)
    for which, found in enumerate((smallest(with_it), smallest(without))):
        assert quadrature(sampling, z, found)[which] < DELTA
        assert quadrature(sampling, z, 0.97 * found)[which] > DELTA


@pytest.mark.parametrize("column", [(1.0, -0.5), (0.9, 0.5), (1.0, 0.0)])
def test_contributions_along_one_line_are_the_worst(column):
    """Of another sign from round to round, smaller, or at right angles: δ is no larger, either way."""
    worst, other = (MinSepSampling(2, 2, 0.6, True, c) for c in ((1.0, 0.5), column))
    for one, two in zip(quadrature(other, 0.8, 0.5), quadrature(worst, 0.8, 0.5), strict=True):
        assert one < two


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "z"), [(0.1, 1.5), (0.5, 3.0)])
def test_without_rests_it_is_poisson_sampling(rate, z):
    sampling = MinSepSampling(30, 1, rate, True, (1.0,))
    known = PLDAccountant(value_discretization_interval=1e-3)
    sampled = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z))
    pld = known.compose(sampled, 30)._pld
    found = losses_with(best_patterns(sampling, z), z, 100_000)
    present = pld._pmf_remove.get_epsilon_for_delta(DELTA)
    assert present - 0.001 < smallest(found) < 1.02 * present
    absent = pld._pmf_add.get_epsilon_for_delta(DELTA)
    found = losses_without(sampling, z, 500_000)
    assert absent - 0.001 < smallest(found) < 1.05 * absent


@pytest.mark.thorough
@pytest.mark.parametrize("order", [1, 2, 4])
def test_where_nothing_is_left_to_chance_it_is_one_gaussian(order):
    sampling, z, norm = (
        MinSepSampling(9, 3, 1.0, False, (1.0, 0.5, 0.25)),
        4.0,
        math.sqrt(3 * 1.3125),
    )
    known = PLDAccountant(value_discretization_interval=1e-3)
    exact = known.compose(dp_event.GaussianDpEvent(z / norm)).get_epsilon(DELTA)
    found = smallest(losses_with(Patterns(sampling, order, z), z, 400_000))
    assert exact - 0.001 < found < 1.05 * exact
    assert exact - 0.001 < smallest(losses_without(sampling, z, 400_000)) < 1.05 * exact


@pytest.mark.thorough
def test_a_client_that_is_said_to_rest_and_does_not_costs_more():
    """Charged for rests of two rounds, it comes whenever a coin says so: the price is too small."""
    column = (1.0, 0.0, 0.0)
    rested = MinSepSampling(30, 3, 0.5, True, column)
    free = MinSepSampling(30, 1, 0.5, True, (1.0,))
    charged = smallest(losses_with(best_patterns(rested, 2.0), 2.0, 20_000))
    assert charged < 0.8 * smallest(losses_with(best_patterns(free, 2.0), 2.0, 20_000))
