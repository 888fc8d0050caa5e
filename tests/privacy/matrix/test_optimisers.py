"""What the optimisers follow, and that nothing near is better."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.privacy.matrix import banded, banded_toeplitz, blt
from fedpriv.privacy.matrix.participation import MinSeparation
from fedpriv.privacy.matrix.strategy import error
from fedpriv.privacy.matrix.toeplitz import error_and_slope, leftmost_square
from fedpriv.privacy.matrix.workload import MAX, MEAN, Workload

WORKLOADS = [Workload(14), Workload(14, 0.7), Workload(14, 0.7, 5), Workload(14, 0.0, 14)]


def differences(value, at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of ``value`` at an array of any shape."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        found[place] = (value(at + moved) - value(at - moved)) / (2 * step)
    return found


@pytest.mark.parametrize("objective", [MEAN, MAX])
@pytest.mark.parametrize("workload", WORKLOADS, ids=Workload.describe)
def test_the_slopes_of_toeplitz_errors_are_derivatives(workload, objective):
    inverse = np.random.default_rng(0).normal(size=14)
    _, slope = error_and_slope(inverse, workload, objective)
    wanted = differences(lambda d: error_and_slope(d, workload, objective)[0], inverse)
    assert slope == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("separation", "times"), [(4, 2), (4, 4), (5, 1), (1, 14)])
def test_the_slope_of_the_leftmost_pattern_is_its_derivative(separation, times):
    c = np.random.default_rng(0).random(14)
    _, slope = leftmost_square(c, separation, times)
    wanted = differences(lambda d: leftmost_square(d, separation, times)[0], c)
    assert slope == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS, ids=Workload.describe)
def test_the_slopes_of_banded_errors_are_derivatives(workload):
    entries = np.random.default_rng(0).random((14, 4)) + np.eye(1, 4)
    entries = np.where(banded._inside(14, 4), entries, 0.0)
    _, slope = banded._error_and_slope(entries, workload, MEAN)
    wanted = differences(lambda e: banded._error_and_slope(e, workload, MEAN)[0], entries)
    inside = banded._inside(14, 4)
    assert slope[inside] == pytest.approx(wanted[inside], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS[:3], ids=Workload.describe)
def test_nothing_near_the_best_toeplitz_strategy_is_better(workload):
    rest, stream = MinSeparation(4), np.random.default_rng(1)
    best = banded_toeplitz.optimise(workload, rest, 4)
    least = error(best, rest, workload)
    for _ in range(50):
        other = best.series * (1 + 0.05 * stream.normal(size=4))
        assert error(banded_toeplitz.BandedToeplitz(14, other), rest, workload) > least * (1 - 1e-9)


def test_a_value_for_each_entry_is_better_than_one_for_each_band():
    workload, rest = Workload(40, 0.5, 10), MinSeparation(8)
    toeplitz = banded_toeplitz.optimise(workload, rest, 8)
    dense = banded.optimise(workload, toeplitz.series)
    assert error(dense, rest, workload) < 0.99 * error(toeplitz, rest, workload)
    assert dense.column_norms() == pytest.approx(1.0)


@pytest.mark.thorough
def test_further_buffers_are_taken_while_they_gain():
    workload, once = Workload(500), MinSeparation(500, 1)
    errors = [error(blt.optimise(workload, once, m), once, workload) for m in (1, 2, 3)]
    assert errors[0] > 1.05 * errors[1] > 1.05 * errors[2] * 0.96
    assert len(blt.optimise(workload, once).decays) >= 3


def test_the_coefficients_of_buffers_are_positive_and_fall():
    """Whatever the decays: then the leftmost pattern is the worst."""
    stream = np.random.default_rng(2)
    for _ in range(50):
        points = np.sort(stream.random(6))[::-1]
        c = blt.Blt(30, points[::2], points[1::2]).coefficients()
        assert c.min() > 0
        assert (np.diff(c) < 0).all()


def test_the_slopes_of_alternating_points_are_derivatives():
    free = np.array([1.0, -0.5, 0.3, 0.7])
    _, jacobian = blt._alternating(free)
    for i in range(len(free)):
        slope = differences(lambda x, i=i: blt._alternating(x)[0][i], free)
        assert jacobian[i] == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_the_optimal_series_is_that_of_the_inverse_root():
    terms = banded_toeplitz.optimal_series(6)
    assert terms.tolist() == [1.0, 1 / 2, 3 / 8, 5 / 16, 35 / 128, 63 / 256]
    assert np.convolve(terms, terms)[:6] == pytest.approx(np.ones(6))  # 1/(1-x), squared root
