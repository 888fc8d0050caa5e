from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved, size
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from releases import released

from fedpriv.common.errors import FedprivError, ReleaseError
from fedpriv.privacy.core.names import AGGREGATOR, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling, Sampling, WholeData
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    ONE_HOT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
    Release,
)

ALL = np.arange(4)
POISSON = PoissonSampling(0.013)


def gradient(sigma: float = 3.0, sampling: Sampling = POISSON) -> JointQuery:
    return JointQuery(sampling, (GaussianQuery(GRADIENT, sigma),))


def only_entry(ledger: Ledger):  # type: ignore[no-untyped-def]
    ((_, entry),) = ledger
    return entry


def test_equal_releases_share_an_entry():
    ledger = Ledger(4)
    for _ in range(5):
        ledger.record(released(gradient(), ALL))
    assert len(ledger) == 1
    assert ledger.composition(2) == {gradient(): 5}


def test_releases_with_other_noise_get_an_entry_of_their_own():
    ledger = Ledger(4)
    ledger.record(released(gradient(3.0), ALL))
    ledger.record(released(gradient(2.9), ALL, count=2))
    assert ledger.composition(0) == {gradient(3.0): 1, gradient(2.9): 2}


def test_samples_are_counted_per_client():
    ledger, some = Ledger(4), np.array([3, 1])
    ledger.record(released(gradient(), ALL, count=2))
    ledger.record(released(gradient(), some, count=5))
    assert ledger.samples_of().tolist() == [2, 7, 2, 7]
    assert ledger.samples_of(GRADIENT).tolist() == [2, 7, 2, 7]
    assert ledger.samples_of("other").tolist() == [0, 0, 0, 0]


def test_a_client_that_took_no_part_has_an_empty_composition():
    ledger, some = Ledger(4), np.array([1])
    ledger.record(released(gradient(), some))
    assert ledger.composition(0) == {}


def test_an_empty_cohort_leaves_nothing():
    ledger, nobody = Ledger(4), np.array([], dtype=int)
    ledger.record(released(gradient(), nobody))
    assert ledger.samples_of().tolist() == [0, 0, 0, 0]


def of_four_clip_norms(noise_std: list[float]) -> Release:
    sensitivity = np.array([0.5, 1.0, 2.0, 4.0])
    return Release(gradient(3.0), ALL, {GRADIENT: sensitivity}, {GRADIENT: np.array(noise_std)})


def test_the_absolute_noise_is_sensitivity_times_multiplier():
    ledger = Ledger(4)
    ledger.record(of_four_clip_norms([1.5, 3.0, 6.0, 12.0]))
    extent = only_entry(ledger).noise_std[GRADIENT]
    assert (extent.low, extent.high) == (1.5, 12.0)


@pytest.mark.parametrize("client", range(4))
def test_no_client_may_release_with_less_noise_than_sensitivity_times_multiplier(client):
    noise_std = [1.5, 3.0, 6.0, 12.0]
    noise_std[client] *= 0.999
    with pytest.raises(ReleaseError, match="of its noise multiplier 3"):
        of_four_clip_norms(noise_std)


def test_the_noise_that_was_added_is_entered_where_it_is_more_than_asked_for():
    ledger = Ledger(4)
    ledger.record(of_four_clip_norms([2.0, 3.0, 6.0, 13.0]))
    extent = only_entry(ledger).noise_std[GRADIENT]
    assert (extent.low, extent.high) == (2.0, 13.0)


def test_the_sensitivity_is_kept_as_the_range_it_moved_through():
    ledger, one = Ledger(4), np.array([0])
    for clip_norm in (2.0, 0.5, 1.0):
        ledger.record(released(gradient(), one, {GRADIENT: np.array([clip_norm])}))
    extent = only_entry(ledger).sensitivity[GRADIENT]
    assert (extent.low, extent.high) == (0.5, 2.0)


def test_a_query_without_noise_has_zero_noise_and_its_unbounded_sensitivity():
    ledger = Ledger(4)
    queries = (GaussianQuery(GRADIENT, 3.0), GaussianQuery(CLIP_STATISTIC, 0.0))
    sensitivity = {GRADIENT: np.ones(4), CLIP_STATISTIC: np.full(4, np.inf)}
    ledger.record(released(JointQuery(PoissonSampling(0.1), queries), ALL, sensitivity))
    entry = only_entry(ledger)
    assert entry.noise_std[CLIP_STATISTIC].high == 0.0
    assert entry.sensitivity[CLIP_STATISTIC].low == np.inf


def test_a_histograms_noise_is_that_on_every_count():
    histogram = GaussianQuery(CLIP_STATISTIC, 8.5, replaced=ONE_HOT, by=AGGREGATOR)
    ledger = Ledger(4)
    ledger.record(released(JointQuery(WholeData(REPLACE_ONE), (histogram,)), ALL))
    extent = only_entry(ledger).noise_std[CLIP_STATISTIC]
    assert (extent.low, extent.high) == (8.5, 8.5)


def test_a_flipped_bit_has_a_sensitivity_and_no_noise_that_was_added():
    ledger = Ledger(4)
    queries = (GaussianQuery(GRADIENT, 3.0), RandomizedBit(CLIP_STATISTIC, 1.0))
    sensitivity = {GRADIENT: np.ones(4), CLIP_STATISTIC: np.full(4, 0.5)}
    ledger.record(released(JointQuery(WholeData(REPLACE_ONE), queries), ALL, sensitivity))
    entry = only_entry(ledger)
    assert entry.sensitivity[CLIP_STATISTIC].high == 0.5
    assert set(entry.noise_std) == {GRADIENT}


def test_a_second_neighbouring_relation_is_refused():
    ledger = Ledger(4)
    ledger.record(released(gradient(), ALL))
    with pytest.raises(FedprivError, match=r"under add_or_remove adjacency .* under replace_one"):
        ledger.record(released(gradient(sampling=FixedSizeSampling(100, 5)), ALL))


def test_a_refused_release_leaves_no_trace():
    ledger = Ledger(4)
    ledger.record(released(gradient(), ALL))
    with pytest.raises(FedprivError):
        ledger.record(released(gradient(sampling=FixedSizeSampling(100, 5)), ALL))
    assert ledger.composition(0) == {gradient(): 1}
    assert ledger.neighbours == "add_or_remove"


def test_clients_with_different_rates_live_in_one_ledger():
    ledger, first, second = Ledger(4), np.array([0, 1]), np.array([2, 3])
    ledger.record(released(gradient(sampling=FixedSizeSampling(100, 5)), first))
    ledger.record(released(gradient(sampling=FixedSizeSampling(200, 5)), second))
    assert ledger.samples_of().tolist() == [1, 1, 1, 1]


# ---- histories


def test_an_empty_ledger_has_no_history():
    assert Ledger(4).histories() == []


def test_a_ledger_of_empty_cohorts_has_no_history():
    ledger, nobody = Ledger(4), np.array([], dtype=int)
    ledger.record(released(gradient(), nobody))
    assert ledger.histories() == []


def test_clients_that_made_the_same_releases_share_a_history():
    ledger = Ledger(4)
    ledger.record(released(gradient(3.0), ALL, count=5))
    ledger.record(released(gradient(2.0), ALL))
    assert ledger.histories() == [{gradient(3.0): 5, gradient(2.0): 1}]


def test_clients_that_made_other_releases_have_histories_of_their_own():
    ledger, some = Ledger(4), np.array([1])
    ledger.record(released(gradient(3.0), ALL))
    ledger.record(released(gradient(2.0), some, count=3))
    histories = ledger.histories()
    assert len(histories) == 2
    assert {gradient(3.0): 1} in histories
    assert {gradient(3.0): 1, gradient(2.0): 3} in histories


def test_a_client_that_released_nothing_has_no_history():
    ledger, some = Ledger(4), np.array([1, 2])
    ledger.record(released(gradient(), some, count=2))
    assert ledger.histories() == [{gradient(): 2}]


cohorts = st.sets(st.integers(0, 3)).map(lambda who: np.array(sorted(who), dtype=int))


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from([2.0, 3.0]), cohorts, st.integers(1, 3)), max_size=6))
def test_the_histories_are_the_distinct_compositions_of_those_who_took_part(recorded):
    ledger = Ledger(4)
    for sigma, clients, count in recorded:
        ledger.record(released(gradient(sigma), clients, count=count))
    histories = ledger.histories()
    compositions = {frozenset(ledger.composition(k).items()) for k in range(4)} - {frozenset()}
    assert {frozenset(history.items()) for history in histories} == compositions
    assert len(histories) == len(compositions)


# ---- state


def filled() -> Ledger:
    ledger, some = Ledger(4), np.array([1])
    ledger.record(released(gradient(3.0), ALL))
    ledger.record(released(gradient(2.0), some, count=3))
    return ledger


def everything(ledger: Ledger):  # type: ignore[no-untyped-def]
    ranges = {
        (joint, name): (noise.low, noise.high, entry.sensitivity[name].low)
        for joint, entry in ledger
        for name, noise in entry.noise_std.items()
    }
    return ledger.neighbours, [ledger.composition(k) for k in range(4)], ranges


def test_a_restored_ledger_holds_the_same():
    restored = Ledger(4)
    restored.load_state_dict(saved(filled().state_dict()))
    assert everything(restored) == everything(filled())


def test_a_restored_ledger_still_refuses_the_other_relation():
    restored = Ledger(4)
    restored.load_state_dict(saved(filled().state_dict()))
    with pytest.raises(FedprivError):
        restored.record(released(gradient(sampling=FixedSizeSampling(100, 5)), ALL))


def test_a_saved_state_does_not_change_with_the_ledger():
    ledger = filled()
    state = saved(ledger.state_dict())
    ledger.record(released(gradient(3.0), ALL, count=10))
    restored = Ledger(4)
    restored.load_state_dict(state)
    assert everything(restored) == everything(filled())


def test_two_ledgers_restored_from_one_state_do_not_share_it():
    state = filled().state_dict()
    first, second = Ledger(4), Ledger(4)
    first.load_state_dict(state)
    second.load_state_dict(state)
    first.record(released(gradient(3.0), ALL, count=10))
    assert everything(second) == everything(filled())


def test_a_ledger_is_as_large_as_what_the_clients_did_and_not_as_there_are_clients():
    def charged(clients: int) -> Ledger:
        ledger, stream = Ledger(clients), np.random.default_rng(0)
        for t in range(50):
            some = np.sort(stream.choice(clients, 100, replace=False))
            ledger.record(released(gradient(3.0 + t % 2), some))
            ledger.record(released(gradient(7.0), np.arange(clients)))
        return ledger

    few, many = charged(1000), charged(100_000)
    assert size(many.state_dict()) < size(few.state_dict()) + 100_000
    again = Ledger(100_000)
    again.load_state_dict(saved(many.state_dict()))
    np.testing.assert_array_equal(again.samples_of(), many.samples_of())
    assert again.samples_of().sum() == 50 * (100 + 100_000)
    assert again.histories() == many.histories()
    assert size(again.state_dict()) == size(many.state_dict())
