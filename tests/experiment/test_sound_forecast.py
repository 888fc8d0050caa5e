"""The sound ε that a plan foretells is that of the run."""

from __future__ import annotations

import math
import re

import pytest

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.sound_forecast import SoundForecast, forecast_sound

SHARED = ("dataset=digits", "rounds=3", "runtime.progress=none", "runtime.plots=false")


def forecast(config) -> SoundForecast | None:
    parts = build_parts(config)
    return forecast_sound(parts, make_plan(parts))


@pytest.mark.few(1)
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


# ---- the row of a dry run

RARE = ("algorithm=cdp_fedavg", "algorithm.client_rate=0.02", "partition.clients=200", "rounds=3")


def sound_in_the_plan(command, *overrides: str) -> str | None:
    said = command("train", *overrides, "dry_run=true")
    assert "Plan" in said.out, said.err
    found = re.search(
        r"; sound: (.* finished run reports)", " ".join(said.out.replace("│", " ").split())
    )
    return None if found is None else found[1]


@pytest.mark.parametrize("budget", ["epsilon=8", "epsilon=null"])
def test_a_dry_run_states_what_the_run_will_report(command, train, budget):
    planned = sound_in_the_plan(command, *RARE, budget)
    assert planned is not None
    reported = train(*SHARED, *RARE, budget).privacy["epsilon_sound"]
    assert 0 <= float(planned.partition(",")[0]) - reported <= 1e-6


def test_under_a_papers_claim_it_is_always_stated(command):
    adapts = ("algorithm=adap_dpfl", "budget_view=published")
    assert sound_in_the_plan(command, *adapts) == "infinite, which a finished run reports"
    said = sound_in_the_plan(command, "algorithm=dp_fl", "budget_view=published", "rounds=3")
    assert said is not None
    assert said.endswith(", which a finished run reports")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=cdp_fedavg",),  # RDP is nearly as tight
        (*RARE, "accountant=pld"),
        ("algorithm=adap_dpfl",),  # noise that adapts: the budget is reported
        (
            "algorithm=dp_fl",
            "noise_schedule.noise_multiplier=0.9",
            "epsilon=0.5",
        ),  # no round at all
        (*RARE, "noise_schedule.noise_multiplier=0.05", "epsilon=null"),  # either is vacuous
    ],
)
def test_there_is_no_second_number_where_it_is_no_better(command, overrides):
    assert sound_in_the_plan(command, *overrides) is None
