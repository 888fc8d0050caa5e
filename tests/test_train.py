"""``fedpriv train``: options of the user's own, sweeps, and the same run from a notebook."""

from __future__ import annotations

import shlex
import statistics

import pandas as pd
import pytest

import fedpriv
from fedpriv.experiment.interrupts import Interrupts

CLIPPER = """
from fedpriv.privacy.clippers import Clipper

class Halving(Clipper):
    def __init__(self, first: float):
        self.first = first

    def clip_norm(self, round_index, holders):
        import torch
        return torch.full(holders.shape, self.first / 2**round_index)
"""


@pytest.fixture
def own(tmp_path):
    """A clipper of the user's own: one file and one YAML."""
    (tmp_path / "halving_clipper.py").write_text(CLIPPER)
    (tmp_path / "mine" / "clipper").mkdir(parents=True)
    (tmp_path / "mine" / "clipper" / "halving.yaml").write_text(
        "# half the clip norm every round\n_target_: halving_clipper.Halving\nfirst: 4.0\n"
    )


def test_a_clipper_of_the_users_own_needs_one_file_and_one_yaml(own, command, tmp_path):
    said = command(
        "train", "--config-dir", "mine", "clipper=halving", "clipper.first=2", "algorithm=dp_fl",
        "rounds=3", "runtime.run_dir=run", "runtime.plots=false", "runtime.progress=none",
    )  # fmt: skip
    assert (said.status, said.err) == (0, "")
    metrics = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert metrics["clip_norm"].tolist() == [2.0, 1.0, 0.5]


def test_a_run_with_an_option_of_the_users_own_can_be_resumed(own, command, tmp_path):
    settings = ("--config-dir", "mine", "clipper=halving", "algorithm=dp_fl", "rounds=3")
    quiet = ("runtime.plots=false", "runtime.progress=none")
    command("train", *settings, *quiet, "runtime.run_dir=run")
    for path in (tmp_path / "run").iterdir():  # as if killed before the first checkpoint
        if path.is_file() and path.name not in ("config.yaml", "environment.json"):
            path.unlink()
    said = command("train", "--config-dir", "mine", "resume=run", *quiet)
    assert (said.status, said.err) == (0, "")


def test_the_command_that_continues_a_run_names_the_users_yamls(own, command, monkeypatch):
    looks = iter([False, True])
    given = ("--config-dir", "mine", "clipper=halving", "algorithm=dp_fl", "rounds=3")
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "requested", property(lambda self: next(looks)))
        said = command("train", *given, "runtime.plots=false", "runtime.run_dir=a run")
    assert said.status == 130
    words = shlex.split(said.sentence.partition("continue with fedpriv ")[2])
    assert words[:4] == ["train", "resume='a run'", "--config-dir", "mine"]
    again = command(*words, "runtime.plots=false")
    assert (again.status, again.err) == (0, "")


MISSING = """
from fedpriv.data.digits import Digits

class Mine(Digits):
    name = "mine"

    def __init__(self, file):
        self.file = file
        super().__init__()

    def load(self):
        open(self.file)

class Counted(Mine):
    def __init__(self, file):
        self.file, self.validation_records = file, 100

    @property
    def train_records(self):
        return len(open(self.file).readlines())
"""


@pytest.mark.parametrize("kind", ["Mine", "Counted"])
def test_a_data_set_of_the_users_own_without_its_file_is_one_sentence(kind, command, tmp_path):
    (tmp_path / "missing_data.py").write_text(MISSING)
    (tmp_path / "mine" / "dataset").mkdir(parents=True)
    (tmp_path / "mine" / "dataset" / "mine.yaml").write_text(
        f"# @package _global_\ndataset:\n  _target_: missing_data.{kind}\n  file: nowhere.csv\n"
    )
    said = command("train", "--config-dir", "mine", "dataset=mine", "algorithm=dp_fl")
    assert said.status == 2
    assert said.sentence == (
        "fedpriv: dataset mine: cannot read nowhere.csv: No such file or directory"
    )


RUN = ("train", "algorithm=dp_fl", "rounds=1", "runtime.plots=false", "runtime.progress=none")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["hydra.run.dir=a"], "hydra.run.dir must be left out"),
        (["hydra.job.chdir=true"], "hydra.job.chdir must be false"),
        (["-m", "seed=0,1", "hydra.job.chdir=true"], "hydra.job.chdir must be false"),
        (["hydra.job.name=mine"], "runtime.run_dir names the run folder"),
        (["-m", "seed=0,1", "hydra.job.name=mine"], "hydra.sweep.dir that of a sweep"),
    ],
)
def test_what_hydra_is_told_and_fedpriv_does_not_follow_is_refused(
    given, wanted, command, tmp_path
):
    said = command(*RUN, *given)
    assert said.status == 2
    assert wanted in said.sentence
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            [
                "algorithm=dp_fl",
                "algorithm=fedavg",
                "clipper=none",
                "noise_schedule=none",
                "epsilon=null",
            ],
            "note: algorithm=dp_fl and algorithm=fedavg are both given; the last one counts",
        ),
        (
            ["algorithm=dp_fl", "rounds=5", "rounds=6"],
            "rounds=5 and rounds=6 are both given; the last one counts",
        ),
        (["-m", "seed=0,1", "seed=2"], "seed=0,1 and seed=2 are both given"),
    ],
)
def test_of_a_key_that_is_given_twice_the_last_value_counts_and_is_told(given, wanted, command):
    said = command("train", "dry_run=true", *given, verbatim=True)
    assert said.status == 0
    assert wanted in said.err


def test_the_folder_of_a_run_is_not_that_of_a_sweep(command, tmp_path):
    assert command(*RUN, "runtime.run_dir=done").status == 0
    said = command(*RUN, "-m", "seed=0,1", "hydra.sweep.dir=done")
    assert said.status == 2
    assert "hydra.sweep.dir must be a folder without a run of its own, got done" in said.sentence
    assert not (tmp_path / "done" / "0").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("more", [[], ["hydra/sweeper=search", "hydra.sweeper.epsilon=1"]])
@pytest.mark.parametrize("folder", ["n.csv", "n.csv/inside"])
def test_a_file_is_not_the_folder_of_a_sweep(folder, more, command, tmp_path):
    (tmp_path / "n.csv").write_text("a,b\n")
    said = command(*RUN, "-m", "seed=0,1", f"hydra.sweep.dir={folder}", *more)
    assert said.status == 2
    assert f"hydra.sweep.dir must be a folder, got {folder}; n.csv is a file" in said.sentence


def test_a_sweep_folder_that_cannot_be_made_is_named_with_its_key(command):
    said = command(*RUN, "-m", "seed=0,1", "hydra.sweep.dir=/proc/nowhere")
    assert said.status == 2
    assert "hydra.sweep.dir must be a folder that can be written" in said.sentence


def test_a_run_folder_that_cannot_be_made_is_named_with_its_key(command):
    said = command(*RUN, "runtime.run_dir=/proc/nowhere")
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: runtime.run_dir must be a folder")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "given", [["rounds=5", "rounds=5"], ["-m", "seed=0,1"], ["~delta", "+delta=1e-5"]]
)
def test_a_key_that_is_given_twice_with_one_value_or_deleted_first_is_not(given, command):
    said = command("train", "dry_run=true", "algorithm=dp_fl", *given, verbatim=True)
    assert (said.status, said.err) == (0, "")


@pytest.mark.parametrize("where", [0, 1, 2])
def test_flags_may_stand_anywhere_among_the_overrides(where, own, command):
    arguments = ["clipper=halving", "algorithm=dp_fl"]
    arguments[where:where] = ["--config-dir", "mine"]
    said = command("train", "dry_run=true", *arguments)
    assert (said.status, said.err) == (0, "")


SWEEP = (
    "train",
    "-m",
    "algorithm=dp_fl",
    "rounds=2",
    "runtime.progress=none",
    "runtime.plots=false",
)


def sweep_folder(tmp_path):
    (folder,) = (tmp_path / "outputs" / "multirun").iterdir()
    return folder


@pytest.mark.thorough
def test_the_line_of_a_job_begins_with_what_sets_it_apart(command):
    said = command(*SWEEP, "noise_schedule.noise_multiplier=8,12", "runtime.progress=lines")
    begins = [line.partition(": ")[0] for line in said.out.splitlines() if "stopped by" in line]
    assert begins == [f"noise_schedule.noise_multiplier={z}" for z in (8, 12)]


def test_a_sweep_goes_on_after_a_job_that_fails(command, tmp_path):
    said = command(*SWEEP, "algorithm.learning_rate=1e38,0.1,0.2")
    table = pd.read_csv(sweep_folder(tmp_path) / "sweep.csv")
    assert said.status == 1
    assert table["stop_reason"].tolist() == ["rounds", "rounds", "diverged"]
    assert "diverged in round" in said.err
    assert "Traceback" not in said.err


@pytest.mark.thorough
def test_a_job_of_a_sweep_is_the_run_alone(command, tmp_path, train):
    command(*SWEEP, "seed=3,4")
    alone = train("algorithm=dp_fl", "rounds=2", "seed=4").summary
    table = pd.read_csv(sweep_folder(tmp_path) / "sweep.csv")
    swept = table[table["seed"] == 4].iloc[0]
    assert swept["test_accuracy"] == alone["test_accuracy"]
    assert swept["epsilon"] == alone["epsilon"]


def test_a_notebook_composes_runs_and_reads_the_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = fedpriv.compose(["algorithm=dp_fl", "dataset=digits", "rounds=3"])
    config.runtime.plots = False
    result = fedpriv.run(config)
    assert result.stop_reason == "rounds"
    assert 0 <= result.summary["test_accuracy"] <= 1
    assert result.privacy["epsilon_sound"] <= 2
    assert result.folder.parent.name == "outputs"


def test_a_notebook_can_compose_again_and_again():
    seeds = [fedpriv.compose([f"seed={n}"]).seed for n in range(3)]
    assert seeds == [0, 1, 2]


def test_a_run_does_not_change_the_configuration_it_is_given(train):
    config = fedpriv.compose(["rounds=1", "dry_run=true"])
    before = config.copy()
    fedpriv.run(config)
    assert config == before


def test_a_run_from_a_notebook_equals_the_command(command, train, tmp_path):
    command(
        "train",
        "rounds=4",
        "runtime.run_dir=command",
        "runtime.plots=false",
        "runtime.progress=none",
    )
    train("rounds=4", name="notebook")
    tables = [
        pd.read_csv(tmp_path / name / "metrics.csv").drop(columns="seconds")
        for name in ("command", "notebook")
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


@pytest.mark.thorough
@pytest.mark.quick
def test_the_default_run_is_accurate_and_private(train):
    """The first thing anyone sees: median over three seeds, and every client within its budget."""
    results = [train(f"seed={seed}", name=str(seed)) for seed in range(3)]
    assert statistics.median(r.summary["test_accuracy"] for r in results) >= 0.80
    for result in results:
        assert result.stop_reason == "budget"
        assert result.privacy["private"]
        assert result.privacy["spread"]["epsilon_sound"]["highest"] <= 2.0
        assert result.summary["delta"] == 1e-5


@pytest.mark.thorough
def test_a_sweep_over_a_budget_keeps_its_values_apart(command):
    """epsilon is also the name of a result: what was asked for must not be lost in it."""
    said = command(
        "train",
        "-m",
        "algorithm=dp_fl",
        "epsilon=1,2",
        "rounds=2",
        "seed=0,1",
        "runtime.plots=false",
    )
    rows = [line for line in said.out.splitlines() if line.startswith("│") and "0 1" in line]
    assert len(rows) == 2
