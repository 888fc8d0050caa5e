"""What the clients' own noise is worth, and what a trusted aggregator's is, each alone."""

from __future__ import annotations

import numpy as np
import pytest
from releases import announced, group_of, released

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant
from fedpriv.privacy.budget import Budget, Target
from fedpriv.privacy.clippers import MedianHistogramClipper
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT, REPLACE_ONE
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
)
from fedpriv.privacy.mechanisms.claims import ldp_fedsgd

DELTA = 1e-8
ALL, FIRST = np.arange(3), np.array([0])
GDP = GdpAccountant()
HISTOGRAM = MedianHistogramClipper(0.1, update_interval=2, updates=5)
REPORT = GaussianQuery(GRADIENT, 40.0)


def joint(*queries) -> JointQuery:  # type: ignore[no-untyped-def]
    return JointQuery(WholeData(REPLACE_ONE), queries)


def round_of(round_index: int) -> JointQuery:
    """A noised report, and the histogram where the clipper asks for one."""
    histogram = HISTOGRAM.query(round_index, 40.0)
    return joint(REPORT) if histogram is None else joint(REPORT, histogram)


def budget() -> Budget:
    return Budget(
        clients=3,
        target=Target(None, DELTA, "sound", GDP),
        claim=ldp_fedsgd(),
        first=group_of(joint(REPORT), ALL),
    )


def charge(spent: Budget, one: JointQuery, clients: np.ndarray = ALL, count: int = 1) -> None:
    for _ in range(count):
        spent.charge([released(one, clients)], announced(one, ALL))


def of_reports(count: int, multiplier: float = 40.0) -> float:
    return GDP.epsilon_of_sum(count * (2 / multiplier) ** 2, DELTA)


def run_of_ten_rounds() -> Budget:
    spent = budget()
    for t in range(10):
        charge(spent, round_of(t))
    return spent


def test_all_planned_histograms_of_an_aggregator_cost_the_epsilon_they_were_made_for():
    assert run_of_ten_rounds().epsilon_of_part(AGGREGATOR) == pytest.approx(0.8, abs=1e-9)


def test_the_clients_part_is_the_cost_of_their_reports_alone():
    assert run_of_ten_rounds().epsilon_of_part(CLIENT) == pytest.approx(of_reports(10))


def test_both_parts_together_cost_more_than_either():
    spent = run_of_ten_rounds()
    parts = [spent.epsilon_of_part(by) for by in (CLIENT, AGGREGATOR)]
    assert max(parts) < spent.epsilon_sound()[0] < sum(parts)


def test_without_an_aggregator_its_part_is_none():
    spent = budget()
    charge(spent, joint(REPORT))
    assert spent.epsilon_of_part(AGGREGATOR) is None


def test_before_anything_was_released_there_is_no_part():
    assert budget().epsilon_of_part(CLIENT) is None


def test_without_an_aggregator_the_clients_part_is_the_whole():
    spent = budget()
    charge(spent, joint(REPORT), count=7)
    assert spent.epsilon_of_part(CLIENT) == pytest.approx(spent.epsilon_sound()[0])


def test_a_part_is_that_of_the_client_that_released_most():
    spent = budget()
    charge(spent, joint(REPORT), FIRST)
    charge(spent, joint(GaussianQuery(GRADIENT, 30.0)), np.array([1]), count=5)
    charge(spent, joint(REPORT), np.array([2]), count=2)
    assert spent.epsilon_of_part(CLIENT) == pytest.approx(of_reports(5, 30.0))


def test_an_aggregator_that_noised_something_of_one_client_only_has_a_part():
    spent = budget()
    charge(spent, joint(REPORT), count=3)
    charge(spent, round_of(1), FIRST)
    expected = GDP.epsilon_of_sum(2 / HISTOGRAM.noise_std**2, DELTA)
    assert spent.epsilon_of_part(AGGREGATOR) == pytest.approx(expected)


def test_equal_parts_of_different_releases_are_added_up():
    """The report is the same with and without a histogram beside it."""
    spent = budget()
    charge(spent, round_of(0), count=3)
    charge(spent, round_of(1), count=2)
    assert spent.epsilon_of_part(CLIENT) == pytest.approx(of_reports(5))


def test_a_part_without_noise_is_worth_nothing():
    spent = budget()
    charge(spent, joint(REPORT, GaussianQuery(CLIP_STATISTIC, 0.0, by=AGGREGATOR)))
    assert spent.epsilon_of_part(AGGREGATOR) == float("inf")
    assert spent.epsilon_of_part(CLIENT) == pytest.approx(of_reports(1))


def test_what_was_known_before_the_run_is_nobodys_part():
    spent = budget()
    spent.expose(["vocabulary"])
    charge(spent, round_of(1))
    assert spent.epsilon_of_part(AGGREGATOR) < spent.epsilon_sound()[0] == float("inf")
    assert spent.epsilon_of_part(CLIENT) == pytest.approx(of_reports(1))


def test_flipped_bits_are_in_the_clients_part():
    spent, one = budget(), joint(REPORT, RandomizedBit(CLIP_STATISTIC, 0.5))
    both = PldAccountant().epsilon_of({one.event(): 4}, DELTA, REPLACE_ONE)
    sensitivity = {GRADIENT: np.ones(3), CLIP_STATISTIC: np.full(3, 0.5)}
    spent.ledger.record(released(one, ALL, sensitivity, 4))
    assert spent.epsilon_of_part(CLIENT) == both > of_reports(4)
