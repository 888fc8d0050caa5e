"""Randomized response: its coin, and the estimate the server makes of the flipped bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.mechanisms.randomized_response import flip_probability, noised_count

laws = settings(max_examples=examples(60))
epsilons = st.floats(1e-3, 50.0)
REPETITIONS = 20_000


def estimates(ones: int, total: int, epsilon: float) -> np.ndarray:
    stream = np.random.default_rng(7)
    return np.array([noised_count(ones, total, epsilon, stream) for _ in range(REPETITIONS)])


# ---- the coin


@laws
@given(epsilon=epsilons)
def test_the_two_answers_differ_in_probability_by_exactly_e_to_the_epsilon(epsilon):
    flip = flip_probability(epsilon)
    assert math.log1p(-flip) - math.log(flip) == pytest.approx(epsilon, rel=1e-9)


@laws
@given(epsilon=epsilons)
def test_a_bit_is_flipped_less_often_than_not(epsilon):
    assert 0.0 < flip_probability(epsilon) < 0.5


def test_at_epsilon_log_three_a_quarter_of_the_bits_is_flipped():
    assert flip_probability(math.log(3)) == pytest.approx(0.25)


# ---- the estimate


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
@pytest.mark.parametrize("ones", [0, 12])
def test_the_estimate_is_unbiased_with_the_stated_variance_however_many_ones_there_are(
    ones, epsilon
):
    """n f (1 - f) / (1 - 2f)²; a sample's variance is about (2/N)^(1/2) off, more with its tails."""
    found = estimates(ones, 40, epsilon)
    assert found.mean() == pytest.approx(ones, abs=5 * found.std() / math.sqrt(REPETITIONS))
    flip = flip_probability(epsilon)
    variance = 40 * flip * (1 - flip) / (1 - 2 * flip) ** 2
    assert found.var() == pytest.approx(variance, rel=0.07)


@laws
@given(total=st.integers(0, 1000), share=st.floats(0.0, 1.0))
def test_with_hardly_any_flips_the_estimate_is_the_count(total, share):
    ones = round(total * share)
    found = noised_count(ones, total, 50.0, np.random.default_rng(0))
    assert found == pytest.approx(ones, abs=1e-9)


def test_an_empty_cohort_counts_nothing():
    assert noised_count(0, 0, 1.0, np.random.default_rng(0)) == 0.0


def test_equal_streams_give_equal_estimates():
    pair = [noised_count(30, 100, 1.0, np.random.default_rng(3)) for _ in range(2)]
    assert pair[0] == pair[1]


def test_bits_are_flipped_independently_of_what_they_are():
    """All ones and all zeros are mirror images: k̂ and n - k̂ have one distribution."""
    ones, zeros = estimates(40, 40, 1.0), 40 - estimates(0, 40, 1.0)
    assert np.quantile(ones, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(zeros, [0.1, 0.5, 0.9]), abs=2.5
    )
