from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import (
    SAMPLING_NAMES,
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
    make_sampling,
    poisson_lots,
    sample_lot,
)

laws = settings(max_examples=examples(50))


def lots(sampling, records: int, count: int) -> list[np.ndarray]:
    return [sampling.sample(numpy_stream(0, "test_lots", t), records) for t in range(count)]


# ---- Poisson


def test_the_fraction_of_records_sampled_is_the_rate():
    sizes = [len(lot) for lot in lots(PoissonSampling(0.013), 6000, 400)]
    error = np.mean(sizes) - 78.0
    assert abs(error) < 4 * math.sqrt(6000 * 0.013 * 0.987 / 400)


@laws
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=20),
    rate=st.floats(0.001, 1),
    key=st.integers(0, 999),
)
def test_lots_drawn_together_are_those_drawn_one_by_one(sizes, rate, key):
    streams, sampling = SecretStreams.simulated(key, 0), PoissonSampling(rate)
    records = [100 * k + np.arange(size) for k, size in enumerate(sizes)]
    clients = 3 * np.arange(len(sizes))
    together = poisson_lots(streams, sampling, records, 5, 1, clients)
    alone = [
        sample_lot(streams, sampling, indices, 5, 1, int(k))
        for k, indices in zip(clients, records, strict=True)
    ]
    assert [lot.tolist() for lot in together] == [lot.tolist() for lot in alone]


def test_lot_sizes_vary_like_a_binomial():
    sizes = [len(lot) for lot in lots(PoissonSampling(0.1), 500, 2000)]
    assert np.var(sizes) == pytest.approx(500 * 0.1 * 0.9, rel=0.15)


def test_every_record_is_as_likely_as_every_other():
    sampled = np.bincount(np.concatenate(lots(PoissonSampling(0.2), 50, 4000)), minlength=50)
    deviations = (sampled - 800) / math.sqrt(4000 * 0.2 * 0.8)
    assert np.abs(deviations).max() < 4.5


def test_two_records_are_sampled_independently():
    both = [{3, 7} <= set(lot) for lot in lots(PoissonSampling(0.3), 10, 4000)]
    assert np.mean(both) == pytest.approx(0.09, abs=4 * math.sqrt(0.09 * 0.91 / 4000))


def test_empty_lots_happen():
    sizes = [len(lot) for lot in lots(PoissonSampling(0.05), 10, 1000)]
    expected = 0.95**10
    assert np.mean(np.array(sizes) == 0) == pytest.approx(expected, abs=0.06)


@laws
@given(rate=st.floats(0.0, 1.0), records=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_a_poisson_lot_names_distinct_records_in_order(rate, records, seed):
    lot = PoissonSampling(rate).sample(numpy_stream(seed, "test_lots"), records)
    assert np.all(np.diff(lot) > 0)
    assert set(lot) <= set(range(records))


def test_a_rate_of_one_samples_everybody():
    lot = PoissonSampling(1.0).sample(numpy_stream(0, "test_lots"), 100)
    assert lot.tolist() == list(range(100))


def test_the_denominator_of_poisson_lots_is_public():
    assert PoissonSampling(0.013).expected_size(5800) == pytest.approx(75.4)


def test_a_poisson_lot_is_priced_by_its_rate_and_multiplier():
    event = PoissonSampling(0.013).event(3.0)
    assert event == dp_event.PoissonSampledDpEvent(0.013, dp_event.GaussianDpEvent(3.0))


# ---- fixed size


@laws
@given(records=st.integers(1, 300), seed=st.integers(0, 2**32), data=st.data())
def test_a_fixed_lot_has_its_size_and_distinct_records_in_order(records, seed, data):
    size = data.draw(st.integers(1, records))
    lot = FixedSizeSampling(records, size).sample(numpy_stream(seed, "test_lots"), records)
    assert len(lot) == size
    assert np.all(np.diff(lot) > 0)
    assert set(lot) <= set(range(records))


def test_every_record_is_as_likely_in_fixed_lots():
    sampled = np.bincount(np.concatenate(lots(FixedSizeSampling(50, 10), 50, 4000)), minlength=50)
    deviations = (sampled - 800) / math.sqrt(4000 * 0.2 * 0.8)
    assert np.abs(deviations).max() < 4.5


def test_the_denominator_of_fixed_lots_is_their_size():
    assert FixedSizeSampling(6000, 78).expected_size(6000) == 78.0


def test_a_fixed_lot_is_priced_with_twice_the_sensitivity():
    event = FixedSizeSampling(6000, 78).event(3.0)
    gaussian = dp_event.GaussianDpEvent(1.5)
    assert event == dp_event.SampledWithoutReplacementDpEvent(6000, 78, gaussian)


# ---- both


@pytest.mark.parametrize("sampling", [PoissonSampling(0.1), FixedSizeSampling(100, 10)])
def test_a_lot_depends_on_its_stream_alone(sampling):
    first, again, other = (
        sampling.sample(numpy_stream(seed, "test_lots"), 100).tolist() for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("sampling", "neighbours"),
    [(PoissonSampling(0.1), "add_or_remove"), (FixedSizeSampling(100, 10), "replace_one")],
)
def test_the_sampling_fixes_the_neighbouring_relation(sampling, neighbours):
    assert sampling.neighbours == neighbours


def test_samplings_are_made_by_name():
    made = [make_sampling(name, 0.013, 5800) for name in SAMPLING_NAMES]
    assert made == [PoissonSampling(0.013), FixedSizeSampling(5800, 75)]


def test_a_fixed_lot_holds_at_least_one_record():
    assert make_sampling("fixed_size", 0.001, 20) == FixedSizeSampling(20, 1)


def test_equal_samplings_are_one_key():
    assert len({PoissonSampling(0.1), PoissonSampling(0.1), FixedSizeSampling(10, 1)}) == 2


# ---- Poisson with a cap


def test_a_capped_lot_never_exceeds_its_cap_and_is_a_poisson_lot_below_it():
    capped, free = TruncatedPoissonSampling(0.1, 500, 50), PoissonSampling(0.1)
    for t in range(200):
        cut, whole = (s.sample(numpy_stream(0, "test_lots", t), 500) for s in (capped, free))
        assert len(cut) <= 50
        assert set(cut) <= set(whole)
        assert len(whole) > 50 or cut.tolist() == whole.tolist()
        assert cut.tolist() == sorted(cut)


def test_who_is_cut_is_chosen_uniformly():
    sampled = np.bincount(
        np.concatenate(lots(TruncatedPoissonSampling(0.9, 20, 10), 20, 4000)), minlength=20
    )
    deviations = (sampled - 2000) / math.sqrt(4000 * 0.5 * 0.5)
    assert np.abs(deviations).max() < 4.5


def test_a_record_more_can_push_another_one_out():
    """That is why capping is charged: the sum of a capped lot may move by 2C."""
    pushed = False
    for t in range(50):
        sampling = TruncatedPoissonSampling(0.9, 12, 10)
        before, after = (
            set(sampling.sample(numpy_stream(0, "test_lots", t), n).tolist()) for n in (11, 12)
        )
        pushed |= 11 in after and not before <= after
    assert pushed


def test_the_denominator_of_capped_lots_is_not_the_cap():
    assert TruncatedPoissonSampling(0.1, 500, 40).expected_size(500) == 50.0


def test_the_event_of_capped_lots_holds_the_cap_and_the_records():
    event = TruncatedPoissonSampling(0.1, 500, 40).event(3.0)
    assert event == dp_event.TruncatedSubsampledGaussianDpEvent(500, 0.1, 40, 3.0)


def test_a_cap_makes_poisson_lots_capped_ones():
    assert make_sampling("poisson", 0.1, 500, 40) == TruncatedPoissonSampling(0.1, 500, 40)


# ---- no sampling


def test_whole_data_takes_every_record_every_time():
    assert WholeData().sample(numpy_stream(0, "test_lots"), 5).tolist() == [0, 1, 2, 3, 4]
    assert WholeData().expected_size(5) == 5.0


def test_replacing_a_record_of_whole_data_halves_the_multiplier():
    assert WholeData(ADD_OR_REMOVE).event(3.0) == dp_event.GaussianDpEvent(3.0)
    assert WholeData(REPLACE_ONE).event(3.0) == dp_event.GaussianDpEvent(1.5)
