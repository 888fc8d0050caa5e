"""Runs in an SQLite database, read back by MLflow's own client; servers that are away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpriv.experiment.reporter import Reporter

pytest.importorskip("mlflow", reason="needs pip install '.[mlflow]'")

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own about its packages

SMALL = (
    "algorithm=dp_fl", "rounds=10", "evaluation_interval=2", "runtime.checkpoint_interval=4",
    "tracker=mlflow",
)  # fmt: skip


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> str:
    """A database, whose tables take seconds to make."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def here(database, tmp_path, monkeypatch):
    """(experiment) → overrides that track there; artefacts lie below ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    return lambda name: (f"tracker.mlflow.uri={database}", f"tracker.mlflow.experiment={name}")


def runs(database, experiment):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(database)
    return client, client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_metrics_parameters_and_statement_are_there(train, here, database, tmp_path):
    result = train(*SMALL, *here("whole"))
    client, (run,) = runs(database, "whole")
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.name"] == "dp_fl"
    assert run.data.tags["stop_reason"] == "rounds"
    for name in ("epsilon", "epsilon_published", "epsilon_sound", "test_accuracy"):
        assert run.data.metrics[name] == pytest.approx(result.summary[name])
    history = client.get_metric_history(run.info.run_id, "noise_multiplier")
    assert [metric.step for metric in history] == list(range(1, 11))
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert kept == {"privacy.txt", "privacy.json", "summary.json"}
    told = client.download_artifacts(run.info.run_id, "privacy.txt", str(tmp_path))
    assert Path(told).read_text() == (result.folder / "privacy.txt").read_text()
    assert not {key for key in run.data.tags if key.startswith(("mlflow.source", "mlflow.user"))}


def test_a_run_that_died_goes_on_without_a_round_twice(
    train, here, database, tmp_path, monkeypatch
):
    def show(self, row):
        if row["round"] == 8:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "show", show)
        with pytest.raises(Died):
            train(*SMALL, *here("died"), name="died")
    client, (run,) = runs(database, "died")
    assert len(client.get_metric_history(run.info.run_id, "epsilon")) == 6
    assert run.info.status == "FAILED"
    train(*SMALL, *here("died"), f"resume={tmp_path / 'died'}", name="died")
    client, (run,) = runs(database, "died")
    history = client.get_metric_history(run.info.run_id, "epsilon")
    assert [metric.step for metric in history] == list(range(1, 11))
    assert run.info.status == "FINISHED"


def test_another_run_of_the_readers_is_not_written_into(
    train, here, database, tmp_path, monkeypatch
):
    train(*SMALL, *here("mine"), "seed=5", name="mine")
    mine = json.loads((tmp_path / "mine/trackers.json").read_text())

    def show(self, row):
        if row["round"] == 8:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "show", show)
        with pytest.raises(Died):
            train(*SMALL, "tracker=none", name="foreign")
    (tmp_path / "foreign/trackers.json").write_text(json.dumps(mine))
    train(*SMALL, *here("mine"), f"resume={tmp_path / 'foreign'}", name="foreign")
    _, found = runs(database, "mine")
    assert sorted(run.info.run_name for run in found) == ["foreign", "mine"]


def test_a_server_that_is_away_is_a_warning(train, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = train(*SMALL, "tracker.mlflow.uri=http://127.0.0.1:9")  # nobody listens there
    assert result.summary["rounds"] == 10
    log = (result.folder / "run.log").read_text()
    assert log.count("warning: tracker mlflow failed and is left out") == 1
