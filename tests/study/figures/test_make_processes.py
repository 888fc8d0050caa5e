"""Figures made by several processes, interrupted, stopped or killed."""

from __future__ import annotations

import json
import shutil
import time

import pandas as pd
import psutil
import pytest
from joblib.externals.loky import get_reusable_executor
from made_figures import names, runs, tiny_folder, without_seconds


@pytest.mark.thorough
def test_two_processes_make_the_same_figure_as_one(make, made, there, tmp_path):
    for run in runs(there):
        if json.loads((run / "summary.json").read_text())["seed"] == 1:
            shutil.rmtree(run)
    shutil.rmtree(tiny_folder(tmp_path))
    said = make("--jobs", "2")
    get_reusable_executor().shutdown(wait=True)
    assert (said.status, said.err) == (0, "")
    assert names(tmp_path / "outputs") == names(made)
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole


STOPPING = """
import os, signal
from fedpriv.privacy.clippers import ConstantClipper

class Stopping(ConstantClipper):
    seen = 0

    def observe(self, *released):
        self.seen += 1
        if self.seen == 3 and os.environ.get("STOP_WITH"):
            os.kill(os.getpid(), getattr(signal, os.environ["STOP_WITH"]))
"""


@pytest.mark.parametrize("signal", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.thorough)])
def test_a_figure_that_was_interrupted_goes_on_to_what_it_would_have_been(
    signal, make, tiny, tmp_path, monkeypatch
):
    (tmp_path / "stopping_clipper_of_a_figure.py").write_text(STOPPING)
    tiny["curves"]["loud"]["overrides"].append(
        "clipper._target_=stopping_clipper_of_a_figure.Stopping"
    )
    monkeypatch.setenv("STOP_WITH", signal)
    said = make("--seeds", "0")
    assert said.status == 130
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in said.err
    assert "Traceback" not in said.err
    (begun,) = runs(tmp_path / "outputs")  # the second did not begin
    assert len(without_seconds(begun)) == 3
    assert not list(tmp_path.rglob(".stop-*"))
    monkeypatch.delenv("STOP_WITH")
    assert make("--seeds", "0").status == 0
    assert make("--seeds", "0", "runtime.output_dir=whole").status == 0
    assert names(tmp_path / "outputs") == names(tmp_path / "whole")
    for run in runs(tmp_path / "outputs"):
        pd.testing.assert_frame_equal(
            without_seconds(run),
            without_seconds(tmp_path / "whole" / "runs" / run.name),
            check_exact=True,
        )


@pytest.mark.thorough
def test_ctrl_c_stops_the_workers_with_checkpoints(start, write, tiny, tmp_path):
    tiny["panels"]["digits"]["overrides"][2] = "rounds=1000000"
    tiny["panels"]["digits"]["seeds"] = [0]
    write()
    child = start(
        "figure", "own/tiny", "--config-dir", "mine", "--jobs", "2", "runtime.progress=none"
    )
    while not list(tmp_path.glob("outputs/runs/*/metrics.csv")):
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(2)
    _, err = child.communicate()
    assert child.returncode == 130
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in err
    assert "Traceback" not in err
    for run in runs(tmp_path / "outputs"):
        assert json.loads((run / "summary.json").read_text())["stop_reason"] == "interrupted"
        assert (run / "checkpoint.pt").exists()
    assert not list(tmp_path.rglob(".stop-*"))


@pytest.mark.thorough
@pytest.mark.parametrize("quiet", [400, 2])  # with 2 one of the workers waits for a next job
def test_workers_end_with_a_figure_that_was_killed(quiet, start, make, write, tiny, tmp_path):
    tiny["panels"]["digits"]["overrides"][2] = "rounds=400"
    tiny["panels"]["digits"]["seeds"] = [0]
    tiny["curves"]["quiet"]["overrides"].append(f"rounds={quiet}")
    write()
    child = start(
        "figure", "own/tiny", "--config-dir", "mine", "--jobs", "2", "runtime.progress=none"
    )
    while len(list(tmp_path.glob("outputs/runs/*/metrics.csv"))) < 2:
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    while quiet == 2 and not list(tmp_path.glob("outputs/runs/*/summary.json")):
        time.sleep(0.02)
    workers = psutil.Process(child.pid).children(recursive=True)
    assert len(workers) >= 2
    child.kill()
    child.communicate()
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []
    ends = [json.loads((r / "summary.json").read_text()) for r in runs(tmp_path / "outputs")]
    expected = ["interrupted", "interrupted" if quiet == 400 else "rounds"]
    assert sorted(end["stop_reason"] for end in ends) == expected
    assert list(tmp_path.rglob(".stop-*"))
    assert make().status == 0
    assert not list(tmp_path.rglob(".stop-*"))
    ends = [json.loads((r / "summary.json").read_text()) for r in runs(tmp_path / "outputs")]
    assert sorted(end["rounds"] for end in ends) == sorted([400, quiet])
    if quiet == 2:
        return
    assert make("runtime.output_dir=whole").status == 0
    for run in runs(tmp_path / "outputs"):
        pd.testing.assert_frame_equal(
            without_seconds(run),
            without_seconds(tmp_path / "whole" / "runs" / run.name),
            check_exact=True,
        )
