from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.partitions import Dirichlet, FixedSize, Iid, Natural, Shards

MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST_COUNTS))
MAKERS = np.repeat([70, 3, 5, 900], [4, 1, 3, 2])

label_arrays = st.lists(st.integers(0, 4), min_size=12, max_size=120).map(np.array)
seeds = st.integers(0, 2**63 - 1)


def sizes(parts):
    return [len(part) for part in parts]


def assert_covers(parts, records):
    """Every record belongs to exactly one client; each client's indices are sorted int64."""
    assert sorted(np.concatenate(parts).tolist()) == list(range(records))
    for part in parts:
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)
        assert len(part)


@given(labels=label_arrays, clients=st.integers(1, 12), seed=seeds)
def test_iid_deals_out_every_record_evenly(labels, clients, seed):
    parts = Iid(clients=clients, seed=seed).assign(labels)
    assert len(parts) == clients
    assert_covers(parts, len(labels))
    assert max(sizes(parts)) - min(sizes(parts)) <= 1


@given(labels=label_arrays, clients=st.integers(1, 4), each=st.integers(1, 3), seed=seeds)
def test_fixed_size_gives_each_client_so_many_records_of_its_own(labels, clients, each, seed):
    parts = FixedSize(clients=clients, records=each, seed=seed).assign(labels)
    assert sizes(parts) == [each] * clients
    used = np.concatenate(parts)
    assert len(np.unique(used)) == clients * each
    assert used.min() >= 0
    assert used.max() < len(labels)
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)


@given(labels=label_arrays, seed=seeds)
def test_fixed_size_may_use_every_record(labels, seed):
    labels = labels[: len(labels) // 3 * 3]
    assert_covers(
        FixedSize(clients=3, records=len(labels) // 3, seed=seed).assign(labels), len(labels)
    )


def test_fixed_size_draws_from_all_records_whatever_their_order():
    sorted_labels = np.sort(MNIST_LABELS)
    parts = FixedSize(clients=50, records=128).assign(sorted_labels)
    shares = np.bincount(sorted_labels[np.concatenate(parts)]) / 6400
    assert shares == pytest.approx(np.array(MNIST_COUNTS) / 60_000, abs=0.02)


@given(labels=label_arrays, clients=st.integers(1, 4), each=st.integers(1, 3), seed=seeds)
def test_shards_use_every_record_in_shards_of_equal_size(labels, clients, each, seed):
    parts = Shards(clients=clients, shards_per_client=each, seed=seed).assign(labels)
    assert len(parts) == clients
    assert_covers(parts, len(labels))
    assert max(sizes(parts)) - min(sizes(parts)) <= each


@given(labels=label_arrays, clients=st.integers(1, 4), seed=seeds)
def test_one_shard_per_client_keeps_labels_together(labels, clients, seed):
    parts = Shards(clients=clients, shards_per_client=1, seed=seed).assign(labels)
    ranges = sorted((labels[part].min(), labels[part].max()) for part in parts)
    assert all(low[1] <= high[0] for low, high in pairwise(ranges))


@given(labels=label_arrays, clients=st.integers(1, 3), alpha=st.floats(0.5, 1e6), seed=seeds)
@settings(max_examples=examples(50))
def test_dirichlet_uses_every_record_and_respects_min_records(labels, clients, alpha, seed):
    parts = Dirichlet(clients=clients, alpha=alpha, min_records=1, seed=seed).assign(labels)
    assert len(parts) == clients
    assert_covers(parts, len(labels))


@given(makers=st.lists(st.integers(-3, 9), min_size=1, max_size=60).map(np.array), seed=seeds)
def test_natural_gives_each_maker_its_own_records(makers, seed):
    parts = Natural(seed=seed).assign(np.zeros(len(makers)), makers)
    assert_covers(parts, len(makers))
    assert [set(makers[part]) for part in parts] == [{maker} for maker in sorted(set(makers))]


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: Iid(seed=seed),
        lambda seed: FixedSize(seed=seed),
        lambda seed: Shards(shards=40, seed=seed),
        lambda seed: Shards(shards=400, seed=seed),
        lambda seed: Dirichlet(seed=seed),
        lambda seed: Natural(clients=10, seed=seed),
    ],
    ids=["iid", "fixed_size", "shards40", "shards400", "dirichlet", "natural"],
)
def test_the_seed_decides(make):
    makers = np.arange(len(MNIST_LABELS)) % 100
    first, again, other = (make(seed).assign(MNIST_LABELS, makers) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def labels_per_client(partition):
    return [len(np.unique(MNIST_LABELS[part])) for part in partition.assign(MNIST_LABELS)]


def test_forty_shards_give_most_clients_three_to_five_labels():
    counts = np.concatenate([labels_per_client(Shards(shards=40, seed=s)) for s in range(10)])
    assert np.mean((counts >= 3) & (counts <= 5)) > 0.85
    assert counts.max() < 10


def test_four_hundred_shards_give_nearly_every_client_all_labels():
    counts = np.concatenate([labels_per_client(Shards(shards=400, seed=s)) for s in range(10)])
    assert np.mean(counts == 10) > 0.85
    assert counts.min() >= 8


@pytest.mark.parametrize("shards", [40, 400])
def test_shards_of_mnist_have_equal_client_sizes(shards):
    assert set(sizes(Shards(shards=shards).assign(MNIST_LABELS))) == {6000}


def test_small_alpha_gives_fewer_labels_than_large_alpha():
    few = Dirichlet(alpha=0.05, min_records=1).assign(MNIST_LABELS)
    many = Dirichlet(alpha=100.0).assign(MNIST_LABELS)
    assert sum(len(np.unique(MNIST_LABELS[p])) for p in few) < 60
    assert all(len(np.unique(MNIST_LABELS[p])) == 10 for p in many)


def test_dirichlet_redraws_until_every_client_has_enough():
    once = Dirichlet(min_records=1).assign(MNIST_LABELS)
    assert min(sizes(once)) < 3000
    assert min(sizes(Dirichlet(min_records=3000).assign(MNIST_LABELS))) >= 3000


def test_natural_leaves_out_makers_with_few_records():
    parts = Natural(min_records=3).assign(np.zeros(10), MAKERS)
    assert [MAKERS[part][0] for part in parts] == [5, 70]


def test_natural_with_fewer_clients_takes_some_of_those_a_larger_choice_takes():
    def chosen(clients):
        return {MAKERS[p][0] for p in Natural(clients=clients).assign(np.zeros(10), MAKERS)}

    assert len(chosen(2)) == 2
    assert chosen(2) < chosen(3)


@pytest.mark.parametrize(
    ("keys", "follows"),
    [
        ({"shards": 40}, (40, 4)),
        ({"shards_per_client": 3}, (30, 3)),
        ({"shards": 400, "shards_per_client": 40}, (400, 40)),
        ({"shards": 40, "clients": 20}, (40, 2)),
    ],
)
def test_either_shard_count_follows_from_the_other(keys, follows):
    partition = Shards(**keys)
    assert (partition.shards, partition.shards_per_client) == follows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Iid(clients=0), "clients must be a whole number >= 1, got 0"),
        (lambda: Iid(clients=None), "clients must be a whole number >= 1, got null"),
        (lambda: Iid(seed=-1), "seed must be a whole number >= 0"),
        (lambda: FixedSize(clients=0), "clients must be a whole number >= 1, got 0"),
        (lambda: FixedSize(records=0), "records must be a whole number >= 1, got 0"),
        (lambda: FixedSize(records=2.5), "records must be a whole number >= 1, got 2.5"),
        (lambda: Shards(), "shards must be a whole number when shards_per_client is null, got"),
        (
            lambda: Shards(shards=40, shards_per_client=5),
            "shards must be clients * shards_per_client = 10 * 5 = 50, or null, got 40",
        ),
        (lambda: Shards(shards=45), "clients must be a divisor of partition.shards = 45 (1, 3, "),
        (lambda: Shards(shards=0), "shards must be a whole number >= 1, got 0"),
        (lambda: Dirichlet(alpha=0), "alpha must be > 0 and <= 1e+06, got 0"),
        (lambda: Dirichlet(min_records=0), "min_records must be a whole number >= 1, got 0"),
        (lambda: Natural(clients="all"), "clients must be a whole number >= 1, got all"),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(make, message):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert str(caught.value).startswith(message)


TEN = np.arange(10)


@pytest.mark.parametrize(
    ("partition", "makers", "message"),
    [
        (
            Iid(clients=11),
            None,
            "partition.clients must be <= 10 (the number of training records), got 11",
        ),
        (
            FixedSize(clients=11, records=1),
            None,
            "partition.clients must be <= 10 (the number of training records), got 11",
        ),
        (
            FixedSize(clients=3, records=4),
            None,
            "partition.records must be <= 3 (10 training records over 3 clients), got 4",
        ),
        (
            Shards(clients=11, shards=11),
            None,
            "partition.clients must be <= 10 (the number of training records), got 11",
        ),
        (
            Shards(clients=10, shards=20),
            None,
            "partition.shards must be <= 10 (the number of training records), got 20",
        ),
        (
            Dirichlet(clients=5, min_records=3),
            None,
            "partition.min_records must be <= 2 (10 training records over 5 clients), got 3",
        ),
        (
            Dirichlet(clients=10, min_records=1, alpha=0.01),
            None,
            "partition: 100 draws left a client with fewer than partition.min_records=1 records; "
            "raise partition.alpha, or lower partition.clients or partition.min_records",
        ),
        (
            Natural(),
            None,
            "partition=natural needs the author of each record, and this data set has no authors; "
            "with dataset=mnist put MNIST/train-writers.npy (60000 whole numbers, the writer of "
            "each training image) into the data folder, take dataset=femnist instead of emnist, with "
            "dataset=csv name the column of the user in dataset.user, or choose another partition",
        ),
        (
            Natural(clients=4, min_records=2),
            MAKERS,
            "partition.clients must be <= 3 (the number of users with at least 2 training records), got 4",
        ),
        (
            Natural(min_records=5),
            MAKERS,
            "partition.min_records must be <= 4 (the largest number of records of a user), got 5",
        ),
    ],
)
def test_data_that_cannot_be_split_as_asked_are_refused(partition, makers, message):
    with pytest.raises(ConfigError) as caught:
        partition.assign(TEN, makers)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("partition", "name"),
    [
        (Shards(clients=2, shards=4), "shards"),
        (Dirichlet(clients=2, min_records=1), "dirichlet"),
    ],
)
def test_a_partition_by_label_refuses_sequences_of_targets(partition, name):
    with pytest.raises(ConfigError) as caught:
        partition.assign(np.ones((10, 5), dtype=np.int64))
    assert str(caught.value).startswith(f"partition={name} needs one label for each record")


def test_sequences_of_targets_can_be_dealt_out_without_labels():
    targets = np.ones((10, 5), dtype=np.int64)
    assert sizes(Iid(clients=2).assign(targets)) == [5, 5]
    assert sizes(FixedSize(clients=2, records=3).assign(targets)) == [3, 3]
    assert sizes(Natural().assign(targets, MAKERS)) == [1, 3, 4, 2]
