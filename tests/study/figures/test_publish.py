"""What the scripts of the reference folder do: ``publish_figures`` and ``redraw_figures``."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from PIL import Image

from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun

SCRIPT = Path(__file__).parents[3] / "scripts" / "publish_figures.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("publish_figures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def drawn(tmp_path):
    folder = tmp_path / "drawn"
    folder.mkdir()
    Image.new("RGB", (4, 4)).save(folder / "figure.png")
    for name in ("figure.csv", "figure.pdf"):
        (folder / name).write_text("")
    (folder / "comparison.md").write_text("- runs:\n  - mnist, seed 0: `run-a`\n")
    return folder


def test_the_runs_of_a_figure_are_those_it_names(script, drawn, tmp_path):
    assert script.publish_figure(drawn, tmp_path / "to") == {"run-a"}


def test_ends_over_seeds_name_no_runs(script, drawn, tmp_path):
    (drawn / "ends.csv").write_text("group,curve,quantity,mean,sd,n\nmnist,dp_fl,rounds,9,,1\n")
    assert script.publish_figure(drawn, tmp_path / "to") == {"run-a"}


def test_the_runs_of_points_are_the_rows_of_ends(script, drawn, tmp_path):
    """Their comparison.md names none."""
    (drawn / "comparison.md").write_text("- runs: a row each in ends.csv\n")
    (drawn / "ends.csv").write_text("group,seed,folder\nroles,0,run-b\nroles,1,run-c\n")
    assert script.publish_figure(drawn, tmp_path / "to") == {"run-b", "run-c"}


def test_a_run_that_was_made_slim_can_be_read(script, ran, tmp_path):
    source = RunFolder(ran("algorithm=dp_fl", "dataset=digits", "rounds=2").folder)
    script.publish_run(source, RunFolder(tmp_path / "slim"))
    run = StoredRun(tmp_path / "slim")
    assert run.finished
    assert len(run.metrics) == 1
    assert not any(key.startswith("runtime.") for key in run.values)


@pytest.mark.thorough
def test_a_reference_figure_is_redrawn_from_its_values(tmp_path, monkeypatch):
    """Curves without a sound guarantee are known from ends.csv, so they stay dotted."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    redraw_figures = importlib.import_module("redraw_figures")
    shutil.copytree(
        redraw_figures.REFERENCE / "adap_dpfl" / "fig6", tmp_path / "adap_dpfl" / "fig6"
    )
    monkeypatch.setattr(redraw_figures, "REFERENCE", tmp_path)
    folder = tmp_path / "adap_dpfl" / "fig6"
    (folder / "figure.png").unlink()
    redraw_figures.redraw("adap_dpfl/fig6")
    assert (folder / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert redraw_figures.unsound_in(folder) == {
        ("mnist", "adaptive_noise"), ("fashion_mnist", "adaptive_noise"),
    }  # fmt: skip
