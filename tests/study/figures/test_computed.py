"""Figures without runs: drawn by a function."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

MODULE = """
from fedpriv.common.errors import ArgumentError
from fedpriv.study.figures.computed import Drawing
from fedpriv.store.plots import Line, Panel

def squares(most):
    if most < 1:
        raise ArgumentError("most", most, ">= 1")
    x = list(range(most + 1))
    line = Line("squares", "#0072B2", x, [n * n for n in x])
    return Drawing([[Panel("All", "n", "n squared", (line,))]], "Squares.", ["they grow"])

def nothing():
    return None
"""
FILES = {"figure.csv", "figure.png", "figure.pdf", "comparison.md", "report.html"}


@pytest.fixture
def computed(tmp_path, tiny) -> dict:
    """``tiny`` becomes a figure drawn by a function of the user's own; its ``compute``."""
    (tmp_path / "squares_of_a_figure.py").write_text(MODULE)
    shared = {k: tiny[k] for k in ("work", "title", "panels", "curves", "quick")}
    tiny.clear()
    tiny |= shared | {"compute": {"_target_": "squares_of_a_figure.squares", "most": 3}}
    return tiny["compute"]


def folder(tmp_path: Path, name: str = "tiny") -> Path:
    return tmp_path / "outputs" / "figures" / "own" / name


def test_a_computed_figure_has_its_files_and_no_runs(computed, make, command, tmp_path):
    def listed(name: str) -> str:
        return command("figure", name, "--list", "--config-dir", "mine").out

    dry = make("--dry-run")
    assert "keeps no runs" in dry.out
    assert not (tmp_path / "outputs").exists()
    assert "drawn" not in listed("own")
    said = make()
    assert (said.status, said.err) == (0, "")
    assert {path.name for path in folder(tmp_path).iterdir()} == FILES
    assert not (tmp_path / "outputs" / "runs").exists()
    assert "drawn" in listed("own")
    where = "computed, keeps no runs; drawn: outputs/figures/own/tiny/figure.png"
    assert where in listed("own/tiny")
    table = pd.read_csv(folder(tmp_path) / "figure.csv")
    assert table["panel"].unique().tolist() == ["All"]
    assert table["y"].tolist() == [0, 1, 4, 9]
    text = (folder(tmp_path) / "comparison.md").read_text()
    for words in (
        "*Squares.*",
        "- they grow",
        "- command: `fedpriv figure own/tiny --config-dir mine`",
        "squares_of_a_figure.squares",
        "most: 3",
    ):
        assert words in text


@pytest.mark.thorough
def test_the_quick_scale_has_arguments_and_a_folder_of_its_own(computed, tiny, make, tmp_path):
    assert make("--quick").status == 0  # its work's quick is of runs: the same figure
    assert len(pd.read_csv(folder(tmp_path) / "figure.csv")) == 4
    tiny["quick"] = [*tiny["quick"], "compute.most=1"]
    assert make("--quick").status == 0
    quick = folder(tmp_path, "tiny_quick")
    assert pd.read_csv(quick / "figure.csv")["y"].tolist() == [0, 1]
    assert "Quick scale: fewer or smaller" in (quick / "comparison.md").read_text()
    assert len(pd.read_csv(folder(tmp_path) / "figure.csv")) == 4


@pytest.mark.thorough
def test_a_changed_argument_goes_elsewhere_and_is_said(computed, make, tmp_path):
    assert make("figure.compute.most=5").status == 0
    text = (folder(tmp_path, "tiny_changed") / "comparison.md").read_text()
    assert "Changed: figure.compute.most=5." in text
    assert not folder(tmp_path).exists()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("figure.compute.most=0", "figure.compute.most must be >= 1, got 0"),
        ("figure.seeds=[0]", "figure.seeds must be absent"),
        ("+figure.show={digits: [loud]}", "figure.show must be absent"),
        ("rounds=3", "own/tiny has no runs that rounds=3 could change"),
    ],
)
def test_what_cannot_be_is_refused(argument, words, computed, make, tmp_path):
    said = make(argument)
    assert said.status == 2
    assert words in said.sentence
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"_target_": "squares_of_a_figure.nothing"}, "figure.compute must be a function that"),
        ({"_target_": "squares_of_a_figure.squares"}, "most"),
        ({"_target_": "squares_of_a_figure.cubes"}, "squares_of_a_figure.cubes"),
        ({"_target_": "squares_of_a_figure.squares", "mots": 3}, "mots"),
        ({"most": 3}, "figure.compute must be a function's _target_"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(change, words, computed, make):
    computed.clear()
    computed.update(change)
    said = make()
    assert said.status == 2
    assert words in said.sentence
