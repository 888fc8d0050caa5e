"""``fedpriv runs FOLDER --means``: the table of a sweep, with intervals and the best cell."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest

from fedpriv.store.sweep import _percent, sweep_table


def test_means_over_seeds_have_intervals_from_three_seeds_on():
    assert _percent(pd.Series([0.5, 0.6, 0.7])) == "60.00 ± 24.84 %"
    assert _percent(pd.Series([0.5, 0.6])) == "55.00 (50.00 to 60.00) %"
    assert _percent(pd.Series([0.5])) == "50.00 %"


def test_the_means_of_a_folder_are_printed(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    said = command("runs", "runs", "--means", "--best", "test_accuracy", "--table", "latex")
    assert (said.status, said.err) == (0, "")
    assert said.out.count(r"\textbf{") >= 1
    assert "epsilon enforced & epsilon published & epsilon sound & test accuracy" in said.out


def test_means_of_the_chosen_results_are_printed(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    said = command("runs", "runs", "--means", "--columns", "n,test_accuracy", "--table", "markdown")
    assert said.out.splitlines()[0] == "| noise_multiplier | n | test accuracy |"


def test_what_lies_within_the_interval_of_the_best_is_bold():
    seeds = [(0, seed, 0.9 + 0.01 * seed) for seed in range(3)]
    others = [(clip, seed, value) for clip, value in ((1, 0.9), (2, 0.5)) for seed in range(3)]
    rows = pd.DataFrame([*seeds, *others], columns=["clipper.clip_norm", "seed", "test_accuracy"])
    rows = rows.assign(run="r", rounds=1, epsilon=1.0, epsilon_sound=1.0, setting="s")
    table, _ = sweep_table(rows, "test_accuracy")
    assert [line.count("**") // 2 for line in table.markdown().splitlines()[2:]] == [1, 1, 0]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--best", "test_accuracy"], "--best must be given together with --means"),
        (["runs", "--means", "--sort", "seed"], "leave out --sort"),
        (["runs", "--means", "--filter", "seed=0"], "leave out --filter"),
        (["runs", "--means", "--columns", "run"], "--columns must be one of seeds, n, rounds"),
        (["--means"], "name one folder, or one figure"),
        (["runs", "--means", "--best", "backdoor_accuracy"], "--best must be a result that the runs have"),
    ],
)  # fmt: skip
def test_means_that_cannot_be_shown_are_refused(flags, named, grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    said = command("runs", *flags)
    assert said.status == 2
    assert named in said.sentence
