"""Cohorts keep to their participation, follow from the key alone, and refuse what cannot be kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.matrix.cohorts import CyclicPoisson, Rested, ShuffledEpochs, Turns
from fedpriv.privacy.mechanisms.attendance import Attendance

CLIENTS = 24


def cohorts_of(chooser, rounds: int, seed: int = 0, clients: int = CLIENTS) -> list[np.ndarray]:
    """Those of a run; an Attendance stops one that does not keep to the participation."""
    streams = SecretStreams.simulated(seed, 0)
    attendance, found = Attendance(chooser.participation, clients), []
    for t in range(rounds):
        found.append(chooser.choose(streams, t, attendance.may(t)))
        attendance.enter(t, found[-1])
    return found


CHOOSERS = st.one_of(
    st.builds(Turns, st.integers(1, 9), st.none()),
    st.builds(ShuffledEpochs, st.integers(1, 9), st.none()),
    st.builds(
        Rested, st.integers(1, 9), st.one_of(st.none(), st.integers(1, 4)), st.integers(1, 9)
    ),
    st.builds(CyclicPoisson, st.integers(1, 9), st.floats(0.1, 1.0)),
)


@settings(max_examples=examples(60))
@given(chooser=CHOOSERS, rounds=st.integers(1, 30), seed=st.integers(0, 99))
def test_no_cohort_has_a_client_that_may_not_be_there(chooser, rounds, seed):
    for cohort in cohorts_of(chooser, rounds, seed):
        assert (np.diff(cohort) > 0).all()
        assert len(cohort) <= CLIENTS


@settings(max_examples=examples(30))
@given(chooser=CHOOSERS)
def test_the_denominator_is_the_mean_size(chooser):
    separation = chooser.participation.separation
    if isinstance(chooser, Rested):
        chooser = Rested(separation, None, CLIENTS // separation)
    runs = [cohorts_of(chooser, separation, seed) for seed in range(40)]
    mean = np.mean([len(cohort) for run in runs for cohort in run])
    assert mean == pytest.approx(chooser.expected(CLIENTS), rel=0.35)


def test_all_cohorts_that_must_be_full_are():
    chooser = Rested(5, None, 4)
    chooser.refuse_too_few(CLIENTS, 60)
    assert {len(cohort) for cohort in cohorts_of(chooser, 60)} == {4}


def test_orders_follow_from_the_key():
    for kind in (Turns, ShuffledEpochs):
        one, again, other = (cohorts_of(kind(4, None), 8, seed) for seed in (0, 0, 1))
        assert all((a == b).all() for a, b in zip(one, again, strict=True))
        assert any((a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", [Turns, ShuffledEpochs])
def test_an_order_that_is_kept_is_not_that_of_other_streams(kind):
    kept, allowed = kind(4, None), np.ones(CLIENTS, dtype=bool)
    for t in range(9):
        for seed, clients in ((0, CLIENTS), (1, CLIENTS), (1, CLIENTS - 1)):
            streams = SecretStreams.simulated(seed, 0)
            cohort = kept.choose(streams, t, allowed[:clients])
            assert cohort.tolist() == kind(4, None).choose(streams, t, allowed[:clients]).tolist()


def test_a_poisson_turn_has_each_of_its_group_with_the_rate():
    runs = [cohorts_of(CyclicPoisson(3, 0.25), 30, seed, 60) for seed in range(20)]
    share = np.mean([len(cohort) for run in runs for cohort in run]) / 20
    assert share == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("chooser", "clients", "words"),
    [
        (Turns(5, None), 4, "min_separation must be <= 4"),
        (Turns(5, 1), 9, "max_participations must be >= 3"),
        (ShuffledEpochs(5, None), 4, "min_separation must be <= 4"),
        (Rested(5, None, 3), 14, "clients_per_round must be <= 2"),
        (Rested(5, 1, 3), 20, "max_participations must be >= 2"),
        (CyclicPoisson(5, 0.5), 4, "min_separation must be <= 4"),
    ],
)
def test_what_the_clients_cannot_keep_is_refused(chooser, clients, words):
    with pytest.raises(ArgumentError, match=words):
        chooser.refuse_too_few(clients, 12)
