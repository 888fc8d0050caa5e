"""``fedpriv runs FOLDER --means``: the table of a sweep, with intervals and the best cell."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest

from fedpriv.store.sweep import _percent


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


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--best", "test_accuracy"], "--best must be given together with --means"),
        (["runs", "--means", "--sort", "seed"], "leave out --sort"),
        (["runs", "--means", "--columns", "run", "--filter", "seed=0"], "leave out --columns, --filter"),
        (["--means"], "name one folder, or one figure"),
        (["runs", "--means", "--best", "backdoor_accuracy"], "--best must be a result that the runs have"),
    ],
)  # fmt: skip
def test_means_that_cannot_be_shown_are_refused(flags, named, grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    said = command("runs", *flags)
    assert said.status == 2
    assert named in said.sentence
