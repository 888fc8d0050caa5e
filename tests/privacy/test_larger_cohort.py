"""The noise of a larger cohort: σ from the imagined population, ε of the clients simulated apart from it."""

from __future__ import annotations

import copy
import functools

import pytest
from schedule_suite import ScheduleSuite

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.calibration import RepeatedRelease
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.larger_cohort import LargerCohort
from fedpriv.privacy.noise_schedule import Setting

SMALL = {"epsilon": 2.0, "delta": 1e-6, "population": 10_000, "cohort": 100, "rounds": 20}


def expecting(cohort: float | None) -> Setting:
    """A run with so many clients in a round; no schedule of this kind asks what a run costs."""
    return Setting(
        WholeData(), 1, 1.0, RdpAccountant(), None, False,
        smallest_noise_multiplier=lambda epsilon, samples: pytest.fail("not asked"),
        expected_cohort=cohort,
    )  # fmt: skip


def calibrated(cohort: float = 5.0) -> LargerCohort:
    schedule = LargerCohort(**SMALL)
    schedule.calibrate(expecting(cohort))
    return schedule


calibrated_once = functools.cache(calibrated)


class TestLargerCohort(ScheduleSuite):
    def make(self):
        return copy.deepcopy(calibrated_once())  # the laws make hundreds of schedules


def test_the_multiplier_is_that_of_the_imagined_population_scaled_by_the_cohorts():
    sigma = calibrated(cohort=5.0).noise_multiplier(0)
    event = RepeatedRelease("poisson").event(sigma * 100 / 5, 0.01)
    spent = PldAccountant().epsilon_of({event: 20}, 1e-6, "add_or_remove")
    assert 1.99 < spent <= 2.0


def test_the_mean_has_the_same_noise_whatever_the_cohort():
    few, many = calibrated(5.0), calibrated(50.0)
    assert few.noise_multiplier(0) / 5 == pytest.approx(many.noise_multiplier(0) / 50)


def test_the_imagined_population_spends_its_epsilon_over_its_rounds():
    schedule = calibrated()
    told = [schedule.imagined(rounds) for rounds in (0, 5, 20)]
    assert [one["rounds"] for one in told] == [0, 5, 20]
    assert told[0]["epsilon"] == 0.0
    assert 0 < told[1]["epsilon"] < told[2]["epsilon"] <= 2.0
    assert told[2]["population"] == 10_000


def test_the_caveat_names_the_population_and_that_it_is_no_guarantee():
    caveat = calibrated().caveat
    assert "imagined population of 10,000 clients" in caveat
    assert "no guarantee about the clients of this run" in caveat


def test_a_cohort_above_the_population_is_refused():
    with pytest.raises(ArgumentError, match=r"cohort must be <= 10000.*got 10001"):
        LargerCohort(**SMALL | {"cohort": 10_001})


def test_a_run_with_larger_cohorts_is_refused():
    with pytest.raises(ArgumentError, match=r"cohort must be >= 200.*got 100"):
        calibrated(cohort=200.0)


def test_an_unknown_number_of_clients_is_refused():
    with pytest.raises(ConfigError, match=r"partition\.clients must be a number"):
        LargerCohort(**SMALL).calibrate(expecting(None))
