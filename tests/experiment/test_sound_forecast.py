"""The sound ε that a plan foretells is that of the run."""

from __future__ import annotations

import math

import pytest

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.sound_forecast import SoundForecast, forecast_sound

SHARED = ("dataset=digits", "rounds=3", "runtime.progress=none", "runtime.plots=false")


def forecast(config) -> SoundForecast | None:
    parts = build_parts(config)
    return forecast_sound(parts, make_plan(parts))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=dp_fl", "noise_schedule=calibrated", "epsilon=2"),
        ("algorithm=dp_fl", "noise_schedule=calibrated", "epsilon=2", "budget_view=published"),
        ("algorithm=adap_dpfl", "epsilon=2"),
        ("algorithm=adap_dpfl", "epsilon=2", "budget_view=published"),
        (
            "algorithm=dp_fl",
            "clipper=quantile",
            "clipper.initial_clip_norm=1",
            "clipper.bit_noise=20",
            "epsilon=4",
        ),
        ("algorithm=dp_ftrl", "algorithm.min_separation=1", "epsilon=4"),
        ("algorithm=cdp_fedavg", "epsilon=null"),
        ("algorithm=ldp_fedsgd", "epsilon=null"),
    ],
)
def test_the_forecast_is_the_sound_epsilon_of_the_run(overrides, tmp_path):
    config = fedpriv.compose([*SHARED, *overrides, f"runtime.run_dir={tmp_path / 'run'}"])
    foretold = forecast(config)
    summary = fedpriv.run(config).summary
    assert foretold is not None
    assert foretold.epsilon is not None
    if foretold.bound and math.isfinite(foretold.epsilon):
        assert summary["epsilon_sound"] <= foretold.epsilon * (1 + 1e-9)
    else:
        assert summary["epsilon_sound"] == pytest.approx(foretold.epsilon, rel=1e-6)


def test_it_is_not_known_where_clients_may_be_smaller_than_an_even_share():
    fixed_lots = ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "budget_view=published")
    foretold = forecast(fedpriv.compose([*SHARED, *fixed_lots, "epsilon=2"]))
    assert foretold is not None
    assert foretold.epsilon is None


@pytest.mark.thorough
def test_it_is_known_where_all_clients_have_an_even_share():
    fixed_lots = ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "partition=iid")
    noise = ("noise_schedule=calibrated", "epsilon=2")
    foretold = forecast(fedpriv.compose([*SHARED, *fixed_lots, *noise]))
    assert foretold is not None
    assert foretold.epsilon == pytest.approx(2, rel=0.5)


def test_there_is_none_without_privacy():
    assert forecast(fedpriv.compose([*SHARED, "algorithm=fedavg"])) is None
