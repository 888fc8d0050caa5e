"""What accounting leaves in a checkpoint is plain, exact and small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from checkpoints import saved, size
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from releases import released

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core import columns
from fedpriv.privacy.core.columns import (
    pack,
    pack_counts,
    pack_events,
    unpack,
    unpack_counts,
    unpack_events,
)
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
)
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, JointQuery, RandomizedBit
from fedpriv.privacy.mechanisms.rows import joint_of, joint_row

FLOATS = st.floats(allow_nan=False)


@given(
    rows=st.lists(
        st.tuples(st.just(("a", None)), st.tuples(st.integers(0, 2**40), FLOATS))
        | st.tuples(st.just("b"), st.just(()))
        | st.tuples(st.just("c"), st.tuples(FLOATS))
    )
)
def test_rows_come_back_exactly_and_in_order(rows):
    assert list(unpack(saved(pack(rows)))) == rows


@given(
    counts=st.lists(
        st.none()
        | st.lists(st.integers(0, 9), min_size=3, max_size=3).map(lambda row: np.array(row))
    )
)
def test_counts_come_back(counts):
    rows = [None if row is None else (np.flatnonzero(row), row[row != 0]) for row in counts]
    found = list(unpack_counts(saved(pack_counts(rows))))
    assert [None if row is None else [part.tolist() for part in row] for row in found] == [
        None if row is None else [part.tolist() for part in row] for row in rows
    ]


@given(
    rate=st.floats(1e-9, 1.0),
    multipliers=st.lists(st.floats(1e-300, 1e300), unique=True, max_size=8),
)
def test_events_come_back_exactly_and_in_order(rate, multipliers):
    counted = {}
    for i, z in enumerate(multipliers):
        for sampling in (
            PoissonSampling(rate),
            FixedSizeSampling(6000, 78),
            TruncatedPoissonSampling(rate, 6000, 90),
            WholeData(REPLACE_ONE),
        ):
            counted[sampling.event(z)] = i + 1
        counted[dp_event.ComposedDpEvent((WholeData().event(z), WholeData().event(2.0)))] = 3
    counted[dp_event.NonPrivateDpEvent()] = 7
    counted[dp_event.LaplaceDpEvent(0.5)] = 1
    assert list(unpack_events(saved(pack_events(counted))).items()) == list(counted.items())


@given(z=st.floats(1e-300, 1e300), epsilon=st.floats(1e-3, 50.0))
def test_joint_queries_come_back_exactly(z, epsilon):
    for sampling in (PoissonSampling(0.1), FixedSizeSampling(6000, 78), WholeData(REPLACE_ONE)):
        joint = JointQuery(sampling, (GaussianQuery(GRADIENT, z), RandomizedBit("bit", epsilon)))
        form, floats = joint_row(joint)
        ((form, floats),) = unpack(saved(pack([(form, floats)])))
        back = joint_of(form, iter(floats))
        assert back == joint
        assert repr(back) == repr(joint)


@dataclass(frozen=True)
class OwnQuery(GaussianQuery):
    scales: object = (1.0, 2)


def test_a_query_of_ones_own_comes_back():
    joint = JointQuery(WholeData(), (OwnQuery(GRADIENT, 3.0, scales=(0.5, 4, "x", None, True)),))
    ((form, floats),) = unpack(saved(pack([joint_row(joint)])))
    assert joint_of(form, iter(floats)) == joint


def test_a_query_that_a_checkpoint_cannot_hold_is_one_sentence():
    joint = JointQuery(WholeData(), (OwnQuery(GRADIENT, 3.0, scales=np.ones(2)),))
    with pytest.raises(ConfigError, match=r"OwnQuery\.scales must be a number, a text or a tuple"):
        joint_row(joint)


def test_a_query_that_nobody_defines_is_one_sentence():
    form, floats = joint_row(JointQuery(WholeData(), (OwnQuery(GRADIENT, 3.0),)))
    gone = (form[0], (("gone.Query", form[1][0][1]),))
    with pytest.raises(ConfigError, match=r"^resume: .* gone\.Query, which the code"):
        joint_of(gone, iter(floats))


def moving(rounds: int) -> tuple[Ledger, object]:
    """A ledger and a PLD total of a run whose noise was another in every round."""
    ledger, everyone = Ledger(10), np.arange(10)
    total = PldAccountant().running(10, ADD_OR_REMOVE)
    for t in range(rounds):
        joint = JointQuery(PoissonSampling(0.5), (GaussianQuery(GRADIENT, 60.0 * 0.9999**t),))
        ledger.record(released(joint, everyone))
        total.add(joint.event(), everyone)
        total._aim_at(joint.event(), 2.0, 1e-5, everyone)  # what the next round is asked with
    return ledger, total


@pytest.mark.thorough
def test_the_state_of_noise_that_moves_is_a_few_numbers_a_round():
    few, many = (sum(size(part.state_dict()) for part in moving(n)) for n in (1000, 2000))
    assert many - few <= 1000 * 5 * 8


CLIENTS = {
    "all alike": np.full((40, 3), 0.1),
    "two kinds": np.where(np.arange(40)[:, None] % 2, 1e-300, np.inf) * np.ones(3),
    "not a number": np.where(np.arange(40) % 3, np.nan, 1.0),
    "all different": np.arange(40.0),
    "counts": np.arange(600) % 300,
    "small": np.arange(40) % 3 == 0,
    "few": np.zeros(3),
    "nobody": np.zeros((0, 4)),
    "bytes": (np.arange(40) % 5).astype(np.int8),
}


@pytest.mark.parametrize("values", CLIENTS.values(), ids=CLIENTS)
def test_rows_of_clients_come_back_bit_for_bit(values):
    again = columns.each_client(saved(columns.of_clients(values)))
    assert again.dtype == values.dtype
    assert again.shape == values.shape
    assert again.tobytes() == values.tobytes()


@pytest.mark.thorough
def test_what_all_clients_have_is_stored_once():
    one, many = (size(columns.of_clients(np.ones((n, 220)))) for n in (100, 100_000))
    assert many == one
    of_two = np.where(np.arange(100_000)[:, None] % 2, 1.0, 2.0) * np.ones(220)
    assert size(columns.of_clients(of_two)) < 2 * 100_000


def test_different_rows_with_the_same_sum_are_not_confused(monkeypatch):
    monkeypatch.setattr(
        columns, "_distinct", lambda rows: (np.zeros(1, dtype=int), np.zeros(len(rows), dtype=int))
    )
    values = np.arange(40.0)
    assert np.array_equal(columns.each_client(columns.of_clients(values)), values)


@pytest.mark.parametrize("high", [0, 127, 128, 2**15, 2**31, 2**40])
def test_whole_numbers_are_kept_in_the_smallest_type_that_holds_them(high):
    values = np.array([-1, 5, high])
    small = columns.narrow(values)
    assert small.tolist() == values.tolist()
    assert small.itemsize == (1 if high < 128 else 2 if high < 2**15 else 4 if high < 2**31 else 8)
    assert columns.narrow(values[:0]).tolist() == []
