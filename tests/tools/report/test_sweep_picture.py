"""The picture of a sweep: the accuracy at the ends of its runs against the swept key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedpriv.tools.report import plot
from fedpriv.tools.report.plot import draw_sweep

KEY = "noise_schedule.noise_multiplier"


@pytest.fixture
def panels(monkeypatch) -> list:
    """The panels that are drawn; their files are written as well."""
    drawn = []
    draw = plot.draw_panels

    def noted(files, rows, *arguments, **more):
        drawn.extend(rows[0])
        draw(files, rows, *arguments, **more)

    monkeypatch.setattr(plot, "draw_panels", noted)
    return drawn


def copied(run: Path, to: Path, *more: str, without: str = "") -> None:
    """Copy a run as if it had been started with these further overrides, or without a key."""
    shutil.copytree(run, to)
    facts = json.loads((to / "environment.json").read_text())
    kept = [o for o in facts["overrides"] if not (without and o.startswith(without))]
    (to / "environment.json").write_text(json.dumps({**facts, "overrides": [*kept, *more]}))
    if without:
        lines = (to / "config.yaml").read_text().splitlines()
        lines = [
            line for line in lines if line.strip().partition(":")[0] != without.rpartition(".")[2]
        ]
        (to / "config.yaml").write_text("\n".join(lines) + "\n")


def accuracy(run: Path) -> float:
    return 100 * json.loads((run / "summary.json").read_text())["test_accuracy"]


def test_the_metric_is_drawn_against_the_swept_key_with_means_over_seeds(grid, panels, tmp_path):
    shutil.copytree(grid, tmp_path / "sweep")
    draw_sweep(tmp_path / "sweep")
    assert (tmp_path / "sweep" / "sweep.png").read_bytes()[:4] == b"\x89PNG"
    (line,) = panels[0].lines
    assert list(line.x) == [8, 16]
    ends = [[accuracy(grid / f"noise{n}-seed{seed}") for seed in (0, 1)] for n in (8, 16)]
    assert list(line.y) == pytest.approx([sum(two) / 2 for two in ends])
    assert list(line.low) == pytest.approx([min(two) for two in ends])


def test_a_second_swept_key_makes_curves(grid, panels, tmp_path):
    for noise in (8, 16):
        for clip in ("0.5", "1"):
            run = grid / f"noise{noise}-seed0"
            copied(run, tmp_path / f"{noise}-{clip}", f"clipper.clip_norm={clip}")
    draw_sweep(tmp_path)
    assert [line.label for line in panels[0].lines] == ["clip_norm=0.5", "clip_norm=1"]
    assert panels[0].x_label == "σ (noise multiplier)"


def test_runs_without_the_key_are_a_level_line(grid, panels, tmp_path):
    for noise in (8, 16):
        copied(grid / f"noise{noise}-seed0", tmp_path / f"{noise}")
    copied(grid / "noise8-seed0", tmp_path / "free", "model=none", without=KEY)
    draw_sweep(tmp_path)
    _, level = panels[0].lines
    assert level.label == "model=none"
    assert list(level.x) == [8, 16]
    assert level.y[0] == level.y[1]


def test_a_sweep_over_seeds_alone_has_no_picture(grid, panels, tmp_path):
    for seed in (0, 1):
        shutil.copytree(grid / f"noise8-seed{seed}", tmp_path / str(seed))
    draw_sweep(tmp_path)
    assert panels == []
    assert not (tmp_path / "sweep.png").exists()


def test_an_empty_sweep_has_no_picture(panels, tmp_path):
    draw_sweep(tmp_path)
    draw_sweep(tmp_path / "nowhere")
    assert panels == []
