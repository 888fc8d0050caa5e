from __future__ import annotations

import math

import pytest
from schedule_suite import ScheduleSuite

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.noise_schedules import ConstantNoise, ExponentialNoise, NoNoise, StepNoise


class TestNone(ScheduleSuite):
    def make(self):
        return NoNoise()


class TestConstant(ScheduleSuite):
    def make(self):
        return ConstantNoise(3.0)


class TestExponential(ScheduleSuite):
    def make(self):
        return ExponentialNoise(6.0, 0.9)


class TestStep(ScheduleSuite):
    def make(self):
        return StepNoise(6.0, 0.5, interval=7)


def path(schedule, rounds: int) -> list[float]:  # type: ignore[no-untyped-def]
    return [schedule.noise_multiplier(t) for t in range(rounds)]


def test_no_noise_is_zero_in_every_round():
    assert path(NoNoise(), 3) == [0.0, 0.0, 0.0]


def test_constant_noise_is_the_same_in_every_round():
    assert path(ConstantNoise(1.1), 3) == [1.1, 1.1, 1.1]


def test_exponential_noise_falls_by_beta_in_every_round():
    assert path(ExponentialNoise(8.0, 0.5), 4) == [8.0, 4.0, 2.0, 1.0]


def test_exponential_noise_stops_at_its_minimum():
    assert path(ExponentialNoise(8.0, 0.5, min_noise_multiplier=3.0), 4) == [8.0, 4.0, 3.0, 3.0]


def test_exponential_noise_stays_above_zero_for_ever():
    assert ExponentialNoise(8.0, 0.5).noise_multiplier(10**6) == 1e-3


def test_step_noise_falls_by_beta_in_every_interval():
    assert path(StepNoise(8.0, 0.5, interval=2), 6) == [8.0, 8.0, 4.0, 4.0, 2.0, 2.0]


def test_step_noise_stops_at_its_minimum():
    falling = StepNoise(8.0, 0.5, interval=1, min_noise_multiplier=3.0)
    assert path(falling, 4) == [8.0, 4.0, 3.0, 3.0]


@pytest.mark.parametrize(
    "schedule",
    [NoNoise(), ConstantNoise(1.0), ExponentialNoise(1.0, 0.9), StepNoise(1.0, 0.9, 2)],
    ids=lambda s: type(s).__name__,
)
def test_a_schedule_of_the_round_alone_needs_no_filter_and_no_validation(schedule):
    assert not schedule.adaptive
    assert not schedule.reads_validation


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantNoise(0), "noise_multiplier must be > 0 and <= 1e+06, got 0"),
        (
            lambda: ConstantNoise(math.inf),
            "noise_multiplier must be finite, > 0 and <= 1e+06, got inf",
        ),
        (lambda: ConstantNoise("3"), "noise_multiplier must be a number > 0 and <= 1e+06, got 3"),
        (lambda: ExponentialNoise(3.0, 1.1), "beta must be > 0 and <= 1, got 1.1"),
        (lambda: ExponentialNoise(3.0, 0), "beta must be > 0 and <= 1, got 0"),
        (
            lambda: ExponentialNoise(3.0, 0.9, min_noise_multiplier=0),
            "min_noise_multiplier must be > 0, got 0",
        ),
        (
            lambda: ExponentialNoise(3.0, 0.9, min_noise_multiplier=4),
            "min_noise_multiplier must be <= 3, which is noise_multiplier, got 4",
        ),
        (
            lambda: StepNoise(3.0, 0.9, 2, min_noise_multiplier=4),
            "min_noise_multiplier must be <= 3, which is noise_multiplier, got 4",
        ),
        (lambda: StepNoise(3.0, 0.9, 0), "interval must be a whole number >= 1, got 0"),
        (lambda: StepNoise(3.0, 0.9, 2.5), "interval must be a whole number >= 1, got 2.5"),
    ],
)
def test_an_argument_that_cannot_be_is_refused(make, message):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert str(caught.value) == message
