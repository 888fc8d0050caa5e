"""Bad input ends before the first round, with one sentence that names key, value and what is allowed."""

from __future__ import annotations

import pytest
import torch

QUIET = ("runtime.progress=none", "runtime.plots=false", "rounds=1")
CONSTANT = ("algorithm=dp_fl", "clipper=constant", "noise_schedule=constant")

VALUES = {
    "epsilon=0": "epsilon must be > 0, got 0",
    "epsilon=-1": "epsilon must be > 0, got -1",
    "epsilon=nan": "epsilon must be finite, > 0, got nan",
    "epsilon=abc": "epsilon must be a number > 0, got abc",
    "delta=0": "delta must be > 0 and < 1, got 0",
    "delta=1": "delta must be > 0 and < 1, got 1",
    "delta=null": "delta must be a number > 0 and < 1, got null",
    "rounds=0": "rounds must be a whole number >= 1, got 0",
    "rounds=2.5": "rounds must be a whole number >= 1, got 2.5",
    "seed=-1": "seed must be a whole number >= 0",
    "evaluation_interval=0": "evaluation_interval must be a whole number >= 1, got 0",
    "budget_view=loud": "budget_view must be one of sound, published, got loud",
    "publish=maybe": "publish must be true or false, got maybe",
    "dry_run=perhaps": "dry_run must be true or false, got perhaps",
    "algorithm.sample_rate=0": "algorithm.sample_rate must be > 0 and <= 1, got 0",
    "algorithm.sample_rate=1.5": "algorithm.sample_rate must be > 0 and <= 1, got 1.5",
    "algorithm.learning_rate=0": "algorithm.learning_rate must be > 0, got 0",
    "algorithm.optimizer=lion": "algorithm.optimizer must be one of adam, sgd, got lion",
    "algorithm.local_steps=0": "algorithm.local_steps must be a whole number >= 1, got 0",
    "runtime.engine=warp": "runtime.engine must be one of auto, fast, opacus, got warp",
    "runtime.threads=0": "runtime.threads must be a whole number >= 1, got 0",
    "runtime.device=tpu": "runtime.device must be auto, cpu, cuda or cuda:N, got tpu",
    "accountant.orders=1..64": "accountant.orders must be wide, a range such as 2..64",
    "accountant.conversion=magic": "accountant.conversion must be one of classical, improved",
    "partition.clients=0": "partition.clients must be a whole number >= 1, got 0",
    "partition.clients=7": "partition.clients must be a divisor of partition.shards = 40 (1, 2, 4, 5, 8, ",
    "dataset.validation_records=0": "dataset.validation_records must be a whole number >= 1",
    "dataset.validation_records=1436": "dataset.validation_records must be <= 1427",
    "dataset.normalize=maybe": "dataset.normalize must be true or false, got maybe",
    "clipper.target_quantile=1": "clipper.target_quantile must be > 0 and < 1, got 1",
    "clipper.alpha=-1": "clipper.alpha must be > 0, got -1",
    "clipper.reading=loud": "clipper.reading must be one of sound, scalar, vector, unclipped",
    "clipper.initial_clip_norm=0": "clipper.initial_clip_norm must be > 0",
    "noise_schedule.beta=0": "noise_schedule.beta must be > 0 and <= 1, got 0",
    "noise_schedule.beta=1.01": "noise_schedule.beta must be > 0 and <= 1, got 1.01",
    "noise_schedule.noise_multiplier=0": "noise_schedule.noise_multiplier must be > 0",
    "noise_schedule.noise_multiplier=-2": "noise_schedule.noise_multiplier must be > 0",
    "noise_schedule.decay_index=eq10": "noise_schedule.decay_index must be one of eq9, algorithm1",
}


MEANT = {
    "lr=0.1": "unknown key lr; did you mean algorithm.learning_rate?",
    "algorithm.lr=0.1": "unknown key algorithm.lr; did you mean algorithm.learning_rate?",
    "learning_rate=0.1": "unknown key learning_rate; did you mean algorithm.learning_rate?",
    "sigma=3": "unknown key sigma; did you mean noise_schedule.noise_multiplier?",
    "noise_multiplier=3": "unknown key noise_multiplier; did you mean noise_schedule.noise_multiplier?",
    "C=1": "unknown key C; did you mean clipper.initial_clip_norm?",
    "clip_norm=1": "unknown key clip_norm; did you mean clipper.initial_clip_norm?",
    "eps=1": "unknown key eps; did you mean epsilon?",
    "num_clients=5": "unknown key num_clients; did you mean partition.clients?",
    "hydra.sweepdir=x": "unknown key hydra.sweepdir",
    "model=my.Net": "unknown model option my.Net (known: cnn, ",
    "protocol=nope": "unknown protocol nope (52 are known: fedpriv list protocol)",
    "model._target_=os.system": "model: Target 'os.system' is blocklisted",
    "model._target_=shutil.rmtree": "model: Target 'shutil.rmtree' is blocklisted",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("key", ["runtime.checkpoint_interval", "delta"])
@pytest.mark.parametrize("more", [(), ("audit=membership",)], ids=["alone", "with an audit"])
def test_a_key_that_was_deleted_is_named(key, more, command):
    said = command("train", f"~{key}", *more)
    assert said.status == 2
    assert said.sentence == f"fedpriv: {key} was deleted (~), and every run needs it"


def refuse(command, *overrides: str, program: str = "train") -> str:
    """The sentence with which the command refuses these overrides; it leaves no run behind."""
    said = command(program, *QUIET, *overrides)
    assert said.status == 2, said
    return said.sentence.removeprefix("fedpriv: ")


@pytest.mark.few(3)
@pytest.mark.parametrize("override", VALUES)
def test_a_value_that_is_not_allowed_is_named_with_what_is(override, command, tmp_path):
    assert refuse(command, override).startswith(VALUES[override])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [0, -1])
def test_a_clip_norm_must_be_positive(value, command):
    sentence = refuse(command, *CONSTANT, f"clipper.clip_norm={value}")
    assert sentence.startswith("clipper.clip_norm must be > 0")
    assert sentence.endswith(f"got {value}")


@pytest.mark.few(1)
@pytest.mark.parametrize("schedule", ["constant", "validation_decay", "exponential", "step"])
def test_noise_of_zero_points_to_the_option_without_noise(schedule, command):
    sentence = refuse(command, f"noise_schedule={schedule}", "noise_schedule.noise_multiplier=0")
    assert "noise_schedule=none" in sentence


def test_more_shards_than_records_are_refused(command):
    sentence = refuse(command, "partition=shards400", "partition.shards=2000")
    assert sentence.startswith("partition.shards must be <= 1237")
    assert sentence.endswith("got 2000")


@pytest.mark.few(1)
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shards"])
def test_clients_without_records_are_refused(partition, command):
    sentence = refuse(command, f"partition={partition}", "partition.clients=5000")
    assert sentence.startswith("partition.clients must be <= 1237")


def test_a_partition_that_finds_no_division_is_refused(command):
    sentence = refuse(
        command, "partition=dirichlet", "partition.alpha=0.001", "partition.min_records=100"
    )
    assert "partition.min_records" in sentence


def test_a_data_set_without_makers_has_no_natural_partition(command):
    assert "partition" in refuse(command, "partition=natural")


@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("clipper=constnt", "constant"),
        ("dataset=minst", "mnist"),
        ("algorithm=dpfl", "dp_fl"),
        ("noise_schedule=exponentail", "exponential"),
        ("model=cmn", "cnn"),
        ("+experiment=adap_dpfl/published_mnits", "adap_dpfl/published_mnist"),
    ],
)
def test_an_unknown_option_comes_with_the_nearest_name(override, near, command):
    sentence = refuse(command, override)
    assert f"did you mean {near}?" in sentence
    assert override.partition("=")[2].rpartition("/")[2] in sentence


def test_a_number_is_no_option(command):
    assert refuse(command, "clipper=2").startswith("unknown clipper option 2 (known: adap, ")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("epsilom=1", "epsilon"),
        ("algorithm.learning_rat=1", "algorithm.learning_rate"),
        ("clipper.target_quantil=0.5", "clipper.target_quantile"),
        ("clper=constant", "clipper"),
        ("runtime.devise=cpu", "runtime.device"),
        ("+epsilom=1", "epsilon"),
        ("+runtime.devise=cpu", "runtime.device"),
    ],
)
def test_an_unknown_key_comes_with_the_nearest_name(override, near, command):
    sentence = refuse(command, override)
    assert f"did you mean {near}?" in sentence


def test_a_key_of_another_option_is_refused_with_those_of_this_one(command):
    sentence = refuse(command, *CONSTANT, "clipper.target_quantile=0.5")
    assert "clipper has: clip_norm" in sentence


@pytest.mark.parametrize("key", ["clipper.colour", "+clipper.colour"])
def test_a_key_that_no_part_takes_is_refused_with_those_that_it_takes(key, command):
    sentence = refuse(command, *CONSTANT, f"{key}=red")
    assert sentence == "unknown key clipper.colour (clipper has: clip_norm)"


def test_an_added_key_comes_with_the_nearest_of_its_group(command):
    sentence = refuse(command, *CONSTANT, "+clipper.clip_nrm=1")
    assert sentence.startswith("unknown key clipper.clip_nrm; did you mean clipper.clip_norm?")


def test_a_key_that_another_group_has_comes_with_that_group(command):
    sentence = refuse(command, *CONSTANT, "clipper.learning_rate=1")
    assert "did you mean algorithm.learning_rate?" in sentence


@pytest.mark.parametrize("override", ["=3", "+=3"])
def test_an_override_that_cannot_be_read_is_quoted(override, command):
    assert f"cannot read the override {override};" in refuse(command, override)


def test_missing_data_say_what_to_put_where(command, tmp_path):
    (tmp_path / "empty").mkdir()
    sentence = refuse(
        command, "dataset=mnist", f"dataset.path={tmp_path / 'empty'}", "dataset.download=false"
    )
    assert str(tmp_path / "empty") in sentence
    assert "train-images-idx3-ubyte" in sentence


def test_missing_data_are_looked_for_where_the_environment_says(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "elsewhere"))
    assert "elsewhere" in refuse(command, "dataset=mnist", "dataset.download=false")


def test_a_corrupted_data_file_is_named(command, tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for kind in ("train", "t10k"):
        for name in ("images-idx3", "labels-idx1"):
            (raw / f"{kind}-{name}-ubyte").write_bytes(b"not the images")
    sentence = refuse(command, "dataset=mnist", f"dataset.path={tmp_path}")
    assert "train-images-idx3-ubyte" in sentence


def test_an_output_folder_that_cannot_be_made_is_named(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    sentence = refuse(command, "runtime.output_dir=file/outputs")
    assert sentence.startswith("runtime.output_dir must be a folder that can be written")


def test_a_run_folder_that_cannot_be_made_is_named(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "file/run" in refuse(command, "runtime.run_dir=file/run")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_that_is_absent_is_refused(device, command):
    sentence = refuse(command, f"runtime.device={device}")
    assert sentence.startswith("runtime.device must be one that is present")
    assert sentence.endswith(f"got {device}")


def test_a_budget_too_small_for_a_round_says_how_large_it_must_be(command, tmp_path):
    sentence = refuse(command, "algorithm=dp_fl", "epsilon=0.1")
    assert sentence.startswith("epsilon must be >= 0.")
    assert "got 0.1; a larger noise_schedule.noise_multiplier" in sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.few(6)
@pytest.mark.parametrize("override", MEANT)
def test_what_was_meant_is_said(override, command):
    assert refuse(command, override).startswith(MEANT[override])


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["audit", "seed", "runtime.stop_file", "++tracker.mlflow"])
def test_a_reference_to_a_key_that_is_not_there_is_one_sentence(key, command):
    sentence = refuse(command, f"{key}=${{nowhere}}", "dry_run=true")
    assert "'nowhere'" in sentence
