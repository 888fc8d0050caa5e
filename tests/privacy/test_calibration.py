"""Calibration: never above the target, and close to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.calibration import (
    Release,
    calibrate_noise_multiplier,
    calibrate_sample_rate,
    calibrate_steps,
)
from fedpriv.privacy.names import REPLACE_ONE

RDP, GDP = RdpAccountant(), GdpAccountant()
DELTA = 1e-5
laws = settings(max_examples=25, deadline=None)
targets = st.floats(0.1, 100.0)


def price(accountant, release, multiplier, steps, rate=1.0):  # type: ignore[no-untyped-def]
    event = release.event(multiplier, rate)
    return accountant.epsilon_of({event: steps}, DELTA, release.neighbours)


@laws
@given(epsilon=targets, rate=st.floats(0.001, 1.0), steps=st.integers(1, 5000))
def test_noise_meets_the_target_from_below(epsilon, rate, steps):
    found = calibrate_noise_multiplier(
        RDP, Release(), epsilon=epsilon, delta=DELTA, steps=steps, sample_rate=rate
    )
    assert 0.99 * epsilon <= price(RDP, Release(), found, steps, rate) <= epsilon


@laws
@given(epsilon=targets, multiplier=st.floats(3.0, 20.0), steps=st.integers(1, 5000))
def test_a_sample_rate_meets_the_target_from_below_or_is_all(epsilon, multiplier, steps):
    found = calibrate_sample_rate(
        RDP, Release(), epsilon=epsilon, delta=DELTA, steps=steps, noise_multiplier=multiplier
    )
    spent = price(RDP, Release(), multiplier, steps, found)
    assert spent <= epsilon
    assert found == 1.0 or spent >= 0.99 * epsilon


@laws
@given(epsilon=st.floats(2.0, 50.0), multiplier=st.floats(2.0, 6.0), rate=st.floats(0.01, 0.2))
def test_one_step_more_would_exceed(epsilon, multiplier, rate):
    found = calibrate_steps(
        RDP, Release(), epsilon=epsilon, delta=DELTA, noise_multiplier=multiplier, sample_rate=rate
    )
    assert price(RDP, Release(), multiplier, found, rate) <= epsilon
    assert price(RDP, Release(), multiplier, found + 1, rate) > epsilon


@pytest.mark.parametrize("epsilon", [4e5, 1e6, 4e6])
def test_huge_targets_are_not_exceeded_either(epsilon):
    found = calibrate_noise_multiplier(RDP, Release("none"), epsilon=epsilon, delta=DELTA, steps=1)
    assert price(RDP, Release("none"), found, 1) <= epsilon


def test_replacing_a_record_needs_twice_the_noise_of_adding_one():
    added = calibrate_noise_multiplier(GDP, Release("none"), epsilon=1, delta=DELTA, steps=9)
    replaced = calibrate_noise_multiplier(
        GDP, Release("none", REPLACE_ONE), epsilon=1, delta=DELTA, steps=9
    )
    assert replaced == pytest.approx(2 * added, rel=1e-4)


def test_capped_lots_are_calibrated_by_pld():
    release, coarse = Release(records=200, max_lot_size=30), PldAccountant(discretization=1e-3)
    found = calibrate_noise_multiplier(
        coarse, release, epsilon=2, delta=DELTA, steps=100, sample_rate=0.1
    )
    assert 1.98 <= price(coarse, release, found, 100, 0.1) <= 2


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
        Release(**changes)
    assert caught.value.argument == argument
