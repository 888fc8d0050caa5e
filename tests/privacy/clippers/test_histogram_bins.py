"""The histogram of norms that median clipping asks for: its edges, its counts, and its median."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.clippers import MedianHistogramClipper
from fedpriv.privacy.clippers.histogram import geometric_edges, median_bin
from fedpriv.privacy.mechanisms import ONE_HOT

laws = settings(max_examples=examples(60))
whole_counts = st.lists(st.integers(0, 50), min_size=1, max_size=20)
noised_counts = st.lists(st.floats(-100.0, 100.0), min_size=1, max_size=20)


# ---- edges


def test_geometric_edges_are_evenly_spaced_in_the_exponent():
    assert geometric_edges(-7, 5, 13) == [2.0**i for i in range(-7, 6)]


def test_geometric_edges_may_have_exponents_between_whole_numbers():
    assert geometric_edges(0, 1, 3) == pytest.approx([1.0, math.sqrt(2), 2.0])


def test_a_single_geometric_bin_ends_at_the_largest_exponent():
    assert geometric_edges(-7, 5, 1) == [32.0]


# ---- counts


def histograms(norms: list[float], edges: list[float], holders: list[int]) -> list[list[float]]:
    """The counts of each holder of a clip norm, 0 … the largest of ``holders`` (or only 0)."""
    clipper = MedianHistogramClipper(1.0, update_interval=1, updates=1, edges=edges)
    clients = max(holders, default=0) + 1
    clipper.start(clients, "cpu", None)
    owners = torch.tensor(holders, dtype=torch.long)
    answer = clipper.statistic(torch.tensor(norms), owners, torch.ones(clients))
    assert answer.sensitivity.tolist() == [1.0] * clients
    assert answer.replaced == ONE_HOT
    return answer.values.tolist()


def histogram(norms: list[float], edges: list[float]) -> list[float]:
    return histograms(norms, edges, [0] * len(norms))[0]


def test_a_norm_is_counted_in_the_bin_that_holds_it():
    assert histogram([0.5, 1.5, 1.7, 3.0], [1.0, 2.0, 4.0]) == [1, 2, 1]


def test_an_edge_belongs_to_the_bin_below_it():
    assert histogram([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]) == [1, 1, 1]


def test_a_norm_of_zero_is_in_the_first_bin():
    assert histogram([0.0], [1.0, 2.0, 4.0]) == [1, 0, 0]


@pytest.mark.parametrize("norm", [4.1, 1e30, math.inf])
def test_a_norm_above_the_last_edge_counts_as_the_last_bin(norm):
    assert histogram([norm], [1.0, 2.0, 4.0]) == [0, 0, 1]


def test_an_empty_lot_has_an_empty_histogram():
    assert histogram([], [1.0, 2.0, 4.0]) == [0, 0, 0]


def test_each_holder_of_a_clip_norm_has_a_histogram_of_its_own():
    counts = histograms([0.5, 1.5, 1.6, 9.0], [1.0, 2.0], [0, 2, 2, 0])
    assert counts == [[1, 1], [0, 0], [0, 2]]


@laws
@given(
    norms=st.lists(st.floats(0.0, 50.0, width=32), max_size=20),
    unit=st.floats(0.0, 50.0, width=32),
    other=st.floats(0.0, 50.0, width=32),
)
def test_a_replaced_unit_moves_the_histogram_by_at_most_a_root_of_two(norms, unit, other):
    edges = geometric_edges(-3, 4, 8)
    pair = [np.array(histogram([*norms, one], edges)) for one in (unit, other)]
    assert np.linalg.norm(pair[0] - pair[1]) <= ONE_HOT


@laws
@given(
    norms=st.lists(st.floats(0.0, 50.0, width=32), max_size=20), unit=st.floats(0.0, 50.0, width=32)
)
def test_one_unit_more_moves_the_histogram_by_exactly_its_sensitivity(norms, unit):
    edges = geometric_edges(-3, 4, 8)
    pair = [np.array(histogram(lot, edges)) for lot in (norms, [*norms, unit])]
    assert np.linalg.norm(pair[0] - pair[1]) == 1.0


# ---- the median bin


@laws
@given(counts=whole_counts)
def test_the_median_bin_is_that_of_the_lower_median(counts):
    assume(any(counts))
    bins = np.repeat(np.arange(len(counts)), counts)
    assert median_bin(counts) == np.quantile(bins, 0.5, method="inverted_cdf")


@laws
@given(counts=whole_counts)
def test_for_an_odd_number_of_units_it_is_numpys_median(counts):
    assume(sum(counts) % 2 == 1)
    assert median_bin(counts) == np.median(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize("counts", [[], [0, 0, 0], [-1.0, -2.0], [0.0, -0.5]])
def test_a_histogram_without_a_positive_count_has_no_median(counts):
    assert median_bin(counts) is None


@pytest.mark.parametrize(("counts", "lower"), [([1, 1], 0), ([2, 0, 2], 0), ([0, 3, 1, 2], 1)])
def test_a_tie_goes_to_the_lower_bin(counts, lower):
    assert median_bin(counts) == lower


@laws
@given(counts=noised_counts)
def test_negative_counts_are_taken_as_zero(counts):
    assert median_bin(counts) == median_bin([max(0.0, count) for count in counts])


@laws
@given(counts=noised_counts)
@example(counts=[5e-324])
def test_the_median_bin_holds_a_positive_count(counts):
    index = median_bin(counts)
    assert (index is None and max(counts) <= 0) or counts[index] > 0


@laws
@given(counts=whole_counts, exponent=st.integers(-60, 60))
def test_the_median_does_not_depend_on_the_scale(counts, exponent):
    assert median_bin([count * 2.0**exponent for count in counts]) == median_bin(counts)


def test_a_single_bin_needs_no_range_of_exponents():
    clipper = MedianHistogramClipper(
        1.0, update_interval=1, updates=1, smallest_exponent=2, largest_exponent=2, bins=1
    )
    assert clipper.edges == [4.0]
