"""``fedpriv plot --points``: ends of runs against a key of their configuration."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

KEY = "noise_schedule.noise_multiplier"


def ends(grid, noise: int) -> pd.Series:
    runs = (grid / f"noise{noise}-seed{seed}" / "summary.json" for seed in (0, 1))
    return pd.Series([100 * json.loads(path.read_text())["test_accuracy"] for path in runs])


@pytest.mark.thorough
def test_the_ends_are_means_with_the_range_of_two_seeds(grid, command, tmp_path):
    said = command("plot", str(grid), "--points", KEY)
    assert (said.status, said.err) == (0, "")
    assert "4 runs, 1 line" in said.out
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    table = pd.read_csv(tmp_path / "plot.csv")
    assert table["x"].tolist() == [8, 16]
    assert table["n"].tolist() == [2, 2]
    for row, noise in zip(table.itertuples(), (8, 16), strict=True):
        both = ends(grid, noise)
        assert row.mean == pytest.approx(both.mean())
        assert [row.low, row.high] == pytest.approx([both.min(), both.max()])


def test_runs_that_differ_in_further_keys_are_separate_curves(grid, command, tmp_path):
    for noise in (8, 16):
        for clip in ("0.5", "1"):
            to = tmp_path / "runs" / f"{noise}-{clip}"
            shutil.copytree(grid / f"noise{noise}-seed0", to)
            facts = json.loads((to / "environment.json").read_text())
            facts["overrides"] += [f"clipper.clip_norm={clip}"]
            (to / "environment.json").write_text(json.dumps(facts))
    assert "4 runs, 2 lines" in command("plot", "runs", "--points", KEY).out
    assert set(pd.read_csv(tmp_path / "plot.csv")["label"]) == {"clip_norm=0.5", "clip_norm=1"}


@pytest.mark.thorough
def test_keys_that_follow_the_axis_make_no_curves_of_runs_from_python(train, command, tmp_path):
    for epsilon in (1, 2):
        train("algorithm=dp_fl", "noise_schedule=calibrated", f"epsilon={epsilon}", "rounds=2",
              name=f"runs/{epsilon}")  # fmt: skip
    assert "2 runs, 1 line" in command("plot", "runs", "--points", "epsilon").out
    assert pd.read_csv(tmp_path / "plot.csv")["x"].tolist() == [1, 2]


@pytest.mark.parametrize("python", [False, True])
def test_both_axes_may_be_results(python, grid, command, tmp_path):
    """Also of runs from Python, whose overrides are not known."""
    shutil.copytree(grid, tmp_path / "runs")
    spent = []
    for noise in (8, 16):
        for seed in (0, 1):
            run = tmp_path / "runs" / f"noise{noise}-seed{seed}"
            facts = json.loads((run / "environment.json").read_text())
            kept = {k: v for k, v in facts.items() if not (python and k == "overrides")}
            (run / "environment.json").write_text(json.dumps(kept))
        spent.append(json.loads((run / "summary.json").read_text())["epsilon_sound"])
    flags = ("--points", "epsilon_sound", "--y", "epsilon_sound")
    assert command("plot", "runs", *flags).status == 0
    table = pd.read_csv(tmp_path / "plot.csv")
    assert table["x"].tolist() == pytest.approx(spent, rel=0.05)
    assert table["mean"].tolist() == pytest.approx(spent, rel=0.05)
    assert set(table["label"]) == {"all runs"}


def test_what_has_not_ended_is_left_out_and_named(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    (tmp_path / "runs" / "noise8-seed1" / "summary.json").unlink()
    said = command("plot", "runs", "--points", KEY)
    assert "left out, without values or not finished: noise8-seed1" in said.out
    assert "3 runs" in said.out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--points", "noise_schedule.noise_multiplyer"],
         "--points must be a key of config.yaml or summary.json, or spent, got "
         "noise_schedule.noise_multiplyer; did you mean "
         "noise_schedule.noise_multiplier?"),
        (["--points", "budget_view"],
         "--points must be a key whose values are numbers, not sound, got budget_view"),
        (["--points", KEY, "--y", "test_acc"],
         "--y must be a key of summary.json, got test_acc; did you mean test_accuracy?"),
        (["--points", "epsilon"], "no finished run has numbers for both epsilon and test_accuracy"),
        (["--points", KEY, "--each"], "fedpriv plot takes --points without --x and --each"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(flags, sentence, grid, command):
    said = command("plot", str(grid), *flags)
    assert (said.status, said.sentence) == (2, f"fedpriv: {sentence}")
