"""Figures draw what audits found, and a run is done only once the audit it asks for is."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import identity
from fedpriv.common.errors import ConfigError
from fedpriv.store.folder import RunFolder
from fedpriv.study.figures.definition import Axes, Points
from fedpriv.study.figures.jobs import DONE, PARTLY, Job
from fedpriv.study.figures.reading import read_figure
from fedpriv.study.figures.series import FigureRun, frame_of, over_points

POINTS = {"x": {"epsilon": [1, 8]}, "x_label": "ε", "x_quick": [1]}


def figure(**more) -> dict:
    return OmegaConf.create({
        "scale": "paper", "seeds": None, "reuse": [], "draw_only": False, "work": "ours",
        "title": "Leakage", "quick": ["rounds=1"],
        "panels": {"digits": {"title": "Digits", "overrides": ["audit=membership"], "seeds": [0]}},
        "curves": {"one": {"label": "one", "colour": "blue", "overrides": []}},
        "show": {"digits": ["one"]},
        **more,
    })  # fmt: skip


def job(tmp_path: Path, summary: dict, *overrides: str, point: float | None = None) -> Job:
    (drawn,) = read_figure(figure(x="round", metric="loss"), "own/leakage").groups
    config = fedpriv.compose(overrides)
    (tmp_path / "config.yaml").touch()
    (tmp_path / "summary.json").write_text(json.dumps({"stop_reason": "rounds", **summary}))
    curve = drawn.curves[0]
    return Job(drawn, curve, 0, (), identity(config), RunFolder(tmp_path), config, point)


def test_a_figure_over_points_may_draw_an_audit():
    drawn = read_figure(figure(**POINTS, metric="membership_auc"), "own/leakage")
    assert drawn.axes[0].y == "membership_auc"


def test_a_figure_over_rounds_may_not(tmp_path):
    with pytest.raises(ConfigError, match="membership_auc"):
        read_figure(figure(x="round", metric="membership_auc"), "own/leakage")


def test_what_is_drawn_is_what_the_summary_says(tmp_path):
    runs = []
    for point, value in ((1, 0.51), (8, 0.74)):
        folder = tmp_path / str(point)
        folder.mkdir()
        made = job(folder, {"membership_auc": value}, "audit=membership", point=point)
        runs.append(FigureRun(made, {"membership_auc": value}, pd.DataFrame()))
    axes = Axes(name="a", x="point", y="membership_auc")
    found = over_points(frame_of(runs), axes, Points("epsilon", (1, 8), "ε"))
    assert found["mean"].tolist() == pytest.approx([0.51, 0.74])


def test_a_run_is_done_once_it_is_audited(tmp_path):
    assert job(tmp_path, {}).state == DONE
    assert job(tmp_path, {}, "audit=membership").state == PARTLY
    assert job(tmp_path, {"membership_auc": 0.5}, "audit=membership").state == DONE
    both = "audit=[membership,property:intensity]"
    assert job(tmp_path, {"membership_auc": 0.5}, both).state == PARTLY
