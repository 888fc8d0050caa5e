"""Files of the user's own: one more, less or other unit changes role and client of nobody else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.base import Dataset
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.data.ipums import Ipums
from fedpriv.data.own_table import OwnTable
from fedpriv.data.partitions import Dirichlet, FixedSize, Iid, Natural, Shards
from fedpriv.data.roles import coin, told_apart
from fedpriv.data.text_comments import Reddit

Row = tuple[int, int, int, int]
"""What a record holds, its label, its user and the user's hospital."""

BEGINNING = [(i, i % 2, 100 + i // 4, 100 + i // 4 % 5) for i in range(200)]
"""Records of 50 users that are in every file, so that no part of a split is empty."""


def table(path, rows, **keys):
    lines = [f"{x},{label},{user},{hospital},{x}" for x, label, user, hospital in rows]
    path.write_text("\n".join(["x,label,user,hospital,id", *lines]) + "\n")
    ends = [0, 1000]
    return OwnTable(
        path=str(path), label="label", labels=[0, 1], validation_share=0.2,
        ranges={"x": ends, **({} if keys.get("user") else {"user": ends})}, **keys,
    )  # fmt: skip


def extract(path, rows):
    path.write_text("".join(f"{x} {user} {label}\n" for x, label, user, _ in rows))
    dataset = Ipums(path=str(path), scale=[1000, 1000])
    vars(dataset)["validation_share"] = 0.2
    return dataset


def comments(path, rows):
    path = path.with_suffix(".jsonl")
    said = [{"author": f"a{user}", "body": f"{x:03d}."} for x, _, user, _ in rows]
    path.write_text("".join(json.dumps(one) + "\n" for one in said))
    dataset = Reddit(file=str(path), length=10, vocabulary="fixed", level="character")
    vars(dataset)["validation_share"] = 0.2
    return dataset


class Rows(Dataset):
    """A data set of the user's own, whose 4 test records are a file of their own."""

    name, input_shape, classes, validation_share = "rows", (2,), 2, 0.2

    def __init__(self, rows):
        self.rows, self.train_records = rows, len(rows)

    def read(self):
        return [*self.rows, *[(x, x % 2, 1, 1) for x in range(996, 1000)]]

    def encode(self, rows):
        inputs = torch.tensor([(x / 1000, user / 1000) for x, _, user, _ in rows])
        return inputs, torch.tensor([label for _, label, _, _ in rows])


CASES = {
    "table": (table, Iid(5), "record"),
    "table, labels in shares": (table, Dirichlet(5, alpha=0.5), "record"),
    "table with ids": (lambda p, rows: table(p, rows, id="id"), Dirichlet(5), "record"),
    "table with persons": (lambda p, rows: table(p, rows, user="user"), Iid(5), "record"),
    "table of clients": (lambda p, rows: table(p, rows, user="user"), Natural(), "client"),
    "some clients": (lambda p, rows: table(p, rows, user="user"), Natural(share=0.5), "client"),
    "hospitals": (lambda p, rows: table(p, rows, client="hospital"), Natural(), "record"),
    "hospitals with persons": (
        lambda p, rows: table(p, rows, client="hospital", user="user"), Natural(), "record"
    ),
    "extract": (extract, Iid(5), "record"),
    "comments": (comments, Natural(share=0.5), "client"),
    "comments, persons": (comments, Iid(5), "record"),
    "rows": (lambda _, rows: Rows(rows), Dirichlet(5), "record"),
}  # fmt: skip


def roles(dataset, partition, unit) -> dict[tuple[float, ...], object]:
    """Inputs of each record → its role, or its client: a number, or whoever has the same records."""
    dataset.split_for(unit)
    data = federate(dataset, partition, validation=True, seed=0, unit=unit)
    found: dict[tuple[float, ...], object] = {}

    def note(records, role):
        for row in records.inputs.tolist():
            found[tuple(row)] = role

    note(data.test, "test")
    note(data.validation, "validation")
    note(data.train, "unused")
    for number, indices in enumerate(data.clients):
        note(data.train.subset(indices), "client" if partition.by_user else number)
    return found


@pytest.mark.few(5)
@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_one_unit_more_or_less_changes_nobody_else(case, data, tmp_path_factory):
    make, partition, unit = CASES[case]
    path = tmp_path_factory.mktemp("own") / "own.csv"
    place = data.draw(st.integers(0, len(BEGINNING)))
    user = data.draw(st.sampled_from([100, 120, 7, 900]))
    record = (data.draw(st.integers(300, 990)), 1, user, data.draw(st.sampled_from([100, 7])))
    changed = [*BEGINNING[:place], record, *BEGINNING[place:]]
    if data.draw(st.booleans()):  # replaced, by a record with another key
        del changed[place + 1 : place + 2]
    before, after = (roles(make(path, rows), partition, unit) for rows in (BEGINNING, changed))
    others = before.keys() & after.keys()
    assert len(others) >= len(before) - 1
    assert {key: before[key] for key in others} == {key: after[key] for key in others}


def test_a_record_that_is_replaced_keeps_role_and_client_where_it_has_an_id(tmp_path):
    rows = [*BEGINNING]
    one = federate(
        table(tmp_path / "a.csv", rows, id="id"), Iid(5), validation=True, seed=0
    ).clients.sizes
    lines = (tmp_path / "a.csv").read_text().splitlines()
    lines[7] = "999,1,50,100," + lines[7].rpartition(",")[2]
    (tmp_path / "b.csv").write_text("\n".join(lines))
    other = OwnTable(
        path=str(tmp_path / "b.csv"), label="label", labels=[0, 1], validation_share=0.2, id="id",
        ranges={"x": [0, 1000], "user": [0, 1000]},
    )  # fmt: skip
    assert federate(other, Iid(5), validation=True, seed=0).clients.sizes.tolist() == one.tolist()


@pytest.mark.parametrize("name", [b"", b"a", b"x" * 100])
def test_equal_names_have_coins_of_their_own_and_one_more_changes_no_other(name):
    keys = told_apart([name, b"b", name])
    assert len(set(coin(0, "test", keys))) == 3
    assert told_apart([name, b"b", name, name])[:3] == keys


def test_coins_are_uniform():
    coins = coin(3, "test", told_apart([b""] * 4000))
    assert abs(coins.mean() - 0.5) < 0.03
    assert coins.min() >= 0
    assert coins.max() < 1


def test_of_five_hospitals_a_share_of_the_records_is_held_out_and_never_a_whole_one(tmp_path):
    dataset = table(tmp_path / "own.csv", BEGINNING, client="hospital")
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.client_count == 5
    assert 20 < len(data.test) < 60


def test_a_seed_of_a_run_protects_the_same_units(tmp_path):
    dataset = table(tmp_path / "own.csv", BEGINNING)
    one, other = (
        federate(dataset, Iid(5, seed=seed), validation=False, seed=0).digest for seed in (0, 1)
    )
    assert one == other


def test_equal_shares_are_dealt_by_permutation(tmp_path):
    dataset = table(tmp_path / "own.csv", BEGINNING)
    sizes = federate(dataset, Iid(5, equal=True), validation=False, seed=0).clients.sizes
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    "partition", [Shards(5, 10), FixedSize(5, 2), Iid(5, equal=True), Natural(3)]
)
def test_partitions_by_count_do_not_claim_to_be_stable(partition):
    assert not partition.stable


def test_ids_name_each_record(tmp_path):
    with pytest.raises(Exception, match="id must name each record"):
        table(tmp_path / "own.csv", [BEGINNING[3], *BEGINNING], id="id")


def test_where_n_is_declared_public_sizes_follow_from_it_alone(tmp_path):
    fewer, more = (
        federate(table(tmp_path / "own.csv", rows, records=150), Iid(5), validation=False, seed=0)
        for rows in (BEGINNING[20:], BEGINNING)
    )
    assert fewer.clients.sizes.sum() < more.clients.sizes.sum()
    assert fewer.records_per_client.tolist() == more.records_per_client.tolist() == [30] * 5


# ---- published files


def test_a_published_data_set_keeps_its_permutations():
    data = federate(Digits(), Iid(10), validation=True, seed=0)
    sizes = data.clients.sizes
    assert sizes.max() - sizes.min() <= 1
    assert len(data.validation) == 200


@pytest.mark.parametrize("declared", [0.0, 0.3])
def test_at_client_level_no_client_has_records_in_validation(declared, tmp_path):
    dataset = table(tmp_path / "own.csv", BEGINNING, user="user")
    vars(dataset).update(validation_share=declared, validation_records=30)
    data = federate(dataset, Natural(), validation=True, seed=0, unit="client")
    width = data.train.inputs.shape[1]
    assert width == 1  # x, of which the user is a function
    users = [set((np.rint(part.inputs[:, 0].numpy() * 1000) // 4).tolist()) for part in (
        data.train, data.validation)]  # fmt: skip
    assert not users[0] & users[1]
    assert users[1]
