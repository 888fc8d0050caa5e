from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ConfigError, DataError
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Iid, Natural, Shards
from fedpriv.data.records import Records


def rows(inputs) -> set[bytes]:
    return {row.numpy().tobytes() for row in inputs}


@pytest.fixture(scope="module")
def held_out():
    return federate(Digits(), Iid(), validation=True, seed=0)


def test_without_validation_every_training_record_goes_to_a_client():
    data = federate(Digits(), Iid(), validation=False, seed=0)
    assert data.validation is None
    assert sorted(np.concatenate(data.clients)) == list(range(1437))


def test_validation_is_held_out_of_training_and_never_of_test(held_out):
    everything = Digits().load()
    assert (len(held_out.train), len(held_out.validation)) == (1237, 200)
    assert rows(held_out.train.inputs).isdisjoint(rows(held_out.validation.inputs))
    assert rows(held_out.validation.inputs) <= rows(everything.train.inputs)
    assert torch.equal(held_out.test.inputs, everything.test.inputs)
    assert sorted(np.concatenate(held_out.clients)) == list(range(1237))


def test_the_seed_draws_the_validation_split(held_out):
    again, other = (federate(Digits(), Iid(), validation=True, seed=s) for s in (0, 1))
    assert torch.equal(again.validation.inputs, held_out.validation.inputs)
    assert not torch.equal(other.validation.inputs, held_out.validation.inputs)


def test_counts_per_client_add_up():
    data = federate(Digits(), Shards(shards=40), validation=False, seed=0)
    assert data.client_count == 10
    assert (data.classes, data.input_shape) == (10, (1, 8, 8))
    assert data.records_per_client.tolist() == [len(own) for own in data.clients]
    assert data.labels_per_client.shape == (10, 10)
    assert np.array_equal(data.labels_per_client.sum(axis=1), data.records_per_client)
    total = np.bincount(data.train.targets, minlength=10)
    assert np.array_equal(data.labels_per_client.sum(axis=0), total)


def test_a_natural_partition_follows_the_writers_after_holding_out(tiny_mnist, data):
    writers = np.repeat([4, 9], 10)
    np.save(data / "MNIST/train-writers.npy", writers)
    dataset = tiny_mnist(path=str(data))
    everything = dataset.load().train.inputs
    federated = federate(dataset, Natural(), validation=True, seed=0)
    assert federated.records_per_client.sum() == 15
    for own, all_of_writer in zip(
        federated.clients, (everything[:10], everything[10:]), strict=True
    ):
        assert rows(federated.train.inputs[own]) <= rows(all_of_writer)


def test_a_split_that_leaves_too_few_records_is_refused():
    with pytest.raises(ConfigError) as caught:
        federate(Digits(validation_records=1430), Iid(clients=10), validation=True, seed=0)
    assert str(caught.value) == (
        "dataset.validation_records must be <= 1427, so that each client keeps a training record, "
        "got 1430"
    )


def test_rows_read_a_slice_at_a_time_are_the_subset():
    records = Records(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    chosen = np.array([4, 1, 1, 5])
    inputs, targets = records.rows(chosen)
    whole = records.subset(chosen)
    assert len(inputs) == len(targets) == 4
    assert torch.equal(torch.cat([inputs[0:3], inputs[3:9]]), whole.inputs)
    assert torch.equal(targets[1:4], whole.targets[1:4])


class Own:
    """A partition of the user's own, which gives what it was made of."""

    def __init__(self, given):
        self.clients, self.given = len(given), given

    def assign(self, labels, client_ids):
        return self.given


@pytest.mark.parametrize("given", [
    [np.array([3, 1]), np.array([2])],
    [np.array([3, 1], dtype=np.int32), [2]],
    (np.array([3, 1], dtype=np.uint64), np.array([2], dtype=np.int8)),
])  # fmt: skip
def test_a_list_of_a_partition_of_one_s_own_is_taken_as_it_is(given):
    data = federate(Digits(), Own(given), validation=False, seed=0)
    assert [records.tolist() for records in data.clients] == [[3, 1], [2]]
    assert data.clients.indices.dtype == np.int64
    assert data.labels_per_client.sum(axis=1).tolist() == [2, 1]


@pytest.mark.parametrize(("given", "words"), [
    ([np.array([3, 1]), np.array([1])], "each record to one client at most"),
    ([np.array([1, 1])], "each record to one client at most"),
    ([np.array([3]), np.array([], dtype=int)], "every client a record"),
    ([], "every client a record"),
    ([np.array([-1])], "indices from 0 to 1436"),
    ([np.array([1437])], "indices from 0 to 1436"),
    ([np.array([0.5, 1.0])], "whole numbers"),
    ([np.ones(1437, dtype=bool)], "whole numbers"),
])  # fmt: skip
def test_what_a_partition_must_not_give_is_refused(given, words):
    with pytest.raises(DataError, match=words):
        federate(Digits(), Own(given), validation=False, seed=0)
