"""Median clipping by a noised histogram: where C jumps, when it is asked, and what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from clippers.suite import ClipperSuite
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.clippers import MedianHistogramClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.names import ADD_OR_REMOVE, AGGREGATOR, REPLACE_ONE
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    ONE_HOT,
    GaussianQuery,
    JointQuery,
    Unprotected,
)

laws = settings(max_examples=examples(60))


def make(**keys) -> MedianHistogramClipper:  # type: ignore[no-untyped-def]
    settings = {"initial_clip_norm": 1.0, "update_interval": 1, "updates": 10}
    return MedianHistogramClipper(**{**settings, **keys})


def started(clients: int = 1, **keys) -> MedianHistogramClipper:  # type: ignore[no-untyped-def]
    clipper = make(**keys)
    clipper.start(clients, "cpu", None)
    return clipper


class TestAsking(ClipperSuite):
    def make(self):
        return make()


class TestNotAskingYet(ClipperSuite):
    adapts = False

    def make(self):
        return make(update_interval=2)


# ---- the clip norm


def observed(counts: list[list[float]] | None, clients: int = 1) -> list[float]:
    """The clip norms after a released histogram of each client over the edges 0.5, 2, 8."""
    clipper = started(clients, edges=[0.5, 2.0, 8.0])
    released = None if counts is None else Unprotected(torch.tensor(counts))
    gradients = Unprotected(torch.zeros(clients, 3))
    clipper.observe(torch.arange(clients), released, gradients, torch.ones(clients))
    return clipper.clip_norm(0, torch.arange(clients)).tolist()


def test_the_clip_norm_becomes_the_upper_edge_of_the_median_bin():
    assert observed([[1.0, 1.0, 5.0]]) == [8.0]


def test_each_clip_norm_follows_its_own_histogram():
    assert observed([[9.0, 0.1, 0.0], [0.0, 9.0, 0.1]], clients=2) == [0.5, 2.0]


def test_the_clip_norm_stays_where_nothing_was_asked():
    assert observed(None) == [1.0]


def test_the_clip_norm_stays_where_the_noise_left_no_median():
    assert observed([[-3.0, -0.1, 0.0]]) == [1.0]


@laws
@given(norms=st.lists(st.floats(0.01, 30.0), min_size=1, max_size=30))
def test_without_noise_the_clip_norm_is_the_next_edge_above_the_median_norm(norms):
    clipper, client = started(), torch.tensor([0])
    values, owners = torch.tensor(norms), torch.zeros(len(norms), dtype=torch.long)
    counts = Unprotected(StepClip(clipper, 0, client).statistic(values, owners).values)
    clipper.observe(client, counts, Unprotected(torch.zeros(1, 3)), torch.ones(1))
    median = np.quantile(values.numpy(), 0.5, method="inverted_cdf")
    assert clipper.clip_norm(0, client).item() == min(e for e in clipper.edges if e >= median)


# ---- when it is asked


def asked(clipper: MedianHistogramClipper, rounds: int) -> list[int]:
    return [t for t in range(rounds) if clipper.query(t, 1.0) is not None]


def test_it_is_asked_at_the_end_of_every_interval():
    assert asked(make(update_interval=3, updates=10), 12) == [2, 5, 8, 11]


def test_it_is_not_asked_more_often_than_planned():
    assert asked(make(update_interval=3, updates=2), 1000) == [2, 5]


@laws
@given(rounds=st.integers(1, 200), data=st.data())
def test_as_many_updates_as_asked_for_fit_in_the_rounds(rounds, data):
    updates = data.draw(st.integers(1, rounds))
    clipper = make(update_interval=None, updates=updates, rounds=rounds)
    assert len(asked(clipper, rounds)) == updates == len(asked(clipper, 10 * rounds))


@laws
@given(rounds=st.integers(1, 200), data=st.data())
def test_an_interval_plans_for_all_the_rounds(rounds, data):
    interval = data.draw(st.integers(1, rounds))
    clipper = make(update_interval=interval, updates=None, rounds=rounds)
    assert len(asked(clipper, rounds)) == clipper.updates == rounds // interval


def test_interval_and_updates_together_need_no_rounds():
    clipper = make(update_interval=4, updates=2, rounds=None)
    assert (clipper.update_interval, clipper.updates) == (4, 2)


# ---- what it costs


def test_the_sensitivity_entered_is_one_whatever_the_clip_norm():
    clipper, client = started(initial_clip_norm=7.0), torch.tensor([0])
    answer = StepClip(clipper, 0, client).statistic(torch.tensor([3.0]), client)
    assert answer.sensitivity.tolist() == [1.0]
    assert answer.replaced == ONE_HOT
    assert answer.divided_by == 1.0


def price(clipper: MedianHistogramClipper, neighbours: str, updates: int) -> float:
    query = clipper.query(clipper.update_interval - 1, 1.0)
    event = JointQuery(WholeData(neighbours), (query,)).event()
    return GdpAccountant().epsilon_of({event: updates}, clipper.delta, neighbours)


@pytest.mark.parametrize("updates", [1, 2, 10, 1000])
def test_all_planned_histograms_together_cost_exactly_what_was_said(updates):
    clipper = make(updates=updates)
    assert (clipper.epsilon, clipper.delta) == (0.8, 1e-8)
    assert price(clipper, REPLACE_ONE, updates) == pytest.approx(0.8, abs=1e-9)


@laws
@given(epsilon=st.floats(0.01, 20.0), delta=st.floats(1e-10, 0.01), updates=st.integers(1, 100))
def test_any_epsilon_and_delta_are_kept_to(epsilon, delta, updates):
    clipper = make(epsilon=epsilon, delta=delta, updates=updates)
    assert price(clipper, REPLACE_ONE, updates) == pytest.approx(epsilon, rel=1e-6)


def test_one_histogram_more_than_planned_would_cost_more():
    assert price(make(updates=10), REPLACE_ONE, 11) > 0.8


def test_where_units_join_and_leave_it_costs_less():
    assert 0 < price(make(), ADD_OR_REMOVE, 10) < 0.8


def test_the_noise_is_a_root_of_two_updates_over_mu():
    """μ of (0.8, 1e-8), and √2 √10 / μ on every count."""
    mu = math.sqrt(GdpAccountant().largest_sum(0.8, 1e-8))
    assert make(updates=10).noise_std == pytest.approx(math.sqrt(2 * 10) / mu)


def test_the_query_is_one_hot_and_noised_by_the_aggregator_with_the_noise_charged():
    clipper = make()
    expected = GaussianQuery(CLIP_STATISTIC, clipper.noise_std, replaced=ONE_HOT, by=AGGREGATOR)
    assert clipper.query(0, 7.0) == expected


def test_the_trust_in_the_aggregator_is_stated_with_the_epsilon():
    words = make(epsilon=0.5, updates=7).aggregator_caveat
    assert "trusted aggregator" in words
    assert "All 7 planned histograms together are (0.5, 1e-08)-DP" in words


# ---- arguments

EDGES = "edges must be "


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"initial_clip_norm": 0}, "initial_clip_norm must be > 0 and <= 1e+12, got 0"),
        ({"epsilon": 0}, "epsilon must be > 0, got 0"),
        ({"delta": 0}, "delta must be > 0 and < 1, got 0"),
        ({"delta": 1}, "delta must be > 0 and < 1, got 1"),
        ({"update_interval": 0}, "update_interval must be a whole number >= 1, got 0"),
        ({"updates": 0}, "updates must be a whole number >= 1, got 0"),
        ({"updates": None}, "updates must be a whole number >= 1 when rounds is null, got null"),
        (
            {"update_interval": None},
            "update_interval must be a whole number >= 1 when rounds is null, got null",
        ),
        (
            {"update_interval": None, "updates": None, "rounds": 10},
            "update_interval must be a whole number >= 1, or updates given, got null",
        ),
        (
            {"update_interval": None, "updates": 11, "rounds": 10},
            "updates must be <= 10, the number of rounds, got 11",
        ),
        (
            {"update_interval": 3, "updates": 4, "rounds": 11},
            "updates must be <= 3, which fit into 11 rounds with update_interval = 3, got 4",
        ),
        (
            {"update_interval": 11, "updates": None, "rounds": 10},
            "update_interval must be <= 10, the number of rounds, got 11",
        ),
        ({"bins": 0}, "bins must be a whole number >= 1 and <= 1000, got 0"),
        ({"bins": 1001}, "bins must be a whole number >= 1 and <= 1000, got 1001"),
        ({"smallest_exponent": -61}, "smallest_exponent must be >= -60 and <= 39, got -61"),
        ({"largest_exponent": 40}, "largest_exponent must be >= -60 and <= 39, got 40"),
        ({"largest_exponent": -7}, "largest_exponent must be > -7, smallest_exponent, got -7.0"),
        ({"edges": []}, EDGES + "a list of upper edges, such as [0.01,0.1,1], got []"),
        ({"edges": "1,2"}, EDGES + "a list of upper edges, such as [0.01,0.1,1], got 1,2"),
        ({"edges": 3.0}, EDGES + "a list of upper edges, such as [0.01,0.1,1], got 3.0"),
        ({"edges": [0.0, 1.0]}, EDGES + "> 0 and <= 1e+12, got 0.0"),
        ({"edges": [1.0, math.inf]}, EDGES + "finite, > 0 and <= 1e+12, got inf"),
        ({"edges": [2.0, 1.0]}, EDGES + "in ascending order, each once, got [2.0, 1.0]"),
        ({"edges": [1.0, 1.0]}, EDGES + "in ascending order, each once, got [1.0, 1.0]"),
        ({"edges": list(range(1, 1002))}, EDGES + "at most 1000, got 1001 edges"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_argument_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ArgumentError) as caught:
        make(**keys)
    assert str(caught.value) == message
