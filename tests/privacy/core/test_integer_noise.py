"""Noise of whole numbers: the laws, how they are drawn, their tails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedpriv.common.secret_streams import Stream, derived_key
from fedpriv.privacy.core.integer_noise import WeightTable, discrete_gaussian, skellam

VARIANCES = (0.05, 0.6, 1.0, 7.3, 900.0)
LAWS = {"discrete_gaussian": discrete_gaussian, "skellam": skellam}


def stream(name: str) -> Stream:
    return Stream(derived_key(b"test", name))


def exact(law: str, variance: float, values: np.ndarray) -> np.ndarray:
    if law == "skellam":
        return stats.skellam.pmf(values, variance / 2, variance / 2)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * variance))
    return weights / weights.sum()


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("law", LAWS)
def test_the_tabulated_law_is_the_law(law, variance):
    table = LAWS[law](variance)
    values = np.arange(-table.largest, table.largest + 1)
    np.testing.assert_allclose(
        table.probabilities(), exact(law, variance, values), atol=1e-13, rtol=0
    )
    assert table.probabilities().sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [1.0, 900.0])
def test_what_is_left_out_of_the_table_has_no_mass(law, variance):
    """Less than 2^-120, by the logarithm of the law beyond its end."""
    first = LAWS[law](variance).largest + 1
    if law == "discrete_gaussian":
        log_mass = -(first**2) / (2 * variance)
    else:  # the tail of a Skellam, by Chernoff's bound at its best
        rate = math.asinh(first / variance)
        log_mass = variance * (math.cosh(rate) - 1) - rate * first
    assert log_mass < -120 * math.log(2)


@pytest.mark.parametrize("variance", [0.6, 7.3, 900.0])
@pytest.mark.parametrize("law", LAWS)
def test_draws_follow_the_law(law, variance):
    """Chi-square over the values that are frequent enough, with a fixed key."""
    count = 200_000
    table = LAWS[law](variance)
    drawn = table.draw(stream(law), count)
    values = np.arange(-table.largest, table.largest + 1)
    expected = exact(law, variance, values) * count
    found = np.bincount(drawn + table.largest, minlength=len(values))
    often = expected >= 10
    rest = [found[~often].sum(), max(expected[~often].sum(), 1e-9)]
    pairs = np.vstack([np.column_stack([found[often], expected[often]]), rest])
    statistic = ((pairs[:, 0] - pairs[:, 1]) ** 2 / pairs[:, 1])[: often.sum()].sum()
    assert stats.chi2.sf(statistic, often.sum() - 1) > 1e-3


@pytest.mark.parametrize("law", LAWS)
def test_tails_are_drawn_as_often_as_they_should_be(law):
    count, variance = 500_000, 100.0
    drawn = np.abs(LAWS[law](variance).draw(stream("tails"), count))
    table = LAWS[law](variance)
    values = np.arange(-table.largest, table.largest + 1)
    for far in (25, 35, 42):
        expected = exact(law, variance, values)[np.abs(values) >= far].sum() * count
        assert stats.poisson.sf(np.count_nonzero(drawn >= far) - 1, expected) > 1e-4
        assert stats.poisson.cdf(np.count_nonzero(drawn >= far), expected) > 1e-4


class Words:
    """A stream of words that are given."""

    def __init__(self, *words: int):
        self.words = list(words)

    def bits(self, count: int) -> np.ndarray:
        return np.array([self.words.pop(0) for _ in range(count)], dtype=np.uint64)


def test_a_word_on_a_threshold_is_decided_by_the_next_one():
    """P(0) = 1/3, whose first 64 bits are those of a third of 2^64 and whose next go on."""
    table = WeightTable([1, 1])
    high = (1 << 128) // 3 >> 64
    low = (1 << 128) // 3 & (2**64 - 1)
    assert table.draw(Words(high, 0, low - 1), 1)[0] == 0
    assert table.draw(Words(high, 0, low), 1)[0] == 1
    assert table.draw(Words(high, 1, low), 1)[0] == 1  # little-endian: the first byte's highest bit
    assert table.draw(Words(high - 1, 0), 1)[0] == 0
    assert table.draw(Words(high + 1, 128), 1)[0] == -1


def test_sums_of_skellams_are_skellams():
    share = skellam(2.0).probabilities()
    five = np.array([1.0])
    for _ in range(5):
        five = np.convolve(five, share)
    middle = len(five) // 2
    values = np.arange(-20, 21)
    np.testing.assert_allclose(
        five[middle - 20 : middle + 21], exact("skellam", 10.0, values), atol=1e-14
    )
