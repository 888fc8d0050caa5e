"""The clippers of the client-level works at the level of records: dp_fl with each of them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fedpriv.algorithms import DpFl
from fedpriv.privacy.clippers import MedianHistogramClipper
from fedpriv.privacy.mechanisms import Mechanism, joint_noise_multiplier
from fedpriv.privacy.noise_schedules import ConstantNoise

SIGMA, ROUNDS = 6.0, 4
CLIPPERS = {
    "quantile": ("clipper=quantile", "clipper.bit_noise=10", "clipper.initial_clip_norm=0.5"),
    "quantile, bits on top": (
        "clipper=quantile",
        "clipper.bit_noise=10",
        "clipper.initial_clip_norm=0.5",
        "clipper.split=false",
    ),
    "median_histogram": (
        "clipper=median_histogram",
        "clipper.updates=2",
        "clipper.update_interval=2",
        "clipper.initial_clip_norm=0.5",
    ),
    "poly": ("clipper=poly", "clipper.initial_clip_norm=0.5"),
}


def dp_fl(clipper: str, *overrides: str) -> tuple[str, ...]:
    return (
        "algorithm=dp_fl", "noise_schedule=constant", "epsilon=null", f"rounds={ROUNDS}",
        "evaluation_interval=100",
        f"noise_schedule.noise_multiplier={SIGMA}", *CLIPPERS[clipper], *overrides,
    )  # fmt: skip


def multipliers(row: dict[str, str]) -> list[float]:
    return [float(part.partition("=")[2]) for part in row["queries"].split()]


def z_of(event: str) -> float:
    return float(event.partition("Gaussian(z=")[2].strip(")"))


@pytest.mark.few(2)
@pytest.mark.parametrize("clipper", CLIPPERS)
def test_it_runs_and_every_client_is_charged_for_every_lot(clipper, ran, charged):
    result = ran(*dp_fl(clipper))
    assert result.summary["rounds"] == ROUNDS
    assert charged(result.folder, 10).tolist() == [ROUNDS] * 10
    assert math.isfinite(result.privacy["epsilon_sound"])


@pytest.mark.parametrize("clipper", ["quantile, bits on top", "median_histogram"])
def test_what_the_clipper_asks_is_one_joint_event_with_the_gradient(clipper, ran, ledger):
    asked = [row for row in ledger(ran(*dp_fl(clipper)).folder) if "clip_stat" in row["queries"]]
    assert asked
    for row in asked:
        expected = joint_noise_multiplier(multipliers(row))
        assert z_of(row["event_sound"]) == pytest.approx(expected, rel=1e-5)
        assert expected < SIGMA


def test_with_split_the_joint_event_has_the_noise_multiplier_of_the_schedule(ran, ledger):
    (row,) = ledger(ran(*dp_fl("quantile")).folder)
    gradient, bits = multipliers(row)
    assert (gradient, bits) == (pytest.approx((SIGMA**-2 - 20.0**-2) ** -0.5, rel=1e-5), 20.0)
    assert z_of(row["event_sound"]) == pytest.approx(SIGMA, rel=1e-12)


def test_a_record_replaced_moves_two_counts_and_a_clipped_sum_by_two_clip_norms():
    """Lots of a fixed size: (2/z)² + (√2/s)² in the event."""
    clipper = MedianHistogramClipper(0.5, epsilon=3, delta=1e-5, update_interval=1, updates=2)
    algorithm = DpFl("dp_fl", sampling="fixed_size", sample_rate=0.5)
    mechanism = Mechanism(algorithm, clipper, ConstantNoise(SIGMA))
    event = mechanism.joint(algorithm.sampling_of(100), SIGMA, 0).event()
    mu = math.hypot(2 / SIGMA, math.sqrt(2) / clipper.noise_std)
    assert event.event.noise_multiplier == pytest.approx(1 / mu, rel=1e-9)


def test_histograms_are_asked_for_in_the_rounds_planned_only(ran, ledger):
    samples = {
        "clip_statistic" in row["queries"]: int(row["draws_per_client"])
        for row in ledger(ran(*dp_fl("median_histogram")).folder)
    }
    assert samples == {True: 2, False: 2}


@pytest.mark.parametrize("clipper", ["quantile", "median_histogram"])
def test_the_noise_of_the_statistic_is_the_one_that_is_charged(clipper, ran, ledger):
    row = next(r for r in ledger(ran(*dp_fl(clipper)).folder) if "clip_stat" in r["queries"])
    std, sensitivity = (
        float(row[name].partition("clip_statistic=")[2].split("..")[0])
        for name in ("noise_std", "sensitivity")
    )
    assert std == pytest.approx(multipliers(row)[1] * sensitivity, rel=1e-5)


@pytest.mark.parametrize("clipper", ["quantile", "median_histogram"])
def test_every_client_has_a_clip_norm_of_its_own(clipper, ran):
    metrics = pd.read_csv(ran(*dp_fl(clipper, "clipper.initial_clip_norm=0.1")).folder
                          / "metrics.csv")  # fmt: skip
    assert metrics["clip_norm_min"][0] == metrics["clip_norm_max"][0]
    if clipper == "quantile":
        assert metrics["clip_norm_min"][3] < metrics["clip_norm_max"][3]


def test_a_polynomial_clip_norm_is_the_same_for_all_clients_and_costs_nothing(ran):
    result = ran(*dp_fl("poly"))
    metrics = pd.read_csv(result.folder / "metrics.csv")
    np.testing.assert_allclose(metrics["clip_norm"], [0.5, 0.375, 0.25, 0.125], rtol=1e-6)
    assert (metrics["clip_norm_min"] == metrics["clip_norm_max"]).all()


@pytest.mark.parametrize("clipper", ["quantile", "median_histogram"])
def test_who_is_said_to_noise_the_statistic_makes_no_difference_to_records(clipper, ran):
    """Each client noises what it says of its own records; nobody else sums anything."""
    privacy = ran(*dp_fl(clipper)).privacy
    assert privacy["parts"] is None
    assert "aggregator" not in " ".join(privacy["caveats"])


def test_the_bits_are_asked_for_in_every_local_step(ran, charged):
    folder = ran(*dp_fl("quantile", "algorithm.local_steps=3")).folder
    assert charged(folder, 10).tolist() == [3 * ROUNDS] * 10


def test_local_steps_are_refused_where_the_noise_is_for_one_histogram_a_round(command, tmp_path):
    said = command("train", *dp_fl("median_histogram", "algorithm.local_steps=3"))
    assert said.status == 2
    assert "algorithm.local_steps must be 1" in said.sentence
    assert list(tmp_path.iterdir()) == []


def test_randomized_response_of_records_is_refused(command, tmp_path):
    said = command(
        "train", *dp_fl("quantile"), "clipper.bit_mechanism=randomized_response",
        "clipper.noised_by=client", "clipper.bit_epsilon=1",
    )  # fmt: skip
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: clipper.bit_mechanism must be gaussian")
    assert "ldp_fedsgd" in said.sentence
    assert list(tmp_path.iterdir()) == []


def test_a_polynomial_without_a_horizon_is_refused(command):
    said = command("train", "algorithm=dp_fl", "clipper=poly", "rounds=null")
    assert said.status == 2
    assert "clipper.horizon must be a whole number >= 1 when rounds is null" in said.sentence
