"""Figures over points: tables, pictures and runs of one that was made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture
def tiny(tiny_over_points) -> dict:
    return tiny_over_points


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Where the first test that makes the figure leaves its outputs, for the others."""
    return tmp_path_factory.mktemp("points") / "outputs"


@pytest.fixture
def there(kept, make, tmp_path) -> Path:
    """The outputs of the figure with all its runs."""
    if not kept.exists():
        assert make().status == 0
        shutil.copytree(tmp_path / "outputs", kept)
    elif not (tmp_path / "outputs").exists():
        shutil.copytree(kept, tmp_path / "outputs")
    return tmp_path / "outputs"


def made(outputs: Path, file: str, name: str = "tiny") -> Path:
    return outputs / "figures" / "own" / name / file


@pytest.mark.thorough
def test_the_table_has_every_curve_at_every_point(there):
    table = pd.read_csv(made(there, "figure.csv"))
    drawn = table.groupby(["axes", "curve"])["x"].apply(tuple)
    assert len(drawn) == 9
    assert set(drawn) == {(0.1, 0.5, 2)}
    rounds = table[table["axes"] == "rounds"].groupby("curve")["mean"].first()
    assert rounds.to_dict() == {"t1": 1, "t2": 2, "reference": 4}
    assert set(table["n"]) == {2}


@pytest.mark.thorough
def test_the_ends_have_a_row_for_each_run(there):
    ends = pd.read_csv(made(there, "ends.csv"))
    assert len(ends) == 14
    assert ends["point"].isna().sum() == 2
    assert set(ends["folder"]) == {path.name for path in (there / "runs").iterdir()}
    drawn = pd.read_csv(made(there, "figure.csv"))
    at = drawn[(drawn["axes"] == "map") & (drawn["curve"] == "t2") & (drawn["x"] == 0.5)]
    own = ends[(ends["curve"] == "t2") & (ends["point"] == 0.5)]
    assert at["mean"].item() == pytest.approx(own["test_accuracy"].mean(), rel=1e-5)


@pytest.mark.thorough
def test_the_comparison_names_the_points(there):
    text = made(there, "comparison.md").read_text()
    assert "| Digits | T = 1, η = 0.5 | rounds | 1 | 1 (n = 2) | +0 |" in text
    assert "Digits, η = 2, test loss, stated from best to worst: reference > T = 1." in text
    assert "- runs: a row each in ends.csv" in text


@pytest.mark.thorough
def test_fewer_values_use_the_runs_that_are_there(there, make):
    assert make("figure.x={algorithm.learning_rate:[0.5]}", "--draw").status == 0
    assert set(pd.read_csv(made(there, "figure.csv"))["x"]) == {0.5}


@pytest.mark.thorough
def test_a_dry_run_summarises_many_seeds(make):
    said = make("--dry-run", "--seeds", ",".join(map(str, range(9))))
    assert (said.status, said.err) == (0, "")
    assert said.out.count("0 of 9 done") == 7
