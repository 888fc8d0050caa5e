"""Canaries that look like records: what they are, who has them, and which coin shows what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.attacks.mislabelled import PlantedMislabelled, make_mislabelled, most_mislabelled
from fedpriv.common.errors import ArgumentError
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records


def data_of(sizes=(5, 7, 3), classes: int = 4) -> FederatedData:
    count = sum(sizes) + 2  # two that nobody has
    inputs = torch.arange(float(count))[:, None].repeat(1, 3)
    train = Records(inputs, torch.arange(count) % classes)
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return FederatedData(train, list(clients), None, train, classes, (3,))


def made(data=None, count=8, unit="record", neighbours="add_or_remove", seed=0):
    data = data_of() if data is None else data
    return make_mislabelled(data, count=count, unit=unit, neighbours=neighbours, seed=seed)


@pytest.mark.parametrize("neighbours", ["add_or_remove", "replace_one"])
def test_each_is_a_copy_of_another_training_input_with_a_wrong_label(neighbours):
    data = data_of()
    canaries = made(data, count=15, neighbours=neighbours)
    records = canaries.records()
    copied = records.inputs[:, 0].long()  # inputs are their own numbers
    assert sorted(copied.tolist()) == list(range(15))
    assert (records.targets != data.train.targets[copied]).all()
    assert ((records.targets >= 0) & (records.targets < data.classes)).all()
    if canaries.signed:
        other = canaries.records(other=True)
        assert torch.equal(other.inputs, records.inputs)
        assert (other.targets != data.train.targets[copied]).all()
        assert (other.targets != records.targets).all()


def test_every_wrong_label_is_chosen_about_as_often():
    data = data_of(sizes=(4000,))
    data = replace(data, train=Records(data.train.inputs, torch.zeros_like(data.train.targets)))
    counts = np.bincount(made(data, count=3000).records().targets.numpy(), minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()


def test_records_are_spread_over_the_clients():
    data, canaries = data_of(), made()
    planted = PlantedMislabelled(canaries)
    for client, own in enumerate(data.clients):
        theirs = canaries.first + np.flatnonzero((canaries.homes == client) & canaries.coins)
        assert (planted.records_of(0, client) == np.concatenate([own, theirs])).all()
    assert sum(map(len, canaries.data.clients)) == 15 + 8


def test_a_client_has_nothing_but_copies_of_one_record():
    canaries = made(unit="client")
    planted = PlantedMislabelled(canaries)
    assert (planted.attackers == []).all()  # nothing of what they send is replaced
    for number, home in enumerate(canaries.homes):
        own = planted.records_of(0, home)
        assert (own == canaries.first + number).all()
        assert len(own) == 5  # the median of 5, 7 and 3
    everyone = np.arange(canaries.data.client_count)
    took_part = planted.with_attackers(0, everyone)
    assert (np.isin(canaries.homes, took_part) == canaries.coins).all()


@pytest.mark.parametrize("unit", ["record", "client"])
def test_where_one_is_replaced_the_coin_chooses_the_label_and_nothing_else(unit):
    canaries = made(unit=unit, neighbours="replace_one")
    planted = PlantedMislabelled(canaries)
    train = canaries.data.train
    for coin in (True, False):
        planted.toss(np.full(8, coin))
        for client, own in enumerate(canaries.data.clients):
            found = planted.records_of(0, client)
            assert torch.equal(train.inputs[found], train.inputs[own])
            theirs = own >= canaries.first
            assert (found[~theirs] == own[~theirs]).all()
            wanted = canaries.records(other=not coin).targets[own[theirs] - canaries.first]
            assert torch.equal(train.targets[found[theirs]], wanted)


def test_there_are_no_more_than_training_records():
    assert most_mislabelled(data_of()) == 15
    with pytest.raises(ArgumentError, match="<= 15, the training records"):
        made(count=16)


def test_two_labels_leave_no_two_wrong_ones():
    data = data_of(classes=2)
    assert (made(data).records().targets != made(data).records().inputs[:, 0].long() % 2).all()
    with pytest.raises(ArgumentError, match="too few wrong labels"):
        made(data, neighbours="replace_one")
