"""Clients that share a value have what an array with a value for each client holds."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved, size
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core.client_groups import ClientGroups, tensor
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling

CLIENTS = 20
COHORTS = st.sets(st.integers(0, CLIENTS - 1)).map(lambda some: np.array(sorted(some), dtype=int))
EVERYONE = st.just(np.arange(CLIENTS))
CHARGES = st.lists(
    st.tuples(COHORTS | EVERYONE, st.sampled_from([1.0, 10.0, 1e9]), st.integers(1, 3)), max_size=12
)


def charge(groups: ClientGroups, dense: np.ndarray, charges) -> None:  # type: ignore[no-untyped-def]
    for clients, step, count in charges:
        groups.charge(step, clients, count, lambda values, s=step, n=count: values + n * s)
        dense[clients] += count * step
        np.testing.assert_array_equal(groups.spread(groups.distinct), dense)


@given(charges=CHARGES, more=CHARGES)
def test_values_are_those_of_an_array_after_any_charges_and_a_resumption(charges, more):
    groups, dense = ClientGroups(CLIENTS, np.zeros((1, 2))), np.zeros((CLIENTS, 2))
    charge(groups, dense, charges)
    np.testing.assert_array_equal(groups.spread(groups.distinct[:, 0], np.arange(3)), dense[:3, 0])
    again, before = ClientGroups(CLIENTS, np.ones((1, 2))), dense.copy()
    again.load_state_dict(saved(groups.state_dict(tensor)), lambda values: values.numpy())
    charge(again, dense, more)
    pairs = np.concatenate(again.pairs(groups), axis=1)
    expected = np.concatenate([dense, before], axis=1)
    assert {*map(tuple, pairs.tolist())} == {*map(tuple, expected.tolist())}
    for value, members in zip(again.distinct, again.members(), strict=True):
        assert (np.diff(members) > 0).all()
        assert (dense[members] == value).all()


def test_clients_whose_charges_become_equal_in_another_order_are_one_group():
    groups = ClientGroups(3, np.zeros(1))
    for kind, clients, count in (("a", [0], 1), ("b", [0, 1], 2), ("a", [1], 1)):
        groups.charge(kind, np.array(clients), count, lambda values: values + 1.0)
    assert len(groups.distinct) == 2
    assert groups.index().tolist() in ([0, 0, 1], [1, 1, 0])


def test_groups_that_all_clients_left_are_dropped():
    groups, stream = ClientGroups(10, np.zeros(1)), np.random.default_rng(0)
    for kind in range(500):
        clients = np.flatnonzero(stream.random(10) < 0.5)
        groups.charge(kind, clients, 1, lambda values: values + 1.0)
    assert len(groups.values) < 200


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
def test_a_resumed_total_goes_on_as_the_one_that_was_saved(accountant):
    rate = 1.0 if accountant.name == "gdp" else 0.1
    event, others = PoissonSampling(rate).event(5.0), PoissonSampling(rate).event(4.0)
    whole = accountant.running(CLIENTS, ADD_OR_REMOVE)
    whole.add(event, np.arange(CLIENTS))
    whole.add(others, np.array([1, 5]), 2)
    whole.would_exceed(event, 1, 3.0, 1e-5)
    again = accountant.running(CLIENTS, ADD_OR_REMOVE)
    again.load_state_dict(saved(whole.state_dict()))
    for total in (whole, again):
        total.add(event, np.array([0, 5, 7]))
    np.testing.assert_array_equal(again.epsilon(1e-5), whole.epsilon(1e-5))
    np.testing.assert_array_equal(
        again.would_exceed(event, 3, 3.0, 1e-5), whole.would_exceed(event, 3, 3.0, 1e-5)
    )
    assert repr(again.state_dict()) == repr(whole.state_dict())
