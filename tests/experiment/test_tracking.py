"""Trackers look on: they change nothing, send what the run folder shows, and may fail."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from noting import NOTES, Notes

import fedpriv
from fedpriv.common.config import fingerprint, identity
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.reporter import Reporter
from fedpriv.experiment.tracking import parameters_of
from fedpriv.experiment.train_arguments import _is_kept

SMALL = ("algorithm=dp_fl", "rounds=10", "evaluation_interval=2", "runtime.checkpoint_interval=4")


class Died(BaseException):
    """Stands for the end of the process: nothing of fedpriv catches it."""


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def noted(place: Path) -> dict:
    return json.loads((place / "notes.json").read_text())


def rounds_of(place: Path, metric: str) -> list[int]:
    return [number for number, values in noted(place)["rounds"] if metric in values]


@pytest.fixture
def own_yamls(tmp_path) -> tuple[str, str]:
    """The flag that makes ``tracker=notes`` an option."""
    yaml = tmp_path / "my_yamls" / "tracker" / "notes.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text("notes:\n  _target_: noting.Notes\n  folder: null\n")
    return "--config-dir", "my_yamls"


def die_in(monkeypatch, number: int) -> None:
    def show(self, row) -> None:
        if row["round"] == number:
            raise Died

    monkeypatch.setattr(Reporter, "show", show)


def test_several_trackers_are_chosen_by_a_list():
    chosen = ["tracker=[wandb,tensorboard]", "tracker.tensorboard.folder=x"]
    assert list(build_parts(fedpriv.compose(chosen)).trackers) == ["wandb", "tensorboard"]


def test_without_a_choice_there_is_none():
    assert fedpriv.compose().tracker is None
    assert build_parts(fedpriv.compose()).trackers == {}


def test_what_a_run_is_does_not_depend_on_its_trackers():
    without, tracked = fedpriv.compose(), fedpriv.compose(["tracker=[tensorboard,wandb,mlflow]"])
    assert identity(without) == identity(tracked)
    assert fingerprint(identity(without)) == fingerprint(identity(tracked))


def test_a_tracked_run_is_the_run_that_is_not(train, assert_same_run, monkeypatch):
    monkeypatch.setattr("fedpriv.experiment.running.is_own", lambda part: False)  # else a caveat
    tracked = train(*SMALL, NOTES, name="tracked").folder
    plain = train(*SMALL, name="plain").folder
    assert_same_run(tracked, plain)
    assert not (plain / "trackers.json").exists()


def test_a_tracker_gets_what_the_metrics_say(train):
    folder = train(*SMALL, NOTES).folder
    shown = noted(folder / "notes")["rounds"]
    assert shown == [
        [
            int(row["round"]),
            {name: float(value) for name, value in row.items() if value and name != "round"},
        ]
        for row in rows(folder / "metrics.csv")
    ]
    assert set(shown[9][1]) >= {
        "epsilon", "epsilon_published", "epsilon_sound", "noise_multiplier", "clip_norm", "test_accuracy",
        "test_loss", "train_loss",
    }  # fmt: skip


def test_a_tracker_gets_parameters_summary_and_statement(train):
    result = train(*SMALL, NOTES)
    notes = noted(result.folder / "notes")
    assert notes["parameters"]["algorithm.name"] == "dp_fl"
    assert notes["parameters"]["rounds"] == 10
    assert notes["summary"]["epsilon_sound"] == result.summary["epsilon_sound"]
    for name in ("privacy.txt", "privacy.json"):
        assert notes["files"][name] == (result.folder / name).read_text()


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
    shown = parameters_of(config)
    assert not {key for key in shown if key.startswith(("runtime", "tracker", "resume"))}
    assert not {"dataset.path", "dataset.api_key", "model.access_token"} & set(shown)
    assert shown["seed"] == 0


def test_an_infinite_epsilon_is_a_text_in_the_summary_and_no_metric(train):
    run = train(*SMALL, NOTES, "noise_schedule=none", "clipper=constant", "epsilon=null")
    assert noted(run.folder / "notes")["summary"]["epsilon_sound"] == "Infinity"
    assert rounds_of(run.folder / "notes", "epsilon_sound") == []


@pytest.mark.few(1)
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

    monkeypatch.setattr(Notes, method, fail)
    result = train(*SMALL, NOTES)
    assert result.summary["rounds"] == 10
    log = (result.folder / "run.log").read_text()
    assert log.count("warning: tracker notes failed and is left out from here on") == 1
    assert "more" not in log
    assert calls.count(method) == (2 if method == "close" else 1)


@pytest.mark.thorough
def test_trackers_that_work_go_on_beside_one_that_fails(train, monkeypatch):
    monkeypatch.setattr(
        "fedpriv.experiment.trackers.TensorBoardTracker.refuse_unusable", lambda self: None
    )
    monkeypatch.setattr("fedpriv.experiment.trackers.TensorBoardTracker.begin", lambda *_: 1 / 0)
    folder = train(*SMALL, "tracker=tensorboard", NOTES).folder
    assert rounds_of(folder / "notes", "epsilon") == list(range(1, 11))


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["inside", "elsewhere"])
def test_a_run_that_died_goes_on_in_the_same_place_without_a_round_twice(
    where, train, tmp_path, monkeypatch
):
    tracker = [NOTES]
    if where == "elsewhere":
        tracker.append(f"+tracker.notes.folder={tmp_path / 'shown'}")
        (tmp_path / "shown" / "died").mkdir(parents=True)  # of another run
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            train(*SMALL, *tracker, name="died")
    place = tmp_path / ("died/notes" if where == "inside" else "shown/died-2")
    assert max(rounds_of(place, "epsilon")) == 6
    folder = train(*SMALL, *tracker, f"resume={tmp_path / 'died'}", name="died").folder
    assert rounds_of(place, "epsilon") == list(range(1, 11))
    whole = noted(train(*SMALL, NOTES, name="whole").folder / "notes")
    again = noted(place)
    for _, values in (*whole["rounds"], *again["rounds"]):
        del values["seconds"]
    assert again["rounds"] == whole["rounds"]
    assert again["parameters"] == whole["parameters"]
    assert json.loads((folder / "trackers.json").read_text()) == {"notes": {"name": place.name}}


@pytest.mark.thorough
def test_a_name_in_a_folder_leads_to_no_other_run_of_the_readers(train, tmp_path, monkeypatch):
    shown = tmp_path / "shown"
    (shown / "mine").mkdir(parents=True)
    (shown / "mine" / "notes.json").write_text('{"rounds": [[9, {"epsilon": 1.0}]]}')
    with monkeypatch.context() as patch:
        die_in(patch, 8)
        with pytest.raises(Died):
            train(*SMALL, name="foreign")
    for name in ("mine", "../shown/mine", str(shown / "mine")):
        (tmp_path / "foreign/trackers.json").write_text(json.dumps({"notes": {"name": name}}))
        copy = Path(shutil.copytree(tmp_path / "foreign", tmp_path / f"f{len(name)}"))
        there = (NOTES, f"+tracker.notes.folder={shown}")
        train(*SMALL, *there, f"resume={copy}", name=copy.name)
        assert noted(shown / "mine") == {"rounds": [[9, {"epsilon": 1.0}]]}


def test_publish_takes_no_tracker():
    with pytest.raises(ConfigError, match="tracker must be none with publish=true or"):
        build_parts(fedpriv.compose(["algorithm=dp_fl", "publish=true", "tracker=wandb"]))


def test_without_diagnostics_no_tracker_tells_how_long_a_round_took():
    with pytest.raises(ConfigError, match=r"runtime.diagnostics=false, got wandb"):
        build_parts(fedpriv.compose([*SMALL, "runtime.diagnostics=false", "tracker=wandb"]))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_package_that_is_missing_is_one_sentence_before_the_run(
    name, command, monkeypatch, tmp_path
):
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    said = command("train", *SMALL, f"tracker={name}", "runtime.run_dir=here")
    assert said.status == 2
    assert f"needs the package {name}, which is not installed" in said.sentence
    assert f"pip install '.[{name}]'" in said.sentence
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
        ("tracker=wandbs", "did you mean wandb?"),
        ("tracker=[wandb,mlfow]", "did you mean mlflow?"),
        ("tracker.wandb.group=x", "unknown key tracker.wandb: this tracker has no keys"),
        ("tracker=wandb tracker.wandb.grup=x", "did you mean tracker.wandb.group?"),
        ("tracker=wandb tracker.wandb.group=3", "tracker.wandb.group must be a text, got 3"),
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


@pytest.mark.thorough
def test_jobs_of_a_sweep_that_differ_in_trackers_alone_are_made_once(command, own_yamls, tmp_path):
    said = command("train", *own_yamls, "-m", "algorithm=dp_fl", "tracker=none,notes", *SWEEP)
    assert said.status == 0, said.err
    jobs = [path for path in (tmp_path / "s").iterdir() if path.is_dir()]
    assert len(jobs) == 2
    assert "4 jobs of the sweep, 2 different runs: each is made once" in said.out + said.err


def test_the_runs_of_a_search_are_not_tracked(train, tmp_path):
    shown = tmp_path / "shown"
    train(
        "algorithm=wei_cdp_optimal", "algorithm.search.rounds=[1,2]", "algorithm.search.seeds=[0]",
        f"runtime.output_dir={tmp_path}", NOTES, f"+tracker.notes.folder={shown}",
        "budget_view=published",
    )  # fmt: skip
    assert [path.name for path in shown.iterdir()] == ["run"]


# ---- whose trackers


@pytest.mark.parametrize(
    "override",
    [
        "tracker=wandb", "+tracker=wandb", "++tracker.wandb.group=there", "tracker.wandb.group=there",
        "tracker/wandb=x", "~tracker", "tracker=[wandb,mlflow]",
    ],
)  # fmt: skip
def test_a_folder_does_not_say_what_tracks_it(override, tmp_path):
    from fedpriv.store.folder import RunFolder

    assert not _is_kept(override, RunFolder(tmp_path))


def test_the_trackers_of_a_folder_are_not_taken_over_unless_the_reader_asks(
    command, own_yamls, tmp_path, monkeypatch
):
    """So nothing is sent to a place that somebody else's folder names."""
    there = (*own_yamls, "tracker=notes", "tracker.notes.folder=there")
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
    assert "was tracked by notes" in (tmp_path / "foreign/run.log").read_text()
    again = command("train", *own_yamls, "resume=again", "tracker=notes")
    assert again.status == 0, again.err
    assert (tmp_path / "again/notes/notes.json").exists()
    assert not (tmp_path / "there").exists()


def test_the_command_to_go_on_asks_for_the_trackers_again():
    from fedpriv.experiment.consent import resume_command

    config = fedpriv.compose(
        ["tracker=[mlflow,wandb]", "tracker.wandb.project=my project", "tracker.wandb.tags=[a,b]"]
    )
    assert resume_command(Path("x"), config) == (
        "fedpriv train resume=x 'tracker=[mlflow,wandb]' "
        + shlex.quote("tracker.wandb.project='my project'")
        + " 'tracker.wandb.tags=[a,b]'"
    )
    assert resume_command(Path("x"), fedpriv.compose()) == "fedpriv train resume=x"
    assert resume_command(Path("x"), fedpriv.compose(["tracker=mlflow"])).endswith(
        "x tracker=mlflow"
    )


@pytest.mark.thorough
def test_an_audit_of_a_tracked_run_tracks_nothing(command, own_yamls, tmp_path):
    there = (*own_yamls, "tracker=notes", "tracker.notes.folder=there", "runtime.plots=false")
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
    said = command("train", *own, *SMALL, "tracker=lines", "runtime.run_dir=run")
    assert said.status == 0, said.err
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("run", "rounds", 12)


def test_the_commands_in_the_guide_compose():
    guide = (Path(__file__).parents[2] / "docs/guide/trackers.md").read_text(encoding="utf-8")
    lines = re.findall(r"^fedpriv train (.*)$", guide, re.MULTILINE)
    assert len(lines) == 4
    for words in map(shlex.split, lines[:3]):
        trackers = fedpriv.compose([w for w in words if w.startswith("tracker")]).tracker
        assert "tensorboard" in trackers


def test_a_tracker_that_is_none_is_one_sentence(command):
    said = command(
        "train", *SMALL, "+tracker.x={_target_: fedpriv.models.Logistic, seed: 0}", "dry_run=true"
    )
    assert "tracker needs a class that extends fedpriv.experiment.tracker.Tracker" in said.sentence
