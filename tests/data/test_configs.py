"""The YAML of the groups dataset and partition against the classes they name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf

from fedpriv.data.catalogue import DATASETS
from fedpriv.data.own_table import OwnTable
from fedpriv.experiment.instantiate import instantiate

CONF = Path(__file__).parents[2] / "conf"
DATASET_FILES = sorted((CONF / "dataset").glob("*.yaml"))
PARTITION_FILES = sorted((CONF / "partition").glob("*.yaml"))
MAIN = f"""
hydra:
  searchpath: ["file://{CONF}"]
defaults:
  - _self_
  - model: cnn
  - partition: iid
  - dataset: digits
seed: 3
"""


def keys_of(file: Path) -> dict:
    """The keys of an option, without its defaults list; ``_global_`` options nest them."""
    config = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    config.pop("defaults", None)
    return config.get(file.parent.name, config)


def composed(folder: Path, *overrides: str):
    """A main config as the real one orders it, with stand-ins for the models."""
    (folder / "model").mkdir()
    for model in ("cnn", "cnn_emnist", "logistic", "lstm_classifier", "lstm_lm"):
        (folder / "model" / f"{model}.yaml").write_text(f"kind: {model}\n")
    (folder / "main.yaml").write_text(MAIN)
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose("main", overrides=list(overrides))


@pytest.mark.parametrize("file", DATASET_FILES + PARTITION_FILES, ids=lambda f: f.stem)
def test_the_first_comment_describes_the_option(file):
    lines = file.read_text().splitlines()
    first = next(line for line in lines if not line.startswith("# @package"))
    assert first.startswith("# ")
    assert 10 < len(first) <= 100


def test_every_data_set_has_a_config():
    targets = {f.stem: keys_of(f)["_target_"] for f in DATASET_FILES}
    known = {
        **DATASETS,
        OwnTable.name: OwnTable,
    }  # a table of one's own has no row in the catalogue
    assert {name: get_class(target) for name, target in targets.items()} == known


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("dataset", "partition", "model"),
    [
        ("digits", {"shards": 40}, "logistic"),
        ("mnist", {"shards": 400}, "cnn"),
        ("fashion_mnist", {"shards": 400}, "cnn"),
        ("cifar10", {"alpha": 0.5}, "cnn"),
        ("emnist", {"clients": 10}, "cnn_emnist"),
        ("femnist", {"min_records": 1}, "cnn_emnist"),
        ("adult", {"clients": 10}, "logistic"),
        ("sentiment140", {"min_records": 1}, "lstm_classifier"),
        ("ubuntu_irc", {"min_records": 1}, "lstm_lm"),
        ("reddit", {"min_records": 1}, "lstm_lm"),
        ("shakespeare", {"min_records": 1}, "lstm_lm"),
        ("synthetic", {"clients": 1000}, "logistic"),
        ("synthetic_text", {"clients": 1000}, "lstm_lm"),
    ],
)
def test_a_data_set_brings_its_partition_and_model(tmp_path, dataset, partition, model):
    config = composed(tmp_path, f"dataset={dataset}")
    assert instantiate(config, "dataset").name == dataset
    assert partition.items() <= dict(config.partition).items()
    assert config.model.kind == model


def test_the_command_line_wins_over_what_the_data_set_brings(tmp_path):
    config = composed(tmp_path, "dataset=mnist", "partition=iid", "model=logistic")
    assert config.partition._target_.endswith("Iid")
    assert config.model.kind == "logistic"


@pytest.mark.parametrize("file", PARTITION_FILES, ids=lambda f: f.stem)
def test_a_partition_takes_the_seed_of_the_run_unless_it_has_its_own(tmp_path, file):
    config = composed(tmp_path, f"partition={file.stem}")
    assert instantiate(config, "partition").seed == 3
    config.partition.seed = 0
    assert instantiate(config, "partition").seed == 0
