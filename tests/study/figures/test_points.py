"""Figures over a setting: every curve is run at each of its values, and the ends are drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedpriv.common.config import compose, identity
from fedpriv.common.errors import ConfigError
from fedpriv.study.figures.definition import Axes, Points
from fedpriv.study.figures.series import FigureRun, figure_table, frame_of, over_points
from fedpriv.study.figures.write import caption_of, panels_of, unsound_curves


@pytest.fixture
def tiny(tiny_over_points) -> dict:
    return tiny_over_points


def test_every_curve_is_run_at_every_point_with_every_seed(figure, jobs_of):
    jobs = jobs_of(figure)
    assert [job.label for job in jobs[:7]] == [
        "digits/t1/at 0.1/seed 0", "digits/t1/at 0.5/seed 0", "digits/t1/at 2/seed 0",
        "digits/t2/at 0.1/seed 0", "digits/t2/at 0.5/seed 0", "digits/t2/at 2/seed 0",
        "digits/reference/seed 0",
    ]  # fmt: skip
    assert [job.seed for job in jobs] == [0] * 7 + [1] * 7
    assert len({job.folder.path for job in jobs}) == 14


def test_the_identity_is_that_of_the_run_with_the_overrides(figure, jobs_of):
    for job in jobs_of(figure)[::3]:
        assert job.identity == identity(compose(job.overrides))


def test_a_key_computed_from_the_seed_is_resolved_for_each(figure, jobs_of):
    (group,) = figure.groups
    noted = replace(group, overrides=(*group.overrides, "+algorithm.note='mine ${seed}'"))
    for job in jobs_of(replace(figure, groups=(noted,))):
        assert job.identity["algorithm.note"] == f"mine {job.seed}"


def test_a_group_is_no_key_of_points(read, tiny, jobs_of):
    tiny["x"] = {"clipper": [1, 2]}
    with pytest.raises(ConfigError, match="a key with a number, not a group, got clipper"):
        jobs_of(read(tiny))


def test_a_value_that_cannot_be_is_refused_before_any_run(make, tiny, tmp_path):
    tiny["x"]["algorithm.learning_rate"] = [-1, 1]
    for metric in ("loss", "stated", "orderings"):
        (tiny["metric"] if metric == "loss" else tiny).pop(metric)
    said = make("--dry-run")
    assert said.status == 2
    assert "algorithm.learning_rate must be > 0" in said.sentence


def test_two_points_that_are_the_same_runs_are_refused(read, tiny, jobs_of):
    tiny["x"] = {"runtime.threads": [1, 2]}
    del tiny["metric"]["loss"]
    with pytest.raises(ConfigError, match="t1/at 1/seed 0 and digits/t1/at 2/seed 0 are"):
        jobs_of(read(tiny))


def test_an_override_of_the_points_key_is_refused(make):
    said = make("algorithm.learning_rate=1")
    assert said.status == 2
    assert "use 'figure.x={algorithm.learning_rate:[" in said.sentence


def test_the_quick_scale_has_points_of_its_own(read, tiny):
    assert read({**tiny, "scale": "quick"}).points.values == (0.5,)
    del tiny["x_quick"]
    assert read({**tiny, "scale": "quick"}).points.values == (0.1, 0.5, 2)


def test_a_curve_with_points_of_its_own_is_run_at_those_alone(read, tiny, jobs_of):
    tiny["curves"]["t2"]["at"] = [0.1, 2.0]
    figure = read(tiny)
    jobs = jobs_of(figure)
    assert [job.label for job in jobs if job.curve.name == "t2"] == [
        "digits/t2/at 0.1/seed 0", "digits/t2/at 2/seed 0",
        "digits/t2/at 0.1/seed 1", "digits/t2/at 2/seed 1",
    ]  # fmt: skip
    assert len(jobs) == 12


def test_a_curve_without_a_quick_point_is_left_out_and_that_is_said(read, tiny, jobs_of):
    tiny["curves"]["t2"]["at"] = [0.1, 2]
    figure = read({**tiny, "scale": "quick"})
    jobs = jobs_of(figure)
    assert [job.curve.name for job in jobs] == ["t1", "reference"]
    metrics = pd.DataFrame({"test_accuracy": [0.5], "test_loss": [1.0]})
    runs = [FigureRun(job, {"rounds": 1}, metrics) for job in jobs]
    assert "Left out, run at none of these points: T = 2." in caption_of(figure, frame_of(runs), [])
    ((loss, _, a_map),) = panels_of(
        figure, figure_table(figure, frame_of(runs)), unsound_curves(runs)
    )
    assert [line.label for line in loss.lines] == ["T = 1", "reference"]
    assert a_map.rows == ("T = 1", "reference")
    assert np.isfinite(a_map.values).all()


def test_only_a_curve_with_a_claimed_epsilon_is_dotted(read, tiny, jobs_of):
    job, metrics = jobs_of(read(tiny))[0], pd.DataFrame({"test_accuracy": [0.5]})
    for claimed, dotted in ((2.0, True), (math.inf, False), (None, False)):
        ends = {"epsilon_sound": math.inf, "epsilon_published": claimed}
        assert bool(unsound_curves([FigureRun(job, ends, metrics)])) == dotted


@pytest.fixture
def run_at(figure, jobs_of):
    """(curve, point, seed, summary, metrics) → a finished run there."""
    jobs = {(j.curve.name, j.point, j.seed): j for j in jobs_of(figure)}

    def run(
        curve: str, point: float | None, seed: int, rounds: int = 1, **metrics: list
    ) -> FigureRun:
        return FigureRun(jobs[curve, point, seed], {"rounds": rounds}, pd.DataFrame(metrics))

    return run


LEARNING_RATES = Points("algorithm.learning_rate", (0.1, 0.5, 2), "η")


def test_a_point_is_the_end_of_the_runs_there(run_at):
    runs = [
        run_at("t1", 0.1, 0, test_accuracy=[0.2, 0.5]),
        run_at("t1", 0.1, 1, test_accuracy=[0.9, 0.7]),
        run_at("t1", 2, 0, test_accuracy=[0.1]),
    ]
    drawn = over_points(frame_of(runs), Axes("a", "point", "test_accuracy"), LEARNING_RATES)
    assert drawn["x"].tolist() == [0.1, 2]
    assert drawn["mean"].tolist() == pytest.approx([60, 10])
    assert drawn["low"].tolist() == pytest.approx([50, 10])
    assert drawn["high"].tolist() == pytest.approx([70, 10])
    assert drawn["n"].tolist() == [2, 1]


def test_a_band_of_sd_is_one_sample_standard_deviation_to_either_side(run_at):
    runs = [run_at("t1", 0.1, seed, test_loss=[value]) for seed, value in ((0, 1.0), (1, 3.0))]
    (row,) = over_points(
        frame_of(runs), Axes("a", "point", "test_loss", band="sd"), LEARNING_RATES
    ).itertuples()
    assert (row.mean, row.low, row.high) == pytest.approx((2, 2 - 2**0.5, 2 + 2**0.5))


def test_the_round_of_an_end_is_the_number_of_rounds_run(run_at):
    run = run_at("t1", 0.1, 0, rounds=7, round=[5], test_loss=[1.0])
    assert over_points(frame_of([run]), Axes("a", "point", "round"), LEARNING_RATES)[
        "mean"
    ].tolist() == [7]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_ends_that_are_not_finite_are_left_out(bad, run_at):
    runs = [run_at("t1", 0.1, 0, test_loss=[bad]), run_at("t1", 0.1, 1, test_loss=[2.0])]
    drawn = over_points(frame_of(runs), Axes("a", "point", "test_loss"), LEARNING_RATES)
    assert (drawn["mean"].tolist(), drawn["n"].tolist()) == ([2], [1])


def test_a_run_at_no_point_is_level_over_all(run_at):
    runs = [run_at("reference", None, 0, test_loss=[0.5])]
    drawn = over_points(frame_of(runs), Axes("a", "point", "test_loss"), LEARNING_RATES)
    assert (drawn["x"].tolist(), drawn["mean"].tolist()) == ([0.1, 0.5, 2], [0.5] * 3)


def test_the_caption_says_what_bands_points_and_frames_are(figure, run_at):
    runs = [run_at("t1", 0.5, seed) for seed in (0, 1)]
    said = caption_of(figure, frame_of(runs), [])
    assert "bands (loss): ± one sample standard deviation over seeds" in said
    assert "bands (rounds): 95% intervals for the mean (Student's t; of 2 seeds lowest" in said
    assert "Each point is the end of runs with that η." in said
    assert "Horizontal: runs that do not depend on η." in said
    assert "Framed: the highest of each row." in said
    assert "Digits: 0 to 2 seeds" in said
