from __future__ import annotations

import numpy as np
import pytest

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanism import CLIP_STATISTIC, GRADIENT, Draw, Query
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling, Sampling

ALL = np.arange(4)
POISSON = PoissonSampling(0.013)


def gradient_draw(sigma: float = 3.0, sampling: Sampling = POISSON) -> Draw:
    return Draw(sampling, (Query(GRADIENT, sigma),))


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
    draw = Draw(PoissonSampling(0.1), (Query(GRADIENT, 3.0), Query(CLIP_STATISTIC, 0.0)))
    ledger.record(draw, ALL, {GRADIENT: np.ones(4), CLIP_STATISTIC: np.full(4, np.inf)})
    entry = only_entry(ledger)
    assert entry.noise_std[CLIP_STATISTIC].high == 0.0
    assert entry.sensitivity[CLIP_STATISTIC].low == np.inf


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
