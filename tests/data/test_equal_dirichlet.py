"""Clients of equal size, each with label shares of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.common.errors import ConfigError
from fedpriv.data.equal_dirichlet import EqualDirichlet

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
label_arrays = st.lists(st.integers(-2, 3), min_size=12, max_size=120).map(np.array)


@given(
    labels=label_arrays,
    clients=st.integers(1, 12),
    alpha=st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e6]),
    seed=st.integers(0, 2**63 - 1),
)
def test_clients_have_equally_many_records_of_their_own(labels, clients, alpha, seed):
    parts = EqualDirichlet(clients=clients, alpha=alpha, seed=seed).assign(labels)
    assert [len(part) for part in parts] == [len(labels) // clients] * clients
    used = np.concatenate(parts)
    assert len(np.unique(used)) == len(used)
    assert used.min() >= 0
    assert used.max() < len(labels)
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)


def largest_shares(alpha: float) -> np.ndarray:
    parts = EqualDirichlet(clients=100, alpha=alpha).assign(LABELS)
    return np.array([np.bincount(LABELS[part]).max() / len(part) for part in parts])


def test_most_records_of_a_client_have_one_label_where_alpha_is_small():
    # The largest of ten shares of Dirichlet(0.1) is 0.69 on average (20,000 draws, and 50 records each).
    assert largest_shares(0.1).mean() == pytest.approx(0.69, abs=0.05)


def test_clients_are_nearly_iid_where_alpha_is_large():
    assert largest_shares(1e6).mean() < 0.25  # the last clients get what is left


def test_the_seed_decides():
    first, again, other = (EqualDirichlet(seed=seed).assign(LABELS) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_more_clients_than_records_are_refused():
    with pytest.raises(ConfigError, match=r"partition\.clients must be <= 3 .*got 4"):
        EqualDirichlet(clients=4).assign(np.arange(3))


def test_sequences_of_targets_are_refused():
    with pytest.raises(ConfigError, match="partition=dirichlet_equal needs one label"):
        EqualDirichlet().assign(np.zeros((20, 4), dtype=int))
