"""The second derivation of ε: known values, both directions, and bounds from both sides."""

from __future__ import annotations

import pytest

from fedpriv.tools.claims.epsilon import ReleaseKind, our_epsilon, second_epsilon
from fedpriv.tools.claims.second import gaussian_epsilon, poisson_epsilon


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 4.377), (0.5, 1.993), (2.0, 9.997)])
def test_a_gaussian_costs_what_its_best_test_tells(mu, epsilon):
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon, abs=1e-3)


def test_no_noise_is_needed_for_a_large_delta():
    assert gaussian_epsilon(0.01, 0.5) == 0.0


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon"), [(0.5, 0.1, 1, 7.6951), (1.0, 0.01, 50, 0.8585)]
)
def test_poisson_lots_are_bounded_from_both_sides(sigma, rate, steps, epsilon):
    low, high = poisson_epsilon(sigma, rate, steps, 1e-6)
    assert low <= high <= low + 0.02
    ours = our_epsilon([ReleaseKind(steps, sigma, rate)], 1e-6)
    assert low - 1e-3 <= ours <= high + 1e-3


def test_pure_epsilons_add_up():
    assert second_epsilon([ReleaseKind(steps=10, pure_epsilon=0.5)], 1e-5) == (5.0, 5.0)


def test_different_gaussians_add_up_in_their_squares():
    two = second_epsilon([ReleaseKind(1, 3.0), ReleaseKind(1, 4.0)], 1e-5)[0]
    assert two == pytest.approx(gaussian_epsilon(5 / 12, 1e-5))
