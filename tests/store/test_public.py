"""The folder ``public/`` holds listed keys and fedpriv's own texts, whatever a part of the user's own has."""

from __future__ import annotations

import json

import pytest
import yaml

from fedpriv.common.groups import GROUPS, conf_dir
from fedpriv.store.public import _KEYS, _public_part

SECRET = "api-key-0815"
PARTS = f'''
import torch
from fedpriv.data.digits import Digits
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.accountants import RdpAccountant


class Mine:
    name, train_records, input_shape, classes = "mine", 1437, (1, 8, 8), 10
    caveats = ("{SECRET}: a text of the data set.",)

    def read(self):
        data = Digits().load()
        return [*zip(data.train.inputs, data.train.targets), *zip(data.test.inputs, data.test.targets)]

    def encode(self, rows):
        return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


class Clip(ConstantClipper):
    caveat = "{SECRET} of the clipper."

    def __init__(self, clip_norm, api_key):
        super().__init__(clip_norm=clip_norm)


class Counts(RdpAccountant):
    def describe(self):
        return "{SECRET} of the accountant"
'''
MINE = (
    "partition=iid",
    "dataset._target_=own.Mine",
    "~dataset.normalize",
    "~dataset.validation_records",
)
WITHHELD = {
    "author_key", "download", "excluded_authors", "file", "path", "public_split", "search", "seed",
    "split_key", "split_seed", "test_path", "test_split", "text_key", "train_split", "validation_path",
    "vocabulary_file", "vocabulary_words",
}  # fmt: skip
"""Keys that are not published, beside those of attacks and trackers: paths, seeds, names of people."""


@pytest.fixture
def published(command, tmp_path, monkeypatch):
    """(overrides) → the files of ``public/`` by name, of a run with parts of the user's own."""
    module = "published_" + "".join(c for c in tmp_path.name if c.isalnum())
    (tmp_path / f"{module}.py").write_text(PARTS)
    monkeypatch.setattr("fedpriv.experiment.run.refuse_without_stamp", lambda *_: None)

    def run(*overrides):
        given = (text.replace("own.", f"{module}.") for text in overrides)
        said = command(
            "train", "algorithm=dp_fl", "rounds=1", "epsilon=null", "publish=true",
            "runtime.plots=false", "runtime.run_dir=run", *given,
        )  # fmt: skip
        assert said.status == 0, said.err
        texts = {p.name: p for p in (tmp_path / "run" / "public").iterdir()}
        return {name: path.read_text() for name, path in texts.items() if name != "model.pt"}

    return run


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "overrides",
    [
        MINE,
        ("clipper._target_=own.Clip", f"+clipper.api_key={SECRET}"),
        ("accountant._target_=own.Counts",),
        (*MINE, "features=hog"),
    ],
)
def test_nothing_that_a_part_of_ones_own_is_given_or_says_is_public(overrides, published, tmp_path):
    files = published(*overrides)
    assert not [name for name, text in files.items() if SECRET in text]
    assert "published_" in files["config.yaml"]  # the class is named
    assert json.loads(files["privacy.json"])["caveats"]


def test_no_path_is_public(published, tmp_path):
    for name in ("train", "test"):
        rows = "".join(f"{i % 9},{i % 2}\n" for i in range(80))
        (tmp_path / f"{name}.csv").write_text("x,y\n" + rows)
    files = published(
        "dataset=csv", f"dataset.path={tmp_path}/train.csv", f"dataset.test_path={tmp_path}/test.csv",
        "dataset.label=y", "dataset.labels=[0,1]", "dataset.ranges={x: [0, 8]}", "partition.clients=2",
        "delta=1e-3", "noise_schedule.noise_multiplier=2",
    )  # fmt: skip
    assert not [name for name, text in files.items() if str(tmp_path) in text]
    assert yaml.safe_load(files["config.yaml"])["dataset"]["ranges"] == {"x": [0, 8]}


def test_a_nested_part_of_ones_own_keeps_its_class_alone():
    nested = {"_target_": "fedpriv.x", "before": [{"_target_": "my.X", "noise": 1}], "seed": 2}
    assert _public_part(nested) == {"_target_": "fedpriv.x", "before": [{"_target_": "my.X"}]}


def test_every_key_of_the_options_is_listed_or_withheld():
    """A new key is decided upon: whoever adds it says whether it may be published."""
    keys = set()

    def collect(node):
        for key, value in node.items():
            keys.add(key)
            if isinstance(value, dict) and key not in ("scale", "search"):
                collect(value)

    for group in set(GROUPS) - {"attack", "tracker"}:
        for path in (conf_dir() / group).rglob("*.yaml"):
            content = yaml.safe_load(path.read_text()) or {}
            collect(content.get(group) or {k: v for k, v in content.items() if k != "defaults"})
    for path in (conf_dir() / "keys").rglob("*.yaml"):
        collect(yaml.safe_load(path.read_text()))
    others = {"_target_", "_option_", "aggregation", "budget_view", "noise_schedule", "protocol"}
    assert keys - set(_KEYS.split()) - WITHHELD - others == set()
