from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data import client_records
from fedpriv.data.client_records import ClientRecords

client_sizes = st.lists(st.integers(0, 12), min_size=1, max_size=30)
seeds = st.integers(0, 2**32 - 1)


def lists_of(sizes, seed):
    """Sorted, disjoint records of clients of these sizes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(2 * sum(sizes) + 1)[: sum(sizes)]
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def assert_same(clients, lists):
    assert len(clients) == len(lists)
    assert [records.tolist() for records in clients] == [list(records) for records in lists]
    assert all(records.dtype == np.int64 for records in clients)


def digest_by_loop(lists):
    sha256 = hashlib.sha256()
    for indices in lists:
        sha256.update(f"{len(indices)}\n".encode())
        sha256.update(np.ascontiguousarray(indices, dtype=np.int64).data)
    return sha256.hexdigest()


def digest_of(clients):
    sha256 = hashlib.sha256()
    clients.add_to(sha256)
    return sha256.hexdigest()


@given(sizes=client_sizes, seed=seeds)
def test_it_reads_like_the_list_it_is_made_of(sizes, seed):
    lists = lists_of(sizes, seed)
    clients = ClientRecords.of(lists)
    assert_same(clients, lists)
    for k in range(-len(lists), len(lists)):
        assert clients[k].tolist() == lists[k].tolist()
        assert clients[np.int64(k)].tolist() == lists[k].tolist()
    for part in (slice(1, None), slice(None, None, -2), slice(0, 0)):
        assert_same(clients[part], lists[part])
    for outside in (len(lists), -len(lists) - 1):
        with pytest.raises(IndexError):
            clients[outside]
    assert clients.sizes.tolist() == sizes
    assert clients.owners.tolist() == np.repeat(np.arange(len(sizes)), sizes).tolist()
    assert ClientRecords.of(clients) is clients


@given(sizes=client_sizes, seed=seeds, block=st.integers(1, 40))
def test_its_digest_is_that_of_a_loop_over_the_clients(sizes, seed, block):
    lists = lists_of(sizes, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_records, "_BLOCK", block)
        assert digest_of(ClientRecords.of(lists)) == digest_by_loop(lists)


def test_the_digest_has_the_size_of_a_client_in_as_many_digits_as_it_takes():
    lists = lists_of([9, 10, 99, 100, 1, 1000], 0)
    assert digest_of(ClientRecords.of(lists)) == digest_by_loop(lists)


@given(sizes=client_sizes, seed=seeds)
def test_records_go_to_their_owners(sizes, seed):
    lists = lists_of(sizes, seed)
    owners = np.full(2 * sum(sizes) + 1, -1)
    for k, records in enumerate(lists):
        owners[records] = k
    assert_same(ClientRecords.by_owner(owners, len(sizes)), lists)
    order = np.random.default_rng(seed).permutation(len(owners))
    assert_same(ClientRecords.by_owner(owners[order], len(sizes), order), lists)


@given(sizes=client_sizes, seed=seeds)
def test_changes_are_those_of_the_list(sizes, seed):
    lists, rng = lists_of(sizes, seed), np.random.default_rng(seed)
    clients = ClientRecords.of(lists)

    some = rng.permutation(len(lists))[: rng.integers(len(lists) + 1)]
    together = np.concatenate([np.zeros(0, int), *(lists[k] for k in some)])
    assert clients.together(some).tolist() == together.tolist()

    withheld = rng.permutation(clients.indices)[: len(clients.indices) // 2]
    remaining = [records[~np.isin(records, withheld)] for records in lists]
    assert_same(clients.where(~np.isin(clients.indices, withheld)), remaining)

    homes = np.sort(rng.integers(len(lists), size=5))
    added = 1000 + np.arange(5)
    longer = [np.append(records, added[homes == k]) for k, records in enumerate(lists)]
    assert_same(clients.with_records(homes, added), longer)

    others = [np.array([1000, 1000]), np.array([1001, 1001])]
    assert_same(clients.with_clients(ClientRecords.of(others)), [*lists, *others])

    k = int(rng.integers(len(lists)))
    changed = [added if client == k else records for client, records in enumerate(lists)]
    assert_same(clients.with_client(k, added), changed)
    assert_same(clients, lists)  # nothing above has changed the clients themselves


@pytest.mark.parametrize("wrong", [[np.array([0.0, 1.0])], [np.array([True, False])]])
def test_what_is_no_index_is_refused(wrong):
    with pytest.raises(TypeError):
        ClientRecords.of(wrong)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint32])
def test_owners_may_be_of_any_whole_numbers(kind):
    owners = np.array([100, 0, 100, 7], dtype=kind)
    indices = np.array([2**30, 5, 3, 2**31 - 1], dtype=np.uint32)
    clients = ClientRecords.by_owner(owners, 101, indices)
    assert clients[100].tolist() == [3, 2**30]
    assert clients[7].tolist() == [2**31 - 1]
    assert clients.indices.dtype == np.int64
