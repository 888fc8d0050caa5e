"""Calibration: never above the target, and close to it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import GdpAccountant, RdpAccountant
from fedpriv.privacy.calibration import (
    LEAST_NOISE,
    RepeatedRelease,
    calibrate_noise_multiplier,
    calibrate_sample_rate,
    calibrate_steps,
    least_noise_multiplier,
)
from fedpriv.privacy.core.names import REPLACE_ONE

RDP, GDP = RdpAccountant(), GdpAccountant()
DELTA = 1e-5
laws = settings(max_examples=examples(25))
targets = st.floats(0.1, 100.0)


def price(accountant, release, multiplier, steps, rate=1.0):  # type: ignore[no-untyped-def]
    event = release.event(multiplier, rate)
    return accountant.epsilon_of({event: steps}, DELTA, release.neighbours)


@laws
@given(epsilon=targets, rate=st.floats(0.001, 1.0), steps=st.integers(1, 5000))
def test_noise_meets_the_target_from_below(epsilon, rate, steps):
    found = calibrate_noise_multiplier(
        RDP, RepeatedRelease(), epsilon=epsilon, delta=DELTA, steps=steps, sample_rate=rate
    )
    assert 0.99 * epsilon <= price(RDP, RepeatedRelease(), found, steps, rate) <= epsilon


@laws
@given(epsilon=targets, multiplier=st.floats(3.0, 20.0), steps=st.integers(1, 5000))
def test_a_sample_rate_meets_the_target_from_below_or_is_all(epsilon, multiplier, steps):
    found = calibrate_sample_rate(
        RDP,
        RepeatedRelease(),
        epsilon=epsilon,
        delta=DELTA,
        steps=steps,
        noise_multiplier=multiplier,
    )
    spent = price(RDP, RepeatedRelease(), multiplier, steps, found)
    assert spent <= epsilon
    assert found == 1.0 or spent >= 0.99 * epsilon


@laws
@given(epsilon=st.floats(2.0, 50.0), multiplier=st.floats(2.0, 6.0), rate=st.floats(0.01, 0.2))
def test_one_step_more_would_exceed(epsilon, multiplier, rate):
    found = calibrate_steps(
        RDP,
        RepeatedRelease(),
        epsilon=epsilon,
        delta=DELTA,
        noise_multiplier=multiplier,
        sample_rate=rate,
    )
    assert price(RDP, RepeatedRelease(), multiplier, found, rate) <= epsilon
    assert price(RDP, RepeatedRelease(), multiplier, found + 1, rate) > epsilon


# ---- the search itself, on prices that fall with the multiplier


def next_smaller(value: float) -> float:
    """The number of 6 digits below ``value``, and 2e-6 less: the root is found to 1e-6."""
    return (value - 10.0 ** (math.floor(math.log10(value)) - 5)) * (1 - 2e-6)


@laws
@given(epsilon=st.floats(0.01, 20.0), power=st.floats(0.5, 3.0), guess=st.floats(1e-3, 1e4))
def test_the_least_multiplier_is_the_smallest_of_6_digits_from_any_guess(epsilon, power, guess):
    def falling(multiplier: float) -> float:
        return multiplier**-power

    found = least_noise_multiplier(falling, epsilon, "test", guess)
    assert falling(found) <= epsilon < falling(next_smaller(found))


@laws
@given(epsilon=st.floats(0.1, 20.0), steps=st.integers(1, 1000))
def test_the_least_multiplier_of_plain_gaussians_is_that_of_gdp(epsilon, steps):
    def of_gaussians(multiplier: float) -> float:
        return GDP.epsilon_of_sum(steps * multiplier**-2, DELTA)

    found = least_noise_multiplier(of_gaussians, epsilon, "gdp")
    exact = math.sqrt(steps / GDP.largest_sum(epsilon, DELTA))
    assert of_gaussians(found) <= epsilon
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1.2e-5)


@laws
@given(least=st.floats(2e-3, 1e5))
def test_the_least_multiplier_has_six_digits(least):
    found = least_noise_multiplier(lambda z: 1 / z, 1 / least, "test")
    assert found == float(f"{found:.6g}")


def test_the_epsilon_of_a_multiplier_that_the_search_visits_gives_that_multiplier():
    visited = 5.159780351999999  # 1.2^9 by repeated products
    epsilon = price(RDP, RepeatedRelease("none"), visited, 1)
    found = calibrate_noise_multiplier(
        RDP, RepeatedRelease("none"), epsilon=epsilon, delta=DELTA, steps=1
    )
    assert found == 5.15979


def test_where_everything_fits_the_least_multiplier_searched_is_the_answer():
    assert least_noise_multiplier(lambda z: 0.0, 1.0, "test") == LEAST_NOISE


def searched(epsilon: float, most: float) -> tuple[float, list[float]]:
    """The least multiplier for a price 1/z, and every multiplier a price was asked for."""
    asked: list[float] = []

    def inverse(multiplier: float) -> float:
        asked.append(multiplier)
        return 1 / multiplier

    return least_noise_multiplier(inverse, epsilon, "test", most=most), asked


@laws
@given(most=st.floats(0.1, 1e3), share=st.floats(0.05, 0.9999))
def test_only_multipliers_below_the_most_are_asked_for(most, share):
    found, asked = searched(1 / (most * share), most)
    assert found == pytest.approx(most * share, rel=1.2e-5)
    assert max(asked) < most


def test_a_target_that_takes_more_than_the_most_is_refused_with_the_least_that_can_be():
    with pytest.raises(ArgumentError) as caught:
        searched(0.09, most=10.0)
    assert caught.value.argument == "epsilon"
    assert str(caught.value) == "epsilon must be >= 0.1001, the least test can certify, got 0.09"


def test_an_answer_just_below_the_most_is_not_rounded_up_to_it():
    found, asked = searched(1 / 9.9999995, most=10.0)
    assert max(found, *asked) < 10.0


def test_a_most_below_the_least_multiplier_searched_is_not_exceeded():
    found, asked = searched(1e9, most=LEAST_NOISE / 10)
    assert max(found, *asked) < LEAST_NOISE / 10


@pytest.mark.parametrize("epsilon", [4e5, 1e6, 4e6])
def test_huge_targets_are_not_exceeded_either(epsilon):
    found = calibrate_noise_multiplier(
        RDP, RepeatedRelease("none"), epsilon=epsilon, delta=DELTA, steps=1
    )
    assert price(RDP, RepeatedRelease("none"), found, 1) <= epsilon


def test_replacing_a_record_needs_twice_the_noise_of_adding_one():
    added = calibrate_noise_multiplier(
        GDP, RepeatedRelease("none"), epsilon=1, delta=DELTA, steps=9
    )
    replaced = calibrate_noise_multiplier(
        GDP, RepeatedRelease("none", REPLACE_ONE), epsilon=1, delta=DELTA, steps=9
    )
    assert replaced == pytest.approx(2 * added, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"sampling": "poison"}, "sampling"),
        ({"neighbours": "swap"}, "neighbours"),
        ({"sampling": "without_replacement"}, "records"),
        ({"sampling": "without_replacement", "records": 9, "neighbours": "add_or_remove"},
         "neighbours"),
        ({"records": 9}, "records"),
        ({"max_lot_size": 9}, "records"),
        ({"max_lot_size": 0, "records": 9}, "max_lot_size"),
        ({"max_lot_size": 9, "records": 9, "neighbours": REPLACE_ONE}, "max_lot_size"),
    ],
)  # fmt: skip
def test_releases_that_contradict_themselves_are_refused(changes, argument):
    with pytest.raises(ArgumentError) as caught:
        RepeatedRelease(**changes)
    assert caught.value.argument == argument
