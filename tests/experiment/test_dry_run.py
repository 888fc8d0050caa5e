"""A dry run ends as the run would: the same status and the same sentence, and it leaves nothing behind."""

from __future__ import annotations

import hydra.utils
import numpy as np
import pytest

import fedpriv
from fedpriv.common.files import locked
from fedpriv.common.groups import options
from fedpriv.data.federated import ClientSizes
from fedpriv.data.mnist import Mnist
from fedpriv.experiment import preflight

RUN = ("train", "runtime.plots=false", "runtime.progress=none")
OWN_DATA = """
from fedpriv.data.digits import Digits

class Absent(Digits):
    name = "absent"

    def load(self):
        open("nowhere.csv")
"""


@pytest.fixture
def both(command, tmp_path):
    """(overrides) → (status, sentence) of a dry run, and of the run."""

    def outcomes(*overrides: str):
        dry = command(*RUN, *overrides, "dry_run=true")
        left = sorted(path.name for path in tmp_path.rglob("*") if path.name == "outputs")
        made = command(*RUN, *overrides)
        return (dry.status, dry.err), (made.status, made.err), left

    return outcomes


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "overrides",
    [
        ["epsilon=0.01"],
        ["algorithm=dp_fl", "noise_schedule=none"],
        ["partition=fixed_size", "partition.records=300"],
        ["runtime.device=abc"],
        ["tracker=mlflow"],
        ["dataset=mnist", "dataset.path=nowhere"],
        ["runtime.output_dir=/proc/nowhere"],
        ["runtime.run_dir=file/run"],
        ["resume=nowhere"],
        ["algorithm=fedavg", "attack=pixel_pattern", "attack.attackers=11"],
        [
            "algorithm=wei_cdp",
            "algorithm.sensitivity=update",
            "algorithm.records=300",
            "partition=iid",
        ],
        ["algorithm=dp_fl", "algorithm.sampling=fixed_size", "epsilon=0.05"],
    ],
    ids=lambda given: " ".join(given)[:60],
)
def test_a_dry_run_refuses_what_the_run_refuses(overrides, both, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    dry, made, left = both(*overrides)
    assert dry == made
    assert dry[0] == 2
    assert len(dry[1].splitlines()) == 1
    assert not left


def test_a_run_folder_that_holds_a_run_is_refused_by_a_dry_run(command, both):
    given = ("algorithm=dp_fl", "rounds=1", "runtime.run_dir=made")
    assert command(*RUN, *given).status == 0
    dry, made, _ = both(*given)
    assert dry == made
    assert "runtime.run_dir must be a folder without a run" in dry[1]
    assert both(*given, "runtime.reuse=true")[0] == (0, "")
    dry, made, _ = both(*given, "runtime.reuse=true", "seed=1")
    assert dry == made
    assert dry[0] == 2


def test_a_checkpoint_that_cannot_be_read_is_refused_by_a_dry_run(command, both, tmp_path):
    given = ("algorithm=dp_fl", "rounds=1", "runtime.run_dir=made")
    assert command(*RUN, *given).status == 0
    (tmp_path / "made" / "checkpoint.pt").write_bytes(b"damaged")
    dry, made, _ = both("resume=made")
    assert dry == made
    assert dry[0] == 2
    assert "checkpoint.pt cannot be read" in dry[1]


def test_a_run_that_goes_on_elsewhere_is_refused_by_a_dry_run(command, both, tmp_path):
    given = ("algorithm=dp_fl", "rounds=1", "runtime.run_dir=made")
    assert command(*RUN, *given).status == 0
    with locked(tmp_path / "made"):
        dry, made, _ = both("resume=made")
    assert dry == made
    assert "made is being run by another process" in dry[1]


@pytest.mark.parametrize("files_say", [1, 3])
def test_clients_that_only_the_files_tell_are_counted(files_say, command, monkeypatch):
    sizes = ClientSizes(np.full(files_say, 100))
    monkeypatch.setattr(preflight, "_sizes", lambda *given: sizes)
    sampled = ("algorithm.participation=sampled", "algorithm.clients_per_round=2")
    said = command(*RUN, "algorithm=dp_fl", "partition=natural", *sampled, "dry_run=true")
    assert said.status == (2 if files_say == 1 else 0)
    assert ("algorithm.clients_per_round must be <= 1" in said.err) == (files_say == 1)


def test_a_dry_run_tells_how_many_records_a_table_has(command, tmp_path):
    rows = "".join(f"{i % 2},{i},{i % 4}\n" for i in range(200))
    (tmp_path / "own.csv").write_text(f"y,x,who\n{rows}")
    own = (
        "dataset=csv",
        "dataset.path=own.csv",
        "dataset.label=y",
        "dataset.client=who",
        "rounds=2",
        "dataset.ranges=[0,200]",
        "partition=natural",
        "algorithm=dp_fl",
        "dry_run=true",
        "dataset.labels=[0,1]",
    )
    said = command("train", *own)
    line = said.out.splitlines()[-1]
    numbers = [int(word.rstrip(";")) for word in line.split() if word.rstrip(";").isdigit()]
    assert line.startswith("data: ")
    assert numbers[0] + numbers[-1] == 200
    assert numbers[-2] == 4
    secret = command("train", *own, "publish=true")
    assert (secret.status, "data: " in secret.out) == (0, False), secret.err
    declared = command("train", *own, "publish=true", "dataset.records=160").out
    assert declared.splitlines()[-1] == "data: 160 training records, 40 for each of 4 clients"


def test_a_dry_run_of_a_users_data_set_looks_for_its_file(both, tmp_path):
    (tmp_path / "absent_data.py").write_text(OWN_DATA)
    dry, made, _ = both("dataset._target_=absent_data.Absent", "algorithm=dp_fl")
    assert dry == made
    assert "dataset absent: cannot read nowhere.csv" in dry[1]


def test_a_dry_run_finds_files_of_a_data_set_that_are_damaged(both, tmp_path):
    (tmp_path / "data" / "MNIST" / "raw").mkdir(parents=True)
    for file in Mnist.files:
        (tmp_path / "data" / file.path).write_bytes(b"damaged")
    dry, made, _ = both("dataset=mnist", "dataset.path=data", "partition=iid", "algorithm=dp_fl")
    assert dry == made
    assert dry[0] == 2
    assert Mnist.files[0].path in dry[1]


@pytest.mark.few(4)
@pytest.mark.parametrize("dataset", [name for name, _ in options("dataset")])
def test_the_default_of_fixed_size_fits_every_data_set_of_known_size(dataset):
    config = fedpriv.compose([f"dataset={dataset}", "partition=fixed_size", "algorithm=dp_fl"])
    records = getattr(hydra.utils.get_class(config.dataset._target_), "train_records", None)
    wanted = 128
    if isinstance(records, int) and records:  # else the files tell
        wanted = min(128, (records - config.dataset.validation_records) // 50)
    assert (config.partition.clients, config.partition.records) == (50, wanted)
