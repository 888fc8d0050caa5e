"""What a run leaves behind: the files, their columns and keys, and nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedpriv.common.config import compose, identity
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.run import RunResult
from fedpriv.store.folder import RunFolder

METRICS = [
    "round", "epsilon", "noise_multiplier", "clip_norm", "clip_norm_min", "clip_norm_max",
    "gradient_norm", "train_loss", "validation_loss", "test_loss", "test_accuracy", "seconds",
]  # fmt: skip
SUMMARY = {
    "algorithm", "dataset", "seed", "rounds", "stop_reason", "epsilon", "epsilon_published",
    "epsilon_sound", "delta", "noise_multiplier", "noise_decays", "test_accuracy", "test_loss",
    "best_test_accuracy", "test_records", "seconds", "cpu_seconds",
}  # fmt: skip
FILES = {
    "config.yaml", "metrics.csv", "clients.csv", "participation.csv", "ledger.csv",
    "privacy.json", "privacy.txt", "summary.json", "checkpoint.pt", "environment.json", "run.log",
    "model.pt",
}  # fmt: skip
SHORT = ("rounds=6", "evaluation_interval=2")


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> RunResult:
    """One run with the default settings and its plots."""
    import fedpriv

    folder = tmp_path_factory.mktemp("shared") / "run"
    overrides = ["runtime.progress=none", f"runtime.run_dir={folder}", *SHORT]
    return fedpriv.run(fedpriv.compose(overrides))


@pytest.fixture(scope="module")
def metrics(shared) -> pd.DataFrame:
    return pd.read_csv(shared.folder / "metrics.csv")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.thorough
def test_a_finished_run_leaves_these_files_and_no_temporary_ones(shared):
    assert names(shared.folder) == FILES


def test_metrics_begin_with_the_documented_columns(metrics):
    assert metrics.columns.tolist()[: len(METRICS)] == METRICS


def test_metrics_have_a_row_for_every_round(metrics):
    assert metrics["round"].tolist() == [1, 2, 3, 4, 5, 6]


def test_evaluation_columns_are_filled_every_evaluation_interval(metrics):
    for column in ("test_loss", "test_accuracy"):
        assert metrics["round"][metrics[column].notna()].tolist() == [2, 4, 6]


@pytest.mark.parametrize("column", [c for c in METRICS if not c.startswith("test_")])
def test_the_other_columns_are_filled_in_every_round(column, metrics):
    assert metrics[column].notna().all()


def test_epsilon_and_time_never_fall(metrics):
    for column in ("epsilon", "epsilon_published", "epsilon_sound", "seconds"):
        assert metrics[column].is_monotonic_increasing


def test_the_clip_norm_lies_between_its_smallest_and_its_largest(metrics):
    assert (metrics["clip_norm_min"] <= metrics["clip_norm"]).all()
    assert (metrics["clip_norm"] <= metrics["clip_norm_max"]).all()


def test_the_summary_has_the_documented_keys(shared):
    summary = json.loads((shared.folder / "summary.json").read_text())
    assert summary.keys() >= SUMMARY
    assert summary == shared.summary


def test_the_summary_repeats_the_last_row_of_the_metrics(shared, metrics):
    last = metrics.iloc[-1]
    for key in ("epsilon", "epsilon_published", "noise_multiplier", "test_accuracy", "test_loss"):
        assert shared.summary[key] == pytest.approx(last[key])
    best = pytest.approx(metrics["test_accuracy"].max(), rel=1e-15)  # pandas before 3.1 rounds
    assert shared.summary["best_test_accuracy"] == best


def test_the_configuration_of_the_folder_is_the_one_that_ran(shared):
    saved = yaml.safe_load((shared.folder / "config.yaml").read_text())
    assert saved["algorithm"]["name"] == "adap_dpfl"
    assert saved["partition"]["seed"] == 0
    assert "${" not in (shared.folder / "config.yaml").read_text()


def test_the_identity_of_a_run_can_be_read_from_its_folder(shared):
    from omegaconf import OmegaConf

    saved = identity(OmegaConf.load(shared.folder / "config.yaml"))
    assert saved == identity(compose(SHORT))


def test_the_environment_names_versions_and_schema(shared):
    environment = json.loads((shared.folder / "environment.json").read_text())
    assert environment["schema_version"] == 2
    assert environment["stream_version"] == 3
    assert environment["versions"]["torch"]


@pytest.mark.thorough
def test_the_ledger_stays_small(train):
    """Its size depends on the number of distinct draws, not on the number of rounds."""
    sizes = []
    for rounds in (5, 50):
        result = train("algorithm=dp_fl", "epsilon=null", f"rounds={rounds}", name=str(rounds))
        ledger = result.folder / "ledger.csv"
        assert len(pd.read_csv(ledger)) == 1
        sizes.append(ledger.stat().st_size)
    assert sizes[1] - sizes[0] < 10


def test_a_temporary_file_that_goes_while_the_folder_is_read_is_no_fault(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").touch()
    monkeypatch.setattr(
        Path, "rglob", lambda path, _: [path / ".checkpoint.pt.7.tmp", path / "metrics.csv"]
    )
    RunFolder(tmp_path).refuse_links()
    (tmp_path / "metrics.csv").unlink()
    (tmp_path / "metrics.csv").symlink_to("/dev/null")
    with pytest.raises(ConfigError, match="which is neither a file nor a folder"):
        RunFolder(tmp_path).refuse_links()


def test_the_clients_table_has_a_row_per_client_and_evaluation(shared):
    clients = pd.read_csv(shared.folder / "clients.csv")
    assert sorted(clients["round"].unique()) == [2, 4, 6]
    assert clients.groupby("round")["client"].apply(list).tolist() == [list(range(10))] * 3


EVERY_PLOT = {
    "accuracy_by_round", "accuracy_by_epsilon", "loss_by_round", "loss_by_epsilon", "epsilon",
    "noise_and_clip_norm", "gradient_norm", "labels_per_client",
}  # fmt: skip


def test_every_plot_is_there_and_not_empty(shared):
    plots = {path.stem: path for path in (shared.folder / "plots").iterdir()}
    assert plots.keys() == EVERY_PLOT
    for path in plots.values():
        assert path.suffix == ".png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def test_every_plot_shows_something_and_labels_its_axes(shared, monkeypatch):
    import numpy as np

    from fedpriv.store import plots, run_plots

    figures = []
    monkeypatch.setattr(
        plots, "save_picture", lambda figure, path, dpi: figures.append((path, figure))
    )
    privacy = json.loads((shared.folder / "privacy.json").read_text())
    run_plots.plot_run(RunFolder(shared.folder), privacy, np.ones((10, 10), dtype=int))
    assert {Path(path).stem for path, _ in figures} == EVERY_PLOT
    for path, figure in figures:
        axes = figure.axes
        assert all(axis.get_ylabel() for axis in axes), path
        assert axes[-1].get_xlabel(), path
        assert all(axis.lines or axis.patches or axis.collections for axis in axes), path


@pytest.mark.thorough
def test_a_run_without_privacy_has_no_plot_of_epsilon(command, tmp_path):
    command("train", "algorithm=fedavg", "rounds=2", "runtime.run_dir=run")
    plots = {path.stem for path in (tmp_path / "run" / "plots").iterdir()}
    assert plots == {"accuracy_by_round", "loss_by_round", "gradient_norm", "labels_per_client"}


def test_plots_can_be_left_out(train):
    assert list((train("rounds=1").folder / "plots").iterdir()) == []


@pytest.fixture(scope="module")
def discreet(tmp_path_factory) -> Path:
    """The folder of a run without diagnostics."""
    import fedpriv

    folder = tmp_path_factory.mktemp("discreet")
    overrides = ["runtime.progress=none", f"runtime.output_dir={folder}"]
    overrides += ["runtime.diagnostics=false", "seed=7654321", *SHORT]
    return fedpriv.run(fedpriv.compose(overrides)).folder


@pytest.mark.thorough
def test_without_diagnostics_nothing_is_said_of_private_losses_and_norms(discreet):
    rows = pd.read_csv(discreet / "metrics.csv")
    assert rows[["train_loss", "gradient_norm"]].isna().all(axis=None)
    assert rows[["epsilon", "clip_norm", "validation_loss"]].notna().all(axis=None)


@pytest.mark.thorough
def test_without_diagnostics_files_about_single_clients_are_left_out(discreet):
    assert names(discreet) == FILES - {"clients.csv", "checkpoint.pt"}
    plots = {path.stem for path in (discreet / "plots").iterdir()}
    assert plots == EVERY_PLOT - {"gradient_norm", "labels_per_client"}


def test_without_diagnostics_the_seed_is_nowhere(discreet):
    assert "7654321" not in discreet.name
    for path in discreet.iterdir():
        if path.is_file():
            assert b"7654321" not in path.read_bytes(), path.name
    assert json.loads((discreet / "summary.json").read_text())["seed"] is None


def test_without_diagnostics_nothing_tells_how_long_a_round_took(discreet):
    """It tells the size of a secret cohort: rank correlation .54."""
    assert "seconds" not in pd.read_csv(discreet / "metrics.csv")
    summary = json.loads((discreet / "summary.json").read_text())
    assert summary["seconds"] is summary["cpu_seconds"] is None
    assert "left" not in (discreet / "run.log").read_text()
    assert "seconds" not in (discreet / "privacy.json").read_text()


def test_without_diagnostics_snapshots_have_no_date(train):
    folder = train(*SHORT, "runtime.diagnostics=false", "runtime.snapshot_interval=1").folder
    files = list((folder / "snapshots").iterdir())
    assert len(files) > 1
    assert {file.stat().st_mtime for file in files} == {0}


def test_without_diagnostics_lines_of_progress_stay_out_of_the_log(train, monkeypatch, capsys):
    """When they come tells how long the rounds before them took."""
    from fedpriv.experiment import reporter

    monkeypatch.setattr(reporter, "_SECONDS_BETWEEN_LINES", 0.0)
    shown = ("runtime.progress=lines", *SHORT)
    logs = [
        (train(*shown, f"runtime.diagnostics={flag}", name=flag).folder / "run.log").read_text()
        for flag in ("true", "false")
    ]
    assert "round 1 " in logs[0]
    assert "round 1 " not in logs[1]
    assert "ended after" in logs[1]


def test_without_diagnostics_the_number_of_broken_records_is_not_told(discreet):
    """It is an exact count of private records."""
    assert json.loads((discreet / "summary.json").read_text())["records_not_finite"] is None


def test_without_diagnostics_the_statement_lists_none(discreet):
    assert json.loads((discreet / "privacy.json").read_text())["diagnostics"] == []
    assert "This folder is not private" not in (discreet / "privacy.txt").read_text()


def test_diagnostics_do_not_change_the_run(train):
    runs = [
        pd.read_csv(train(*SHORT, f"runtime.diagnostics={flag}", name=flag).folder / "metrics.csv")[
            "test_loss"
        ]
        for flag in ("true", "false")
    ]
    pd.testing.assert_series_equal(*runs, check_exact=True)


def test_an_infinite_epsilon_survives_the_files(train):
    result = train("clipper.reading=unclipped", "budget_view=published", "rounds=2")
    summary = json.loads((result.folder / "summary.json").read_text())
    assert math.isinf(summary["epsilon_sound"])
