"""The Python interface: what is public, runs and sweeps from Python, and their data frames."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fedpriv
from fedpriv.experiment.sweeps import SweepJob, raise_failures
from fedpriv.experiment.train_arguments import swept_arguments

ROOT = Path(__file__).parents[1]
TINY = ["algorithm=dp_fl", "rounds=2", "runtime.progress=none", "runtime.plots=false"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory, rows) -> fedpriv.RunResult:
    folder = tmp_path_factory.mktemp("python") / "run"
    config = fedpriv.compose([*TINY, f"runtime.run_dir={folder}"])
    return fedpriv.run(config, on_round=rows.append)


# ---- what is public


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "20000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_torch_s_threads_wait_awake_for_a_short_time_unless_the_user_says_how_long(given, spins):
    bare = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
    code = (
        "import fedpriv, os, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={**bare, **given})
    assert said.stdout.split() == [spins, "False"]


def test_dir_shows_what_is_public_and_imports_nothing_heavy():
    code = (
        "import sys, fedpriv; print(dir(fedpriv), "
        "{'torch', 'hydra', 'numpy', 'pandas'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"{sorted(fedpriv.__all__)} set()"


@pytest.mark.parametrize("name", fedpriv.__all__)
def test_what_is_public_is_documented_on_the_reference_page(name):
    assert getattr(fedpriv, name).__doc__
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert re.search(rf"^::: fedpriv\.{name}$", page, flags=re.M)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = fedpriv.nothing


# ---- compose


def test_config_dir_may_be_a_text(tmp_path):
    (tmp_path / "clipper").mkdir()
    (tmp_path / "clipper" / "mine.yaml").write_text(
        "_target_: fedpriv.privacy.clippers.FixedClipper\nclip_norm: 3.5\n", encoding="utf-8"
    )
    for folder in (tmp_path, str(tmp_path)):
        config = fedpriv.compose(["algorithm=dp_fl", "clipper=mine"], config_dir=folder)
        assert config.clipper.clip_norm == 3.5


def test_a_config_dir_that_is_not_there_is_named():
    with pytest.raises(fedpriv.ConfigError, match=r"config_dir.*existing folder.*nowhere"):
        fedpriv.compose([], config_dir="nowhere")


def test_overrides_in_one_text_are_refused():
    with pytest.raises(fedpriv.ConfigError, match=r"overrides.*\['algorithm=dp_fl'\]"):
        fedpriv.compose("algorithm=dp_fl")
    with pytest.raises(fedpriv.ConfigError, match=r"overrides.*\['algorithm=dp_fl'\]"):
        fedpriv.sweep("algorithm=dp_fl")


# ---- a run


def test_metrics_are_the_rows_of_the_rounds(result):
    assert result.metrics["round"].tolist() == [1, 2]
    assert pd.api.types.is_float_dtype(result.metrics["epsilon"])


def test_the_ledger_has_the_releases(result):
    assert result.ledger["draws_per_client"].tolist() == [2]
    assert "Gaussian" in result.ledger["event_sound"][0]


def test_the_callback_sees_every_round(result, rows):
    assert [row["round"] for row in rows] == [1, 2]
    assert rows[-1]["epsilon"] == result.summary["epsilon"]


def test_a_callback_that_raises_ends_the_run(tmp_path):
    def stop(row: dict[str, object]) -> None:
        raise ZeroDivisionError

    config = fedpriv.compose([*TINY, f"runtime.run_dir={tmp_path / 'run'}"])
    with pytest.raises(ZeroDivisionError):
        fedpriv.run(config, on_round=stop)


def test_a_callback_is_told_nothing_that_a_run_without_diagnostics_withholds(tmp_path):
    rows = []
    folder = f"runtime.run_dir={tmp_path / 'run'}"
    config = fedpriv.compose([*TINY, "runtime.diagnostics=false", folder])
    result = fedpriv.run(config, on_round=rows.append)
    assert not {"seconds", "train_loss"} & set(rows[0])
    assert set(rows[0]) <= set(result.metrics.columns)


def test_a_dry_run_has_no_tables():
    result = fedpriv.run(fedpriv.compose([*TINY, "dry_run=true"]))
    assert (result.metrics, result.ledger) == (None, None)


# ---- stored runs


def test_runs_are_a_frame_with_numbers_and_keys(result):
    frame = fedpriv.runs(result.folder.parent)
    assert frame["clipper.clip_norm"].tolist() == [1.0]
    assert frame["config.epsilon"].tolist() == [2.0]
    assert frame["epsilon"].tolist() == [result.summary["epsilon"]]
    assert pd.api.types.is_integer_dtype(frame["seed"])
    assert frame["folder"].tolist() == [str(result.folder)]
    assert frame["clipper"].tolist() == ["constant"]
    assert not frame.columns.has_duplicates


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(fedpriv.ConfigError, match="nowhere"):
        fedpriv.runs("nowhere")


# ---- a sweep


def test_a_sweep_runs_each_combination_and_goes_on(tmp_path):
    folder = tmp_path / "the sweep"
    frame = fedpriv.sweep([*TINY, "rounds=1"], {"epsilon": [1, None]}, folder=folder)
    assert frame["config.epsilon"].isna().tolist() == [False, True]
    more = fedpriv.sweep([*TINY, "rounds=1"], {"epsilon": [1, None, 2]}, folder=str(folder))
    assert len(more) == 3
    assert set(frame["folder"]) < set(more["folder"])


def test_values_of_a_sweep_are_written_as_overrides():
    over = {"seed": range(2), "epsilon": (1.5, None), "publish": [True], "a": [[1, 2]], "b": "x"}
    assert swept_arguments(["c=1"], over, None, "dir") == [
        "-m", "c=1", "seed=0,1", "epsilon=1.5,null", "publish=true", "a=[1,2]", "b=x",
        "--config-dir=dir",
    ]  # fmt: skip


def test_a_text_of_a_sweep_is_one_value_whatever_it_holds():
    over = {"dataset.path": ["/a,b's.csv", Path("c.csv")], "a": "choice(1,2)"}
    assert swept_arguments([], over, Path("/it's"), None) == [
        "-m",
        r"dataset.path='/a,b\'s.csv',c.csv",
        "a=choice(1,2)",
        r"hydra.sweep.dir='/it\'s'",
    ]


def test_a_sweep_whose_runs_fail_says_why():
    jobs = [SweepJob((f"seed={seed}",)) for seed in range(3)]
    failures = [(job, fedpriv.FedprivError(f"{job.overrides[0]}: no room")) for job in jobs[1:]]
    with pytest.raises(fedpriv.FedprivError, match=r"2 of 3 jobs.*seed=1: no room"):
        raise_failures(jobs, failures)


def test_a_key_without_values_is_refused():
    with pytest.raises(fedpriv.ConfigError, match="seed"):
        fedpriv.sweep(TINY, {"seed": []})


def test_a_single_value_is_swept_over_as_a_list_of_one():
    assert swept_arguments(["algorithm=dp_fl"], {"seed": 3}, None, None)[-1] == "seed=3"
