"""The figure that a sweep leaves behind: what becomes x, curves and seeds."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from fedpriv.common.config import compose
from fedpriv.study.figures.of_sweep import figure_of_sweep, write_sweep_figure
from fedpriv.study.figures.reading import read_own


def figure(*overrides: str) -> dict | None:
    return figure_of_sweep(OverridesParser.create().parse_overrides(list(overrides)), "sweep")


def test_epsilon_becomes_the_x_axis_and_the_rest_curves():
    said = figure("clipper.alpha=0.1,0.2", "epsilon=1,2", "seed=0,3", "rounds=5", "algorithm=a,b")
    assert said is not None
    assert said["x"] == {"epsilon": [1, 2]}
    assert said["curves"] == {"clipper.alpha": [0.1, 0.2], "algorithm": ["a", "b"]}
    assert said["seeds"] == [0, 3]
    assert said["base"] == "rounds=5"


def test_without_numbers_the_curves_are_drawn_over_rounds():
    said = figure("algorithm=a,b", "seed=1", "runtime.threads=1")
    assert said is not None
    assert (said["x"], said["seeds"]) == ("round", [1])
    assert "base" not in said


def test_a_range_is_its_numbers():
    said = figure("rounds=range(1,4)", "epsilon=choice(2)")
    assert said is not None
    assert said["x"] == {"rounds": [1, 2, 3]}
    assert said["base"] == "epsilon=2"


@pytest.mark.parametrize(
    "override", ["publish=true", "noise_seed=1,2", "~clipper", "+mine=1,2", "model.layers=[1],[2]"]
)
def test_what_a_figure_cannot_say_leaves_no_file(override):
    assert figure("epsilon=1,2", override) is None


def test_the_file_is_read_again_and_never_written_over(tmp_path):
    overrides = OverridesParser.create().parse_overrides(
        ["epsilon=1,0.00001", "algorithm=dp_fl,adap_dpfl"]
    )
    write_sweep_figure(tmp_path, overrides)
    read = read_own({"file": str(tmp_path / "figure.yaml")}, compose)
    assert (read.points.key, read.points.values) == ("epsilon", (1e-5, 1))
    assert [c.label for c in read.groups[0].curves] == ["dp_fl", "adap_dpfl"]
    (tmp_path / "figure.yaml").write_text("# changed")
    write_sweep_figure(tmp_path, overrides)
    assert (tmp_path / "figure.yaml").read_text() == "# changed"


def test_the_command_names_the_folder_of_own_yamls(tmp_path):
    overrides = OverridesParser.create().parse_overrides(["epsilon=1,2"])
    write_sweep_figure(tmp_path, overrides, ["--config-dir", "mine"])
    head = (tmp_path / "figure.yaml").read_text().splitlines()[0]
    assert head.endswith(f"fedpriv figure {tmp_path / 'figure.yaml'} --config-dir mine")
