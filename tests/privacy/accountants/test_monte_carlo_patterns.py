"""Patterns of b-min-sep sampling, several at once: against all of them, one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedpriv.privacy.accountants import monte_carlo_patterns
from fedpriv.privacy.accountants.monte_carlo_patterns import MinSepSampling, Patterns, best_patterns
from tests.privacy.accountants import enumerated

KINDS = [
    MinSepSampling(5, 3, 0.3, True, (1.0, 0.5, 0.25)),
    MinSepSampling(5, 3, 0.3, False, (1.0, 0.5, 0.25)),
    MinSepSampling(5, 3, 1.0, True, (1.0, -0.5)),
    MinSepSampling(6, 2, 1.0, False, (1.0, 0.7)),
    MinSepSampling(5, 1, 0.2, True, (1.0,)),
]


def tilted(sampling: MinSepSampling, order: int, z: float) -> tuple[float, np.ndarray]:
    """(Z_α, how many of the patterns begin a participation in each round on average [n])."""
    sampling = MinSepSampling(*(*vars(sampling).values(),)[:4], tuple(np.abs(sampling.column)))
    rows, probabilities = enumerated.means(sampling)
    starts = np.zeros((len(rows), sampling.rounds))
    for i, pattern in enumerate(enumerated.patterns(sampling)):
        starts[i, list(pattern)] = 1
    total, begun = 0.0, np.zeros(sampling.rounds)
    for chosen in map(list, product(range(len(rows)), repeat=order)):
        summed = rows[chosen].sum(axis=0)
        pairs = (summed @ summed - (rows[chosen] ** 2).sum()) / 2
        weight = probabilities[chosen].prod() * np.exp(pairs / z**2)
        total += weight
        begun += weight * starts[chosen].sum(axis=0)
    return total, begun / total


@pytest.mark.parametrize("sampling", KINDS, ids=str)
@pytest.mark.parametrize("order", [1, 3])
def test_the_total_weight_is_that_of_all_patterns(sampling, order):
    total, _ = tilted(sampling, order, 1.3)
    found = Patterns(sampling, order, 1.3).log_total
    assert found == pytest.approx(np.log(total), abs=1e-10)


@pytest.mark.parametrize("sampling", KINDS, ids=str)
def test_samples_begin_as_often_as_all_patterns_do(sampling):
    samples = 40_000
    drawn = Patterns(sampling, 3, 1.3).sample(np.random.default_rng(1), samples)
    _, begun = tilted(sampling, 3, 1.3)
    assert np.abs(drawn.mean(axis=1) - begun).max() < 5 * 1.5 / np.sqrt(samples)


def test_the_order_follows_from_the_configuration_alone():
    sampling = MinSepSampling(40, 4, 0.2, True, (1.0, 0.5))
    assert best_patterns(sampling, 2.0).order == best_patterns(sampling, 2.0).order > 2


@pytest.mark.parametrize("limit", ["MOST_STATES", "MOST_NUMBERS"])
def test_either_limit_ends_the_search_for_an_order(limit, monkeypatch):
    sampling = MinSepSampling(12, 4, 0.3, True, (1.0, 0.5, 0.25))
    assert best_patterns(sampling, 0.5, 1e-6).order > 1
    monkeypatch.setattr(monte_carlo_patterns, limit, 0)
    assert best_patterns(sampling, 0.5, 1e-6).order == 1


def test_no_order_is_larger_than_the_largest(monkeypatch):
    sampling = MinSepSampling(12, 4, 0.3, True, (1.0, 0.5, 0.25))
    largest = best_patterns(sampling, 1.0, 1e-6).order - 1
    assert largest > 1
    monkeypatch.setattr(monte_carlo_patterns, "MOST_ORDER", largest)
    assert best_patterns(sampling, 1.0, 1e-6).order == largest
