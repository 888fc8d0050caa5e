"""Clients that share rows and counts have what an array with a row for each client holds."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved, size
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core import columns
from fedpriv.privacy.core.alike import AlikeRows, CountsOfClients
from fedpriv.privacy.core.columns import of_clients
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling

CLIENTS = 20
COHORTS = st.sets(st.integers(0, CLIENTS - 1)).map(lambda some: np.array(sorted(some), dtype=int))
EVERYONE = st.just(np.arange(CLIENTS))
STEPS = st.lists(st.tuples(COHORTS | EVERYONE, st.sampled_from([0.1, 0.2, 0.3, 1e9])), max_size=12)


@given(steps=STEPS)
def test_rows_are_those_of_an_array_after_any_changes(steps):
    rows, dense = AlikeRows(CLIENTS, np.zeros(2)), np.zeros((CLIENTS, 2))
    for clients, step in steps:
        rows.change(clients, lambda some, step=step: some + np.array([step, 2 * step]))
        dense[clients] += np.array([step, 2 * step])
        np.testing.assert_array_equal(rows.distinct[rows.index()], dense)
        assert len(rows.distinct) <= CLIENTS
    np.testing.assert_array_equal(rows.spread(rows.distinct[:, 0], np.arange(3)), dense[:3, 0])
    # The checkpoint is that of the array, and goes on alike.
    state, of_array = saved(rows.state()), saved(of_clients(dense))
    assert repr(state) == repr(of_array)
    again = AlikeRows(CLIENTS, np.ones(2))
    again.load(state)
    for clients, step in steps:
        again.change(clients, lambda some, step=step: some * step)
        dense[clients] *= step
    np.testing.assert_array_equal(again.distinct[again.index()], dense)
    here, there = again.pairs(rows)
    assert {*map(tuple, np.concatenate([here, there], axis=1).tolist())} == {
        *map(tuple, np.concatenate([dense, rows.distinct[rows.index()]], axis=1).tolist())
    }


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), COHORTS | EVERYONE, st.integers(1, 3)), max_size=15)
)  # fmt: skip
def test_counts_are_those_of_one_array_for_each_kind(steps):
    counts: CountsOfClients[str] = CountsOfClients(CLIENTS)
    dense = {kind: np.zeros(CLIENTS, dtype=int) for kind in "abc"}
    for kind, clients, count in steps:
        counts.add(kind, clients, count)
        dense[kind][clients] += count
    for kind, of_each in dense.items():
        np.testing.assert_array_equal(counts.of_kind(kind), of_each)
    np.testing.assert_array_equal(counts.of_kinds("ab"), dense["a"] + dense["b"])
    distinct, index = counts.groups()
    for client in range(CLIENTS):
        history = {kind: int(of_each[client]) for kind, of_each in dense.items() if of_each[client]}
        assert {k: n for k, n in distinct[index[client]].items() if n} == history
    assert len(distinct) == len(np.unique(np.stack([*dense.values()]), axis=1).T)
    assert counts.groups(np.array([4]))[0] == [distinct[index[4]]]

    again: CountsOfClients[str] = CountsOfClients(CLIENTS)
    for kind, count in counts.everyone.items():
        again.add(kind, np.arange(CLIENTS), count)
    for kind, clients, of_some in counts.rows():
        assert (np.diff(clients) > 0).all()
        again.add_rows(kind, clients, of_some)
    assert again.same_as(counts)
    assert (again.everyone, [*again.kinds]) == (counts.everyone, [*counts.kinds])
    if steps:
        again.add("a", np.array([7]), 1)
        assert not again.same_as(counts)


def test_clients_whose_counts_become_equal_in_another_order_are_one_group():
    counts: CountsOfClients[str] = CountsOfClients(3)
    counts.add("a", np.array([0]), 1)
    counts.add("b", np.array([0, 1]), 2)
    counts.add("a", np.array([1]), 1)
    assert len(counts.distinct()) == 2
    assert counts.groups()[1].tolist() in ([0, 0, 1], [1, 1, 0])


@pytest.mark.parametrize("accountant", [RdpAccountant(), PldAccountant()])
def test_a_total_of_a_million_clients_is_as_small_as_its_distinct_histories(accountant):
    event = PoissonSampling(0.01).event(2.0)

    def charged(clients: int):
        total, stream = accountant.running(clients, ADD_OR_REMOVE), np.random.default_rng(0)
        total.add(event, np.arange(clients))
        for _ in range(5):
            total.add(event, np.sort(stream.choice(clients, 100, replace=False)))
        return total

    few, many = charged(1_000), charged(1_000_000)
    # A byte or four for each client, beside which rows of sums would be 220 times eight.
    assert size(many.state_dict()) - size(few.state_dict()) < 4 * 1_000_000 + 50_000
    assert many.worst(1e-5) <= few.worst(1e-5)
    again = accountant.running(1_000_000, ADD_OR_REMOVE)
    again.load_state_dict(saved(many.state_dict()))
    assert again.agrees_with(many, 1e-5)


@pytest.mark.parametrize("accountant", [RdpAccountant(), GdpAccountant(), PldAccountant()])
def test_a_checkpoint_with_a_row_for_each_client_is_read(accountant):
    rate = 1.0 if accountant.name == "gdp" else 0.1
    event, others = PoissonSampling(rate).event(5.0), PoissonSampling(rate).event(4.0)

    def charged():
        total = accountant.running(CLIENTS, ADD_OR_REMOVE)
        total.add(event, np.arange(CLIENTS))
        total.add(others, np.array([1, 5]), 2)
        total.would_exceed(event, 1, 3.0, 1e-5)
        return total

    def dense(value):
        """What an older version wrote: a tensor with a row for each client."""
        if isinstance(value, dict):
            if "row_of_client" in value:
                return columns.tensor(columns.each_client(value))
            return {key: dense(part) for key, part in value.items()}
        return value

    whole, again = charged(), accountant.running(CLIENTS, ADD_OR_REMOVE)
    again.load_state_dict(saved(dense(whole.state_dict())))
    for total in (whole, again):
        total.add(event, np.array([0, 5, 7]))
    np.testing.assert_array_equal(again.epsilon(1e-5), whole.epsilon(1e-5))
    np.testing.assert_array_equal(
        again.would_exceed(event, 3, 3.0, 1e-5), whole.would_exceed(event, 3, 3.0, 1e-5)
    )
    assert repr(again.state_dict()) == repr(whole.state_dict())
