"""Runs on files of the user's own: who is in them, what is said of it, and what may be published."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.store.caveats import CAVEATS
from fedpriv.store.statement import headline

DP = ("algorithm=dp_fl", "epsilon=null", "rounds=2")


def rows(count=1500):
    return [f"u{i // 3},h{i % 5},{(i * 37) % 101},{int((i * 37) % 101 > 50)}" for i in range(count)]


@pytest.fixture
def people(tmp_path):
    """Write a table and return its overrides."""

    def write(lines=None, *, name="people.csv"):
        path = tmp_path / name
        path.write_text("\n".join(["user,hospital,x,y", *(lines or rows())]) + "\n")
        return (
            "dataset=csv", f"dataset.path={path}", "dataset.label=y",
            "dataset.ranges={x: [0, 100]}", "dataset.labels=[0,1]",
        )  # fmt: skip

    return write


def caveats(result) -> list[str]:
    return json.loads((result.folder / "privacy.json").read_text())["caveats"]


def first_sentence(result) -> str:
    return headline(json.loads((result.folder / "privacy.json").read_text()))


@pytest.mark.parametrize(
    "algorithm",
    [
        "dp_fl",
        "dp_fl_server",
        "adap_dpfl noise_schedule=constant",
        "cdp_fedavg",
        "ldp_fedsgd noise_schedule=constant",
        "fedavg",
    ],
)
def test_clients_without_records_release_nothing_and_pay_nothing(algorithm, train, people):
    result = train(
        *f"algorithm={algorithm}".split(), *people(rows(1200)), "partition.clients=500", "rounds=2",
        "epsilon=null",
    )  # fmt: skip
    assert result.summary["rounds"] == 2
    if algorithm == "dp_fl":
        clients = pd.read_csv(result.folder / "clients.csv").dropna(subset="clip_norm")
        assert clients.client.max() > 103  # the first hundred that took part


@pytest.mark.thorough
def test_with_a_declared_number_clients_without_records_send_noise(train, people):
    result = train(*DP, *people(rows(1200)), "partition.clients=500", "dataset.records=1000")
    clients = pd.read_csv(result.folder / "clients.csv").dropna(subset="clip_norm")
    assert clients.client.max() == 99
    assert CAVEATS["declared_records"] in caveats(result)
    assert not any("n_k of the clients" in caveat for caveat in caveats(result))
    assert "n_k" not in first_sentence(result)


def test_the_first_sentence_names_what_a_row_less_would_tell(train, people):
    """The number of records is no secret at record level, unless one is declared."""
    of_records = train(*DP, *people(), "partition.clients=5", name="records")
    assert first_sentence(of_records).endswith("it does not hide the clients' sizes n_k.")
    of_clients = train("algorithm=cdp_fedavg", "epsilon=null", "rounds=1", name="clients")
    assert "n_k" not in first_sentence(of_clients)


def test_hospitals_hold_records_of_persons(train, people):
    result = train(
        *DP, *people(), "dataset.client=hospital", "dataset.user=user", "partition=natural"
    )
    assert len(pd.read_csv(result.folder / "clients.csv")) == 5


def test_the_statement_says_what_is_taken_as_public(train, people):
    of_digits = caveats(train(*DP, name="digits"))
    assert CAVEATS["known"] in of_digits
    by_coins = caveats(train(*DP, *people(), name="coins"))
    assert CAVEATS["known"] not in by_coins
    by_count = caveats(train(*DP, *people(), "partition=shards", name="shards"))
    said = [caveat for caveat in by_count if "the partition (shards" in caveat]
    assert said
    assert not any("labels and the split are taken" in caveat for caveat in by_coins)


# ---- validation


def test_an_own_table_gets_no_validation_unless_asked(people):
    with pytest.raises(ConfigError) as refused:
        build_parts(fedpriv.compose(people()))
    for word in ("dataset.validation_path", "dataset.validation_share", "trigger=noised"):
        assert word in str(refused.value)


@pytest.mark.parametrize("public", ["share", "path"])
def test_validation_that_is_declared_public_is_read(public, train, people, tmp_path):
    key = "dataset.validation_share=0.2"
    if public == "path":
        people(rows(90), name="public.csv")
        key = f"dataset.validation_path={tmp_path / 'public.csv'}"
    result = train(*people(), key, "rounds=2", "partition.clients=5")
    assert pd.read_csv(result.folder / "metrics.csv").validation_loss.notna().any()


def test_the_alternative_that_is_named_goes(train, people):
    result = train(
        "algorithm=wei_crd", *people(), "noise_schedule.trigger=noised", "rounds=2", "epsilon=50",
        "partition=iid", "partition.clients=5",
    )  # fmt: skip
    assert result.summary["rounds"] == 2


# ---- publishing

PUBLISHED = (
    "algorithm=adap_dpfl", "epsilon=1", "rounds=2", "publish=true", "evaluation_interval=1"
)  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ((), None),
        (("publish_test_metrics=true",), {"test_loss"}),
        (("publish_validation_metrics=true",), {"validation_loss"}),
        (
            ("publish_test_metrics=true", "publish_validation_metrics=true"),
            {"test_loss", "validation_loss"},
        ),
    ],
)
def test_losses_are_published_where_their_records_are_public(keys, columns, train):
    public = train(*PUBLISHED, *keys).folder / "public"
    if columns is None:
        assert not (public / "metrics.csv").exists()
        return
    found = set(pd.read_csv(public / "metrics.csv").columns)
    assert found & {"test_loss", "validation_loss"} == columns
    assert ("test_accuracy" in found) == ("test_loss" in columns)


def test_two_files_that_differ_in_one_record_give_the_others_the_same_test_records(people):
    one, other = (
        build_parts(fedpriv.compose([*DP, *people(lines)])).dataset.load()
        for lines in (rows()[1:], rows())
    )
    assert torch.equal(one.test.inputs, other.test.inputs) or torch.equal(
        one.test.inputs, other.test.inputs[1:]
    )
