"""Sums over patterns against all patterns one by one."""

from __future__ import annotations

import numpy as np
import pytest
from small_strategies import patterns

from fedpriv.privacy.matrix.participation import Cyclic, MinSeparation, OncePerEpoch

KINDS = (MinSeparation, Cyclic, OncePerEpoch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("separation", "most"), [(1, None), (3, None), (3, 2), (4, 1), (2, 3)])
def test_the_largest_sum_is_that_of_the_best_pattern(kind, separation, most):
    participation, rounds = kind(separation, most), 9
    weights = np.random.default_rng(separation).random((4, rounds))
    allowed = patterns(participation, rounds)
    for row, found in zip(weights, participation.largest(weights), strict=True):
        assert found == pytest.approx(max(row[p].sum() for p in allowed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("separation", [1, 3, 4])
def test_rounds_are_together_if_a_pattern_has_both(kind, separation):
    participation, rounds = kind(separation), 9
    found = np.zeros((rounds, rounds), dtype=bool)
    for pattern in patterns(participation, rounds):
        found[np.ix_(pattern, pattern)] = True
    np.fill_diagonal(found, False)
    together = participation.together(rounds)
    np.fill_diagonal(together, False)
    assert (found == together).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("separation", "most"), [(1, None), (3, None), (3, 2), (4, 1)])
def test_times_is_the_length_of_the_longest_pattern(kind, separation, most):
    participation = kind(separation, most)
    assert participation.times(9) == max(map(len, patterns(participation, 9)))


def test_a_client_rests_between_two_rounds():
    rested = MinSeparation(3, most=2)
    last, count = np.array([-1, 4, 3, 0]), np.array([0, 1, 1, 2])
    assert rested.may(6, last, count).tolist() == [True, False, True, False]
