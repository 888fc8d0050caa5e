"""The data of shadow runs: halves of a pool, dealt without a look at who had them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.data.federated import FederatedData
from fedpriv.data.names import NONMEMBERS, Shadow
from fedpriv.data.records import Records
from fedpriv.data.shadow import of_shadow, outside_pool, records_at, shadow_clients


def federated(sizes=(30, 10, 20), train=150, test=90, sequences=False) -> FederatedData:
    """Records whose input is their number."""
    numbers = torch.arange(train + test)
    targets = numbers % 5
    if sequences:
        targets = targets[:, None].repeat(1, 3)
    inputs = numbers[:, None].float()
    ends = np.cumsum(sizes)
    return FederatedData(
        train=Records(inputs[:train], targets[:train]),
        clients=np.split(np.arange(ends[-1]), ends[:-1]),
        validation=None,
        test=Records(inputs[train:], targets[train:]),
        classes=5,
        input_shape=(1,),
    )


@pytest.mark.parametrize("nonmembers", NONMEMBERS)
def test_two_shadow_runs_share_the_pool(nonmembers):
    data = federated()
    halves = [
        np.concatenate(shadow_clients(data, Shadow(half, nonmembers, 0))) for half in range(4)
    ]
    pool = np.union1d(np.arange(60), outside_pool(data, nonmembers, 0))
    assert len(pool) == 120
    for one, other in (halves[:2], halves[2:]):
        np.testing.assert_array_equal(np.sort(np.concatenate([one, other])), pool)
    assert set(halves[0]) != set(halves[2])


@pytest.mark.parametrize("sequences", [False, True])
def test_clients_keep_their_size_and_about_their_labels(sequences):
    data = federated((300, 100, 200), train=1500, sequences=sequences)
    shadow = of_shadow(data, Shadow(0, "held_out", 0))
    assert shadow.records_per_client.tolist() == [300, 100, 200]
    if not sequences:
        assert np.abs(shadow.labels_per_client - data.labels_per_client).max() <= 40


def test_labels_stay_where_they_are_of_one_kind():
    data = federated((300, 300), train=3000)
    labels = data.train.targets.numpy()[:600]
    data = replace(data, clients=[np.flatnonzero(labels < 2), np.flatnonzero(labels >= 2)])
    counts = of_shadow(data, Shadow(0, "held_out", 0)).labels_per_client
    assert counts[0, :2].sum() > 0.9 * counts[0].sum()


def test_a_record_goes_to_any_client_whoever_had_it():
    data = federated((500, 500), train=4000)
    first = shadow_clients(data, Shadow(0, "held_out", 0))[0]
    stayed = (first < 500).sum() / (first < 1000).sum()
    assert 0.4 < stayed < 0.6


def test_of_too_few_others_clients_are_smaller_and_none_is_empty():
    data = federated((50, 1, 9), train=64)
    for half in range(2):
        shadow = of_shadow(data, Shadow(half, "held_out", 0))
        assert shadow.records_per_client.sum() == 32
        assert shadow.records_per_client.min() >= 1
    with pytest.raises(ConfigError, match="2 records for 3 clients"):
        shadow_clients(federated((1, 1, 2), train=4), Shadow(0, "held_out", 0))


def test_test_records_are_trained_on_where_they_are_the_others():
    data = federated()
    shadow = of_shadow(data, Shadow(0, "test", 0))
    assert len(shadow.train) == 240
    trained = np.concatenate(shadow.clients)
    assert (trained >= 150).sum() > 10
    np.testing.assert_array_equal(shadow.train.inputs[trained, 0].numpy(), trained)


def test_records_come_in_the_order_of_their_numbers():
    numbers = np.array([200, 3, 151, 149])
    assert records_at(federated(), numbers).inputs[:, 0].tolist() == numbers.tolist()


def test_the_seed_chooses_pool_and_halves():
    data = federated()
    assert set(outside_pool(data, "held_out", 0)) != set(outside_pool(data, "held_out", 1))
    first, again = (shadow_clients(data, Shadow(0, "test", 0)) for _ in range(2))
    assert all(map(np.array_equal, first, again))
