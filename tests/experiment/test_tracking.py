"""Trackers look on: they change nothing, send what the run folder shows, and may fail."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import fedpriv
from fedpriv.common.config import fingerprint, identity
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.reporter import Reporter
from fedpriv.experiment.trackers import CsvTracker
from fedpriv.experiment.tracking import parameters_of
from fedpriv.experiment.train_arguments import _is_kept

SMALL = ("algorithm=dp_fl", "rounds=10", "evaluation_interval=2", "runtime.checkpoint_interval=4")


class Died(BaseException):
    """Stands for the end of the process: nothing of fedpriv catches it."""


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def rounds_of(path: Path, metric: str) -> list[int]:
    return [int(row["round"]) for row in rows(path) if row["metric"] == metric]


def die_in(monkeypatch, number: int) -> None:
    def show(self, row) -> None:
        if row["round"] == number:
            raise Died

    monkeypatch.setattr(Reporter, "show", show)


def test_several_trackers_are_chosen_by_a_list():
    parts = build_parts(fedpriv.compose(["tracker=[tensorboard,csv]", "tracker.csv.folder=x"]))
    assert list(parts.trackers) == ["tensorboard", "csv"]


def test_without_a_choice_there_is_none():
    assert fedpriv.compose().tracker is None
    assert build_parts(fedpriv.compose()).trackers == {}


def test_what_a_run_is_does_not_depend_on_its_trackers():
    without, tracked = fedpriv.compose(), fedpriv.compose(["tracker=[csv,wandb,mlflow]"])
    assert identity(without) == identity(tracked)
    assert fingerprint(identity(without)) == fingerprint(identity(tracked))


def test_a_tracked_run_is_the_run_that_is_not(train, assert_same_run):
    tracked = train(*SMALL, "tracker=csv", name="tracked").folder
    plain = train(*SMALL, name="plain").folder
    assert_same_run(tracked, plain)
    assert not (plain / "trackers.json").exists()


def test_a_tracker_gets_what_the_metrics_say(train):
    folder = train(*SMALL, "tracker=csv").folder
    shown = {
        (row["round"], row["metric"]): row["value"] for row in rows(folder / "tracked/metrics.csv")
    }
    said = {
        (row["round"], column): value
        for row in rows(folder / "metrics.csv")
        for column, value in row.items()
        if value and column != "round"
    }
    assert shown == said
    last = {metric for number, metric in shown if number == "10"}
    assert last >= {
        "epsilon", "epsilon_published", "epsilon_sound", "noise_multiplier", "clip_norm", "test_accuracy",
        "test_loss", "train_loss",
    }  # fmt: skip


def test_a_tracker_gets_parameters_summary_and_statement(train):
    result = train(*SMALL, "tracker=csv")
    tracked = result.folder / "tracked"
    parameters = {row["name"]: row["value"] for row in rows(tracked / "parameters.csv")}
    assert parameters["algorithm.name"] == "dp_fl"
    assert parameters["rounds"] == "10"
    summary = {row["name"]: row["value"] for row in rows(tracked / "summary.csv")}
    assert float(summary["epsilon_sound"]) == result.summary["epsilon_sound"]
    for name in ("privacy.txt", "privacy.json"):
        assert (tracked / name).read_text() == (result.folder / name).read_text()


def test_parameters_hold_no_secrets_and_no_places():
    config = fedpriv.compose(
        [
            "dataset=ipums",
            "dataset.path=/home/me",
            "+dataset.api_key=abc",
            "+model.access_token=abc",
            "tracker=mlflow",
        ]
    )
    shown = parameters_of(config, diagnostics=True)
    assert not {key for key in shown if key.startswith(("runtime", "tracker", "resume"))}
    assert not {"dataset.path", "dataset.api_key", "model.access_token"} & set(shown)
    assert shown["seed"] == 0
    assert not {key for key in parameters_of(config, diagnostics=False) if key.endswith("seed")}


def test_an_infinite_epsilon_is_a_text_in_the_summary_and_no_metric(train):
    run = train(*SMALL, "tracker=csv", "noise_schedule=none", "clipper=constant", "epsilon=null")
    summary = {r["name"]: r["value"] for r in rows(run.folder / "tracked/summary.csv")}
    assert summary["epsilon_sound"] == "Infinity"
    assert rounds_of(run.folder / "tracked/metrics.csv", "epsilon_sound") == []


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["begin", "log", "flush", "finish", "close"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("away\nmore")]
)
def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
    method, error, train, tmp_path, monkeypatch
):
    calls = []

    def fail(*arguments):
        calls.append(method)
        raise error

    monkeypatch.setattr(CsvTracker, method, fail)
    result = train(*SMALL, "tracker=csv")
    assert result.summary["rounds"] == 10
    log = (result.folder / "run.log").read_text()
    assert log.count("warning: tracker csv failed and is left out from here on") == 1
    assert "more" not in log
    assert calls.count(method) == (2 if method == "close" else 1)


def test_a_warning_about_a_tracker_is_on_the_console(command, monkeypatch):
    monkeypatch.setattr(CsvTracker, "log", lambda *_: 1 / 0)
    said = command("train", *SMALL, "tracker=csv", "runtime.progress=lines", "runtime.plots=false")
    assert said.status == 0
    assert " ".join(said.err.split()).count("tracker csv failed and is left out") == 1


def test_trackers_that_work_go_on_beside_one_that_fails(train, monkeypatch):
    monkeypatch.setattr(
        "fedpriv.experiment.trackers.TensorBoardTracker.refuse_unusable", lambda self: None
    )
    monkeypatch.setattr("fedpriv.experiment.trackers.TensorBoardTracker.begin", lambda *_: 1 / 0)
    folder = train(*SMALL, "tracker=[tensorboard,csv]").folder
    assert rounds_of(folder / "tracked/metrics.csv", "epsilon") == list(range(1, 11))


@pytest.mark.parametrize("where", ["csv", "elsewhere"])
def test_a_run_that_died_goes_on_in_the_same_place_without_a_round_twice(
    where, train, tmp_path, monkeypatch
):
    tracker = ["tracker=csv"]
    if where == "elsewhere":
        tracker.append(f"tracker.csv.folder={tmp_path / 'shown'}")
        (tmp_path / "shown" / "died").mkdir(parents=True)  # of another run
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            train(*SMALL, *tracker, name="died")
    place = tmp_path / ("died/tracked" if where == "csv" else "shown/died-2")
    assert max(rounds_of(place / "metrics.csv", "epsilon")) == 6
    folder = train(*SMALL, *tracker, f"resume={tmp_path / 'died'}", name="died").folder
    assert rounds_of(place / "metrics.csv", "epsilon") == list(range(1, 11))
    whole = train(*SMALL, "tracker=csv", name="whole").folder / "tracked"
    for name in ("metrics.csv", "parameters.csv"):
        lines = [
            [line for line in (p / name).read_text().splitlines() if "seconds" not in line]
            for p in (place, whole)
        ]
        assert lines[0] == lines[1]
    assert json.loads((folder / "trackers.json").read_text()) == {"csv": {"name": place.name}}


@pytest.mark.thorough
def test_a_name_in_a_folder_leads_to_no_other_run_of_the_readers(train, tmp_path, monkeypatch):
    shown = tmp_path / "shown"
    (shown / "mine").mkdir(parents=True)
    (shown / "mine" / "metrics.csv").write_text("round,metric,value\n9,epsilon,1.0\n")
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            train(*SMALL, name="foreign")
    for name in ("mine", "../shown/mine", str(shown / "mine")):
        (tmp_path / "foreign/trackers.json").write_text(json.dumps({"csv": {"name": name}}))
        copy = Path(shutil.copytree(tmp_path / "foreign", tmp_path / f"f{len(name)}"))
        train(
            *SMALL, "tracker=csv", f"tracker.csv.folder={shown}", f"resume={copy}", name=copy.name
        )
        assert "9,epsilon,1.0" in (shown / "mine/metrics.csv").read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["", "{", "[]", '{"csv": 3}', '{"csv": {"name": 4}}'])
def test_a_damaged_note_of_trackers_begins_anew(damage, train, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            train(*SMALL, "tracker=csv", name="died")
    (tmp_path / "died/trackers.json").write_text(damage)
    folder = train(*SMALL, "tracker=csv", f"resume={tmp_path / 'died'}", name="died").folder
    assert rounds_of(folder / "tracked/metrics.csv", "epsilon") == list(range(1, 11))


def test_publish_takes_no_tracker():
    with pytest.raises(ConfigError, match="tracker must be none with publish=true, got csv"):
        build_parts(fedpriv.compose(["algorithm=dp_fl", "publish=true", "tracker=csv"]))


def test_without_diagnostics_no_tracker_tells_how_long_a_round_took(train):
    settings = (*SMALL, "runtime.diagnostics=false")
    for choice in ("wandb", "[csv,tensorboard]"):
        with pytest.raises(ConfigError, match=r"none or csv with runtime.diagnostics=false, got "):
            build_parts(fedpriv.compose([*settings, f"tracker={choice}"]))
    folder = train(*settings, "tracker=csv").folder / "tracked"
    assert rounds_of(folder / "metrics.csv", "seconds") == []
    assert rounds_of(folder / "metrics.csv", "train_loss") == []
    shown = (folder / "parameters.csv").read_text() + (folder / "summary.csv").read_text()
    assert "seed," not in shown


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_package_that_is_missing_is_one_sentence_before_the_run(
    name, command, monkeypatch, tmp_path
):
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    said = command("train", *SMALL, f"tracker={name}", "runtime.run_dir=here")
    assert said.status == 2
    assert f"needs the package {name}, which is not installed" in said.sentence
    assert f"pip install 'fedpriv[{name}]'" in said.sentence
    assert not (tmp_path / "here").exists()


def test_a_plan_without_the_package_of_a_tracker_ends_as_the_run_would(command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    said = command("train", *SMALL, "tracker=mlflow", "dry_run=true")
    assert said.status == 2
    assert "Plan" in said.out
    assert "tracker=mlflow needs the package mlflow" in said.sentence


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tracker=csvs", "did you mean csv?"),
        ("tracker=[csv,mlfow]", "did you mean mlflow?"),
        ("tracker.csv.folder=x", "tracker=none has no key csv.folder"),
        ("tracker=csv tracker.csv.foldr=x", "did you mean tracker.csv.folder?"),
        ("tracker=csv tracker.csv.folder=3", "tracker.csv.folder must be a text, got 3"),
        ("+tracker.mine=3", "tracker.mine must be a group option"),
        ("tracker=mlflow tracker.mlflow.uri=http://me:pw@x.org", "without them"),
        ("tracker=wandb tracker.wandb.mode=of", "tracker.wandb.mode must be one of"),
        ("tracker=wandb tracker.wandb.tags=a", "tracker.wandb.tags must be a list"),
    ],
)
def test_a_wrong_choice_is_one_sentence(override, words, command):
    said = command("train", *SMALL, *override.split(), "dry_run=true")
    assert said.status == 2
    assert words in said.sentence
    assert "pw" not in said.sentence


SWEEP = (
    "rounds=2",
    "runtime.plots=false",
    "runtime.progress=none",
    "hydra.sweep.dir=s",
    "seed=0,1",
)


def test_sweeps_take_trackers(command, tmp_path):
    pytest.importorskip("tensorboard", reason="needs pip install '.[tensorboard]'")
    said = command("train", "-m", "algorithm=dp_fl", "tracker=[csv,tensorboard]", *SWEEP)
    assert said.status == 0, said.err
    jobs = sorted(path for path in (tmp_path / "s").iterdir() if path.is_dir())
    assert [(job / "tracked/summary.csv").exists() for job in jobs] == [True, True]


def test_jobs_of_a_sweep_that_differ_in_trackers_alone_are_made_once(command, tmp_path):
    said = command("train", "-m", "algorithm=dp_fl", "tracker=none,csv", *SWEEP)
    assert said.status == 0, said.err
    jobs = [path for path in (tmp_path / "s").iterdir() if path.is_dir()]
    assert len(jobs) == 2
    assert "4 jobs of the sweep, 2 different runs: each is made once" in said.out + said.err


def test_the_runs_of_a_search_are_not_tracked(train, tmp_path):
    shown = tmp_path / "shown"
    train(
        "algorithm=wei_cdp_optimal", "algorithm.search.rounds=[1,2]", "algorithm.search.seeds=[0]",
        f"runtime.output_dir={tmp_path}", "tracker=csv", f"tracker.csv.folder={shown}",
        "budget_view=published",
    )  # fmt: skip
    assert [path.name for path in shown.iterdir()] == ["run"]


# ---- whose trackers


@pytest.mark.parametrize(
    "override",
    [
        "tracker=csv", "+tracker=csv", "++tracker.csv.folder=there", "tracker.csv.folder=there",
        "tracker/csv=x", "~tracker", "tracker=[csv,mlflow]",
    ],
)  # fmt: skip
def test_a_folder_does_not_say_what_tracks_it(override, tmp_path):
    from fedpriv.store.folder import RunFolder

    assert not _is_kept(override, RunFolder(tmp_path))


def test_the_trackers_of_a_folder_are_not_taken_over_unless_the_reader_asks(
    command, tmp_path, monkeypatch
):
    """So nothing is sent to a place that somebody else's folder names."""
    there = ("tracker=csv", "tracker.csv.folder=there")
    quiet = ("runtime.progress=lines", "runtime.plots=false")
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            command("train", *SMALL, *there, *quiet, "runtime.run_dir=foreign")
    shutil.rmtree(tmp_path / "there")
    shutil.copytree(tmp_path / "foreign", tmp_path / "again")
    resumed = command("train", "resume=foreign")
    assert resumed.status == 0, resumed.err
    assert not (tmp_path / "there").exists()
    assert "was tracked by csv" in (tmp_path / "foreign/run.log").read_text()
    assert command("train", "resume=again", "tracker=csv").status == 0
    assert (tmp_path / "again/tracked/metrics.csv").exists()
    assert not (tmp_path / "there").exists()


def test_the_command_to_go_on_asks_for_the_trackers_again():
    from fedpriv.experiment.consent import resume_command

    config = fedpriv.compose(
        ["tracker=[csv,wandb]", "tracker.wandb.project=my project", "tracker.wandb.tags=[a,b]"]
    )
    assert resume_command(Path("x"), config) == (
        "fedpriv train resume=x 'tracker=[csv,wandb]' 'tracker.wandb.project=my project' "
        "'tracker.wandb.tags=[a,b]'"
    )
    assert resume_command(Path("x"), fedpriv.compose()) == "fedpriv train resume=x"
    assert resume_command(Path("x"), fedpriv.compose(["tracker=csv"])).endswith("x tracker=csv")


@pytest.mark.thorough
def test_an_audit_of_a_tracked_run_tracks_nothing(command, tmp_path):
    there = ("tracker=csv", "tracker.csv.folder=there", "runtime.plots=false")
    assert command("train", *SMALL, *there, "runtime.run_dir=run").status == 0
    shutil.rmtree(tmp_path / "there")
    assert command("audit", "membership", "run", "--records", "20").status == 0
    assert not (tmp_path / "there").exists()


def test_the_tracker_in_the_guide_works_as_printed(command, tmp_path):
    guide = (Path(__file__).parents[2] / "docs/guide/trackers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (options,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "my_trackers.py").write_text(code)
    yamls = tmp_path / "my_yamls" / "tracker"
    yamls.mkdir(parents=True)
    (yamls / "lines.yaml").write_text(options)
    own = ("--config-dir", "my_yamls", "runtime.plots=false", "runtime.progress=none")
    said = command("train", *own, *SMALL, "tracker=[lines,csv]", "runtime.run_dir=run")
    assert said.status == 0, said.err
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("run", "rounds", 12)


def test_the_commands_in_the_guide_compose():
    guide = (Path(__file__).parents[2] / "docs/guide/trackers.md").read_text(encoding="utf-8")
    lines = re.findall(r"^fedpriv train (.*)$", guide, re.MULTILINE)
    assert len(lines) == 4
    for words in map(shlex.split, lines[:3]):
        trackers = fedpriv.compose([w for w in words if w.startswith("tracker")]).tracker
        assert "csv" in trackers


def test_a_tracker_that_is_none_is_one_sentence(command):
    said = command(
        "train", *SMALL, "+tracker.x={_target_: fedpriv.models.Logistic, seed: 0}", "dry_run=true"
    )
    assert "tracker needs a class that extends fedpriv.trackers.base.Tracker" in said.sentence
