from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    ONE_HOT,
    JointQuery,
    GaussianQuery,
    RandomizedBit,
)
from fedpriv.privacy.names import AGGREGATOR, REPLACE_ONE
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling, Sampling, WholeData

ALL = np.arange(4)
POISSON = PoissonSampling(0.013)


def gradient_draw(sigma: float = 3.0, sampling: Sampling = POISSON) -> JointQuery:
    return JointQuery(sampling, (GaussianQuery(GRADIENT, sigma),))


def ones(clients: np.ndarray) -> dict[str, np.ndarray]:
    return {GRADIENT: np.ones(len(clients))}


def only_entry(ledger: Ledger):  # type: ignore[no-untyped-def]
    ((_, entry),) = ledger
    return entry


def test_equal_draws_share_an_entry():
    ledger = Ledger(4)
    for _ in range(5):
        ledger.record(gradient_draw(), ALL, ones(ALL))
    assert len(ledger) == 1
    assert ledger.composition(2) == {gradient_draw(): 5}


def test_draws_with_other_noise_get_an_entry_of_their_own():
    ledger = Ledger(4)
    ledger.record(gradient_draw(3.0), ALL, ones(ALL))
    ledger.record(gradient_draw(2.9), ALL, ones(ALL), count=2)
    assert ledger.composition(0) == {gradient_draw(3.0): 1, gradient_draw(2.9): 2}


def test_draws_are_counted_per_client():
    ledger, some = Ledger(4), np.array([3, 1])
    ledger.record(gradient_draw(), ALL, ones(ALL), count=2)
    ledger.record(gradient_draw(), some, ones(some), count=5)
    assert ledger.draws_of().tolist() == [2, 7, 2, 7]
    assert ledger.draws_of(GRADIENT).tolist() == [2, 7, 2, 7]
    assert ledger.draws_of("other").tolist() == [0, 0, 0, 0]


def test_a_client_that_took_no_part_has_an_empty_composition():
    ledger, some = Ledger(4), np.array([1])
    ledger.record(gradient_draw(), some, ones(some))
    assert ledger.composition(0) == {}


def test_an_empty_cohort_leaves_nothing():
    ledger, nobody = Ledger(4), np.array([], dtype=int)
    ledger.record(gradient_draw(), nobody, ones(nobody))
    assert ledger.draws_of().tolist() == [0, 0, 0, 0]


def test_the_absolute_noise_is_sensitivity_times_multiplier():
    ledger = Ledger(4)
    ledger.record(gradient_draw(3.0), ALL, {GRADIENT: np.array([0.5, 1.0, 2.0, 4.0])})
    extent = only_entry(ledger).noise_std[GRADIENT]
    assert (extent.low, extent.high) == (1.5, 12.0)


def test_the_sensitivity_is_kept_as_the_range_it_moved_through():
    ledger, one = Ledger(4), np.array([0])
    for bound in (2.0, 0.5, 1.0):
        ledger.record(gradient_draw(), one, {GRADIENT: np.array([bound])})
    extent = only_entry(ledger).sensitivity[GRADIENT]
    assert (extent.low, extent.high) == (0.5, 2.0)


def test_a_query_without_noise_has_zero_noise_and_its_unbounded_sensitivity():
    ledger = Ledger(4)
    draw = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, 3.0), GaussianQuery(CLIP_STATISTIC, 0.0)))
    ledger.record(draw, ALL, {GRADIENT: np.ones(4), CLIP_STATISTIC: np.full(4, np.inf)})
    entry = only_entry(ledger)
    assert entry.noise_std[CLIP_STATISTIC].high == 0.0
    assert entry.sensitivity[CLIP_STATISTIC].low == np.inf


def test_a_histograms_noise_is_that_on_every_count():
    histogram = GaussianQuery(CLIP_STATISTIC, 8.5, replaced=ONE_HOT, by=AGGREGATOR)
    ledger = Ledger(4)
    ledger.record(JointQuery(WholeData(REPLACE_ONE), (histogram,)), ALL, {CLIP_STATISTIC: np.ones(4)})
    extent = only_entry(ledger).noise_std[CLIP_STATISTIC]
    assert (extent.low, extent.high) == (8.5, 8.5)


def test_a_flipped_bit_has_a_sensitivity_and_no_noise_that_was_added():
    ledger = Ledger(4)
    draw = JointQuery(WholeData(REPLACE_ONE), (GaussianQuery(GRADIENT, 3.0), RandomizedBit(CLIP_STATISTIC, 1.0)))
    ledger.record(draw, ALL, {GRADIENT: np.ones(4), CLIP_STATISTIC: np.full(4, 0.5)})
    entry = only_entry(ledger)
    assert entry.sensitivity[CLIP_STATISTIC].high == 0.5
    assert set(entry.noise_std) == {GRADIENT}


def test_a_second_neighbouring_relation_is_refused():
    ledger = Ledger(4)
    ledger.record(gradient_draw(), ALL, ones(ALL))
    with pytest.raises(FedprivError, match=r"under add_or_remove neighbours .* under replace_one"):
        ledger.record(gradient_draw(sampling=FixedSizeSampling(100, 5)), ALL, ones(ALL))


def test_a_refused_draw_leaves_no_trace():
    ledger = Ledger(4)
    ledger.record(gradient_draw(), ALL, ones(ALL))
    with pytest.raises(FedprivError):
        ledger.record(gradient_draw(sampling=FixedSizeSampling(100, 5)), ALL, ones(ALL))
    assert ledger.composition(0) == {gradient_draw(): 1}
    assert ledger.neighbours == "add_or_remove"


def test_clients_with_different_rates_live_in_one_ledger():
    ledger, first, second = Ledger(4), np.array([0, 1]), np.array([2, 3])
    ledger.record(gradient_draw(sampling=FixedSizeSampling(100, 5)), first, ones(first))
    ledger.record(gradient_draw(sampling=FixedSizeSampling(200, 5)), second, ones(second))
    assert ledger.draws_of().tolist() == [1, 1, 1, 1]


# ---- histories


def test_an_empty_ledger_has_no_history():
    assert Ledger(4).histories() == []


def test_a_ledger_of_empty_cohorts_has_no_history():
    ledger, nobody = Ledger(4), np.array([], dtype=int)
    ledger.record(gradient_draw(), nobody, ones(nobody))
    assert ledger.histories() == []


def test_clients_that_made_the_same_draws_share_a_history():
    ledger = Ledger(4)
    ledger.record(gradient_draw(3.0), ALL, ones(ALL), count=5)
    ledger.record(gradient_draw(2.0), ALL, ones(ALL))
    assert ledger.histories() == [{gradient_draw(3.0): 5, gradient_draw(2.0): 1}]


def test_clients_that_made_other_draws_have_histories_of_their_own():
    ledger, some = Ledger(4), np.array([1])
    ledger.record(gradient_draw(3.0), ALL, ones(ALL))
    ledger.record(gradient_draw(2.0), some, ones(some), count=3)
    histories = ledger.histories()
    assert len(histories) == 2
    assert {gradient_draw(3.0): 1} in histories
    assert {gradient_draw(3.0): 1, gradient_draw(2.0): 3} in histories


def test_a_client_that_made_no_draw_has_no_history():
    ledger, some = Ledger(4), np.array([1, 2])
    ledger.record(gradient_draw(), some, ones(some), count=2)
    assert ledger.histories() == [{gradient_draw(): 2}]


cohorts = st.sets(st.integers(0, 3)).map(lambda who: np.array(sorted(who), dtype=int))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([2.0, 3.0]), cohorts, st.integers(1, 3)), max_size=6))
def test_the_histories_are_the_distinct_compositions_of_those_who_took_part(recorded):
    ledger = Ledger(4)
    for sigma, clients, count in recorded:
        ledger.record(gradient_draw(sigma), clients, ones(clients), count)
    histories = ledger.histories()
    compositions = {frozenset(ledger.composition(k).items()) for k in range(4)} - {frozenset()}
    assert {frozenset(history.items()) for history in histories} == compositions
    assert len(histories) == len(compositions)


# ---- state


def filled() -> Ledger:
    ledger, some = Ledger(4), np.array([1])
    ledger.record(gradient_draw(3.0), ALL, ones(ALL))
    ledger.record(gradient_draw(2.0), some, ones(some), count=3)
    return ledger


def everything(ledger: Ledger):  # type: ignore[no-untyped-def]
    ranges = {
        (draw, name): (noise.low, noise.high, entry.sensitivity[name].low)
        for draw, entry in ledger
        for name, noise in entry.noise_std.items()
    }
    return ledger.neighbours, [ledger.composition(k) for k in range(4)], ranges


def test_a_restored_ledger_holds_the_same():
    restored = Ledger(4)
    restored.load_state_dict(filled().state_dict())
    assert everything(restored) == everything(filled())


def test_a_restored_ledger_still_refuses_the_other_relation():
    restored = Ledger(4)
    restored.load_state_dict(filled().state_dict())
    with pytest.raises(FedprivError):
        restored.record(gradient_draw(sampling=FixedSizeSampling(100, 5)), ALL, ones(ALL))


def test_a_saved_state_does_not_change_with_the_ledger():
    ledger = filled()
    state = ledger.state_dict()
    ledger.record(gradient_draw(3.0), ALL, ones(ALL), count=10)
    restored = Ledger(4)
    restored.load_state_dict(state)
    assert everything(restored) == everything(filled())


def test_two_ledgers_restored_from_one_state_do_not_share_it():
    state = filled().state_dict()
    first, second = Ledger(4), Ledger(4)
    first.load_state_dict(state)
    second.load_state_dict(state)
    first.record(gradient_draw(3.0), ALL, ones(ALL), count=10)
    assert everything(second) == everything(filled())
