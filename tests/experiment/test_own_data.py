"""Runs on a file of the user's own and on parts of a data set: ``ipums``, ``adult``, ``fixed_size``."""

from __future__ import annotations

import pandas as pd
import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

FIXED = ("partition=fixed_size", "partition.clients=5", "partition.records=20")


def parts_of(*overrides: str):
    return build_parts(fedpriv.compose(overrides))


@pytest.fixture
def extract(tmp_path) -> str:
    """A file of 100 records whose label is whether the first of two numbers is above 50."""
    path = tmp_path / "extract.txt"
    path.write_text("".join(f"{i} {i % 7} {int(i > 50)}\n" for i in range(100)))
    return str(path)


def test_the_even_share_is_what_the_partition_fixes():
    assert parts_of("algorithm=dp_fl", *FIXED).even_share == 20
    assert parts_of("algorithm=adap_dpfl", *FIXED).even_share == 20  # a validation split besides
    assert parts_of("algorithm=dp_fl", "partition=iid").even_share == 143


def test_the_plan_counts_the_records_that_the_partition_fixes():
    lines = dict(make_plan(parts_of("algorithm=dp_fl", *FIXED)).lines)
    assert lines["clients"] == "5 (partition: fixed size, records=20)"
    assert "about 10 of 20 records" in lines["each round"]


def test_lots_of_a_fixed_size_are_priced_for_the_records_that_the_partition_fixes():
    fixed = ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "dataset=mnist", "rounds=10")
    asked = make_plan(parts_of(*fixed, "partition=fixed_size"))  # 50 clients of 128 records
    assert asked.first.upload.joint.sampling.records == 128


def test_a_run_uses_the_fixed_number_of_records(command):
    said = command("train", "algorithm=dp_fl", *FIXED, "rounds=1", "runtime.plots=false")
    words = " ".join(said.out.replace("│", " ").split())
    assert said.status == 0
    assert "100 training records, 20 for each of 5 clients; 360 test" in words


def test_more_records_than_there_are_end_before_the_first_round(train):
    with pytest.raises(ConfigError) as caught:
        train("algorithm=dp_fl", *FIXED, "partition.records=288", "rounds=1")
    assert str(caught.value) == (
        "partition.records must be <= 287 (1437 training records over 5 clients), got 288"
    )


def test_a_protocol_may_state_clients_and_records(tmp_path):
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "dp_fl_cifar10.yaml").write_text("clients: 4\nrecords: 30\n")
    config = fedpriv.compose(
        ["algorithm=dp_fl", "dataset=cifar10", "partition=fixed_size"], config_dir=tmp_path
    )
    assert (config.partition.clients, config.partition.records) == (4, 30)


def test_a_run_on_a_file_of_ones_own_learns(train, extract):
    result = train(
        "algorithm=fedavg", "dataset=ipums", f"dataset.path={extract}", "partition.clients=2",
        "dataset.scale={centre: [50, 3], width: [50, 3]}", "rounds=30", "algorithm.learning_rate=0.3",
    )  # fmt: skip
    metrics = pd.read_csv(result.folder / "metrics.csv")
    assert metrics.test_accuracy.iloc[-1] > 0.9


def test_a_dry_run_on_a_file_of_ones_own_knows_its_records(extract):
    parts = parts_of("algorithm=dp_fl", "dataset=ipums", f"dataset.path={extract}")
    assert parts.even_share == parts.dataset.train_records // 10
    with_validation = parts_of(
        "algorithm=adap_dpfl", "dataset=ipums", f"dataset.path={extract}",
        "dataset.validation_records=30",
    )  # fmt: skip
    assert with_validation.even_share == (parts.dataset.train_records - 30) // 10


def test_without_a_file_the_key_is_named(command):
    said = command("train", "dataset=ipums", "dry_run=true")
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: dataset.path must be the file with your records")
    assert said.sentence.endswith("got null")


def test_a_file_that_is_not_there_is_named_with_the_reason(command):
    said = command("train", "dataset=ipums", "dataset.path=nowhere.txt", "dry_run=true")
    assert said.status == 2
    assert said.sentence.endswith("got nowhere.txt; No such file or directory")


def test_a_wrong_line_ends_the_run_in_one_sentence(command, tmp_path):
    (tmp_path / "own.txt").write_text("1 0\n2 1\n3 x\n4 0\n" + "1 0\n2 1\n" * 10)
    said = command(
        "train", "dataset=ipums", "dataset.path=own.txt", "partition.clients=1", "algorithm=dp_fl"
    )
    assert said.status == 2
    assert said.sentence == "fedpriv: own.txt, line 3: column 2 is not a number (x)"


# ---- a table with declared columns


@pytest.fixture
def people(tmp_path) -> tuple[str, ...]:
    """Overrides of a table of 120 records of 24 users whose label is whether a number is above 50."""
    path = tmp_path / "people.csv"
    rows = (f"u{i // 5},{(i * 37) % 101},{int((i * 37) % 101 > 50)}\n" for i in range(120))
    path.write_text("user,x,y\n" + "".join(rows))
    return (
        "dataset=csv", f"dataset.path={path}", "dataset.label=y", "dataset.ranges={x: [0, 100]}",
    )  # fmt: skip


def test_a_run_on_a_table_learns_and_states_what_was_assumed(train, people):
    result = train(
        "algorithm=dp_fl", *people, "partition.clients=2", "rounds=30", "epsilon=null",
        "algorithm.learning_rate=0.5", "noise_schedule.noise_multiplier=0.5",
    )  # fmt: skip
    assert result.summary["test_accuracy"] > 0.8
    statement = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "dataset.ranges" in statement
    assert "dataset.labels declares the labels" in statement


def test_a_client_is_a_user_of_the_table(train, people):
    result = train(
        "algorithm=cdp_fedavg", *people, "dataset.user=user", "partition=natural", "rounds=1",
        "epsilon=null",
    )  # fmt: skip
    assert "client level" in " ".join((result.folder / "privacy.txt").read_text().split())


def test_a_natural_partition_of_a_table_needs_the_user(train, people):
    with pytest.raises(ConfigError, match=r"dataset\.user"):
        train("algorithm=dp_fl", *people, "partition=natural", "rounds=1")


def test_a_wrong_table_ends_the_command_in_one_sentence(command, people):
    said = command(
        "train", "algorithm=dp_fl", *people, "dataset.ranges={x: [9, 1]}", "dry_run=true"
    )
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: dataset.ranges.x must be [low, high]")
    assert said.sentence.endswith("got [9, 1]")
