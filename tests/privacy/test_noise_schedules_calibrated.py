"""The schedule whose σ follows from an ε: what it asks the experiment to solve, and what it then is."""

from __future__ import annotations

import math

import pytest
from schedule_suite import ScheduleSuite

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.calibration import least_noise_multiplier
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.noise_schedules import CalibratedNoise, Setting

DELTA = 1e-5


def gdp(epsilon: float, samples: int | None) -> float:
    """σ of ``samples`` plain Gaussians; 10 where the plan decides."""
    samples = 10 if samples is None else samples
    accountant = GdpAccountant()
    return least_noise_multiplier(
        lambda z: accountant.epsilon_of_sum(samples / z**2, DELTA), epsilon, accountant.name
    )


def setting(solve) -> Setting:  # type: ignore[no-untyped-def]
    return Setting(
        WholeData(), 1, 1.0, GdpAccountant(), None, False, smallest_noise_multiplier=solve
    )


def calibrated(**keys) -> CalibratedNoise:  # type: ignore[no-untyped-def]
    schedule = CalibratedNoise(**keys)
    schedule.calibrate(setting(gdp))
    return schedule


class TestOfTheRun(ScheduleSuite):
    def make(self):
        return calibrated(epsilon=2.0)


class TestOfADraw(ScheduleSuite):
    def make(self):
        return calibrated(epsilon_per_draw=0.5)


def asked(**keys) -> tuple[float, int | None]:  # type: ignore[no-untyped-def]
    """What the schedule asks to be solved: (ε, samples)."""
    solved = []

    def solve(epsilon: float, samples: int | None) -> float:
        solved.append((epsilon, samples))
        return 1.0

    CalibratedNoise(**keys).calibrate(setting(solve))
    (once,) = solved
    return once


# ---- what is solved


def test_an_epsilon_of_the_run_covers_the_samples_of_the_plan():
    assert asked(epsilon=2.0) == (2.0, None)


def test_an_epsilon_of_the_run_covers_the_samples_given():
    assert asked(epsilon=2.0, draws=40) == (2.0, 40)


def test_an_epsilon_per_draw_covers_one():
    assert asked(epsilon_per_draw=0.5) == (0.5, 1)


def test_an_epsilon_per_draw_wins_over_that_of_the_run():
    assert asked(epsilon=2.0, epsilon_per_draw=0.5) == (0.5, 1)


# ---- what it then is


def test_sigma_is_the_solution_in_every_round():
    schedule = calibrated(epsilon=2.0, draws=40)
    assert [schedule.noise_multiplier(t) for t in (0, 1, 1000)] == [gdp(2.0, 40)] * 3


def test_the_samples_given_cost_the_epsilon_to_six_digits():
    sigma = calibrated(epsilon=2.0, draws=40).noise_multiplier(0)
    spent = GdpAccountant().epsilon_of_sum(40 / sigma**2, DELTA)
    assert 2.0 * (1 - 2e-5) < spent <= 2.0


def test_more_samples_for_one_epsilon_take_the_root_of_so_much_more_noise():
    few, many = (calibrated(epsilon=2.0, draws=n).noise_multiplier(0) for n in (10, 90))
    assert many == pytest.approx(3 * few, rel=2e-5)


def test_it_needs_no_filter_and_no_validation():
    schedule = calibrated(epsilon=2.0)
    assert not schedule.adaptive
    assert not schedule.reads_validation


def test_a_schedule_that_is_not_calibrated_has_no_noise_to_give():
    assert not CalibratedNoise(2.0).known
    assert calibrated(epsilon=2.0).known
    with pytest.raises(RuntimeError, match="must be calibrated before it is used"):
        CalibratedNoise(2.0).noise_multiplier(0)


# ---- arguments


def test_without_a_budget_there_is_nothing_to_calibrate_to():
    with pytest.raises(
        ConfigError, match="epsilon must be a number > 0 with noise_schedule=calibrated"
    ):
        CalibratedNoise()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epsilon": 0}, "epsilon must be > 0, got 0"),
        ({"epsilon": math.inf}, "epsilon must be finite, > 0, got inf"),
        ({"epsilon": "2"}, "epsilon must be a number > 0, got 2"),
        ({"epsilon_per_draw": 0}, "epsilon_per_draw must be > 0, got 0"),
        ({"epsilon_per_draw": -1, "epsilon": 2.0}, "epsilon_per_draw must be > 0, got -1"),
        ({"epsilon_per_draw": 0.5, "draws": 3}, "draws must be null with epsilon_per_draw, got 3"),
        ({"epsilon": 2.0, "draws": 0}, "draws must be a whole number >= 1, got 0"),
        ({"epsilon": 2.0, "draws": 2.5}, "draws must be a whole number >= 1, got 2.5"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ArgumentError) as caught:
        CalibratedNoise(**keys)
    assert str(caught.value) == message
