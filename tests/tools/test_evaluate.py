"""``fedpriv.load`` and ``fedpriv evaluate``: the model of a run on other data, encoded as its own."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import fedpriv

SMALL = ("dataset=digits", "model=logistic", "algorithm=fedavg", "rounds=1")
TABLE = (
    *("dataset=csv", "dataset.label=y", "dataset.ranges={age: [0, 100]}"),
    *("dataset.categories={sex: [f, m]}", "model=logistic", "algorithm=fedavg"),
    *("partition=iid", "partition.clients=2"),
)


@pytest.fixture(scope="module")
def digits(ran):
    return ran(*SMALL)


@pytest.fixture(scope="module")
def table(ran, tmp_path_factory):
    """A run on a table whose label follows from age, and the table."""
    path = tmp_path_factory.mktemp("table") / "people.csv"
    rows = pd.DataFrame({"age": np.arange(100), "sex": ["f", "m"] * 50, "who": range(100)})
    rows["y"] = np.where(rows["age"] > 50, "old", "young")
    rows.to_csv(path, index=False)
    options = ("algorithm.learning_rate=3", "rounds=40", f"dataset.path={path}")
    return ran(*TABLE, *options).folder, rows


def test_the_test_records_give_what_the_run_reported(digits, command):
    said = command("evaluate", str(digits.folder), "--json")
    facts = json.loads(said.out)
    assert facts["accuracy"] == pytest.approx(digits.summary["test_accuracy"])
    assert facts["loss"] == pytest.approx(digits.summary["test_loss"], rel=1e-5)
    right = sum(row["records"] * row["accuracy"] for row in facts["classes"])
    assert right / facts["records"] == pytest.approx(facts["accuracy"])
    assert [row["class"] for row in facts["classes"]] == list(range(10))


def test_the_same_is_printed_as_a_table(digits, command):
    said = command("evaluate", str(digits.folder), "--table", "csv")
    assert said.out.splitlines()[0] == "class,records,accuracy"
    assert len(said.out.splitlines()) == 12
    assert "no ε covers" in said.err


def test_columns_in_another_order_are_encoded_as_the_run_encoded_them(table, tmp_path, command):
    folder, rows = table
    loaded = fedpriv.load(folder)
    answers = loaded.predict(rows[["sex", "age"]])
    assert (answers == rows["y"]).mean() > 0.8
    encoded = np.stack([rows["age"] / 100, rows["sex"] == "f", rows["sex"] == "m"], 1)
    assert (loaded.predict(encoded) == answers).all()
    rows[["y", "sex", "age"]].to_csv(tmp_path / "new.csv", index=False)
    facts = json.loads(command("evaluate", str(folder), "--data", "new.csv", "--json").out)
    assert facts["accuracy"] == pytest.approx((answers == rows["y"]).mean())
    assert [row["class"] for row in facts["classes"]] == ["old", "young"]


@pytest.mark.parametrize(
    ("columns", "key"), [(["age", "sex"], "label"), (["sex", "y"], "ranges.age")]
)
def test_a_column_that_is_absent_is_named_in_a_sentence(table, tmp_path, command, columns, key):
    folder, rows = table
    rows[columns].to_csv(tmp_path / "new.csv", index=False)
    said = command("evaluate", str(folder), "--data", str(tmp_path / "new.csv"))
    assert said.status == 2
    assert f"dataset.{key} must be a column of" in said.sentence


def test_the_encoding_is_told(table, digits):
    told = fedpriv.load(table[0]).encoding
    assert told == "float32 [n, 3]: age cut to [0.0, 100.0], scaled to [0, 1]; sex as f/m"
    assert "pixels / 16" in fedpriv.load(digits.folder).encoding


def test_the_model_is_a_plain_module_that_does_not_train(digits):
    model = fedpriv.load(digits.folder).model
    stored = torch.load(digits.folder / "model.pt", weights_only=True)
    assert isinstance(model, torch.nn.Module)
    assert not model.training
    assert all(torch.equal(model.state_dict()[name], stored[name]) for name in stored)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "new.csv"], "rows of a table need a run with dataset=csv"),
        (["--dataset", "synthetic"], "--dataset must be a data set with input_shape (1, 8, 8)"),
        (["--dataset", "digits", "--data", "new.csv"], "--dataset must be left out with --data"),
    ],
)
def test_other_records_than_the_model_reads_are_refused(digits, command, arguments, words):
    said = command("evaluate", str(digits.folder), *arguments)
    assert (said.status, words in said.err) == (2, True)


def test_inputs_of_another_shape_are_refused(digits):
    with pytest.raises(fedpriv.ConfigError, match=r"must be float32 \[n, 1, 8, 8\]"):
        fedpriv.load(digits.folder).predict(torch.zeros(2, 64))


def test_another_data_set_is_read_with_the_constants_of_the_run(digits):
    loaded = fedpriv.load(digits.folder)
    loaded.config.dataset.normalize = False
    assert loaded.records(dataset="digits").inputs.max() == 1


def test_code_outside_fedpriv_needs_consent(train, command, tmp_path):
    folder = train(*SMALL).folder
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["model"] = {"_target_": "evil.Net"}
    path.write_text(yaml.safe_dump(config))
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    said = command("evaluate", str(folder))
    assert (said.status, "add --allow evil" in said.err) == (2, True)
    assert not (tmp_path / "ran").exists()


def test_a_run_whose_seeds_are_withheld_is_loaded(train):
    folder = train(*SMALL, "runtime.diagnostics=false").folder
    assert fedpriv.load(folder).predict(torch.zeros(1, 1, 8, 8)).shape == (1,)
