"""The shuffle model: against published numbers, sums over all outcomes, and what it says of large reports."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.shuffling import (
    BIT,
    PURE,
    clone_probability,
    delta_of_shuffled,
    epsilon_of_shuffled,
    gaussian_report,
    secure_sum_epsilon,
)

PUBLISHED = (0.1675385583317841, 0.172790550755978)
"""Lower and upper bound at ε₀ = 4, n = 100,000, δ = 1e-6: README of apple/ml-shuffling-amplification, the
code of Feldman, McMillan, Talwar 2021."""
BY_THEIR_CODE = {
    (0.5, 500): (0.10221, 0.10629), (1, 500): (0.26499, 0.27541), (2, 500): (0.81964, 0.85383),
    (4, 500): (3.9999, 4.0), (0.5, 10**4): (0.020385, 0.021469), (1, 10**4): (0.052934, 0.054822),
    (2, 10**4): (0.15447, 0.15714), (4, 10**4): (0.59722, 0.62171), (8, 10**4): (8.0, 8.0),
}  # fmt: skip
"""Its lower and upper bounds at δ = 1e-6, computed once (16 halvings, steps of 1 to 20)."""


def test_the_published_number_is_met():
    low, high = PUBLISHED
    assert low <= epsilon_of_shuffled(4.0, 10**5, 1e-6) <= high


@pytest.mark.parametrize(("epsilon", "reports"), BY_THEIR_CODE)
def test_it_lies_between_the_bounds_of_the_authors_code(epsilon, reports):
    low, high = BY_THEIR_CODE[epsilon, reports]
    assert low * (1 - 1e-3) <= epsilon_of_shuffled(epsilon, reports, 1e-6) <= high * (1 + 1e-3)


def by_enumeration(epsilon: float, report_epsilon: float, reports: int, report: str) -> float:
    """δ by adding up all outcomes (a, b) of P and Q."""
    rate = clone_probability(report_epsilon, report)
    alpha = math.exp(report_epsilon) / (math.exp(report_epsilon) + 1)
    p: dict[tuple[int, int], float] = {}
    q: dict[tuple[int, int], float] = {}
    for c in range(reports):
        weight = math.comb(reports - 1, c) * rate**c * (1 - rate) ** (reports - 1 - c)
        for a, own in product(range(c + 1), (0, 1)):
            share = weight * math.comb(c, a) / 2**c
            for law, chance in ((p, alpha if own else 1 - alpha), (q, 1 - alpha if own else alpha)):
                outcome = (a + own, c - a + 1 - own)
                law[outcome] = law.get(outcome, 0.0) + share * chance
    return sum(max(0.0, p[o] - math.exp(epsilon) * q[o]) for o in p)


@pytest.mark.parametrize("report", [PURE, BIT])
@pytest.mark.parametrize("reports", [1, 2, 7, 30])
@pytest.mark.parametrize(("epsilon", "report_epsilon"), [(0.0, 1.0), (0.3, 1.0), (2.5, 3.0)])
def test_delta_is_the_sum_over_all_outcomes(epsilon, report_epsilon, reports, report):
    found = delta_of_shuffled(epsilon, report_epsilon, reports, report)
    assert found == pytest.approx(
        by_enumeration(epsilon, report_epsilon, reports, report), abs=2e-12
    )


def count_of_ones(epsilon: float, report_epsilon: float, ones: int, reports: int) -> float:
    """δ of the count of n flipped bits, ``ones`` of the others' being 1, by their exact distribution."""
    keep = math.exp(report_epsilon) / (math.exp(report_epsilon) + 1)
    law = [1.0]
    for k in range(reports - 1):
        chance = keep if k < ones else 1 - keep
        law = [
            (law[a] if a < len(law) else 0.0) * (1 - chance) + (law[a - 1] if a else 0.0) * chance
            for a in range(len(law) + 1)
        ]

    def with_own(chance: float) -> list[float]:
        padded = [*law, 0.0]
        return [padded[a] * (1 - chance) + (padded[a - 1] if a else 0.0) * chance
                for a in range(len(padded))]  # fmt: skip

    p, q = with_own(keep), with_own(1 - keep)
    return sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("ones", [0, 10, 39])
@pytest.mark.parametrize(("epsilon", "report_epsilon"), [(0.2, 1.0), (0.8, 2.0)])
def test_real_flipped_bits_leak_no_more_than_is_stated(epsilon, report_epsilon, ones):
    """Whatever the others hold; and no pure bound is below that of bits."""
    stated = delta_of_shuffled(epsilon, report_epsilon, 40, BIT)
    assert count_of_ones(epsilon, report_epsilon, ones, 40) <= stated * (1 + 1e-9)
    assert stated <= delta_of_shuffled(epsilon, report_epsilon, 40, PURE) * (1 + 1e-9)


@settings(max_examples=examples(20))
@given(st.floats(0.1, 5.0), st.integers(2, 10**5), st.sampled_from([PURE, BIT]))
def test_more_reports_hide_better_and_never_cost_more_than_one(epsilon, reports, report):
    few, many = (epsilon_of_shuffled(epsilon, n, 1e-6, report) for n in (reports, 2 * reports))
    assert many <= few * (1 + 1e-5) <= epsilon * (1 + 2e-5)


def test_large_reports_of_few_clients_gain_nothing():
    assert epsilon_of_shuffled(8.0, 500, 1e-6) > 7.99
    assert epsilon_of_shuffled(8.0, 10**6, 1e-6) < 0.5


def test_a_secure_sum_of_small_reports_costs_less():
    for epsilon, reports in ((0.5, 500), (2.0, 10**4), (4.0, 10**6)):
        assert secure_sum_epsilon(epsilon, reports, 1e-6) < epsilon_of_shuffled(
            epsilon, reports, 1e-6, BIT
        )


# ---- reports with a delta


def test_a_delta_of_reports_that_is_not_far_below_delta_over_n_is_refused():
    with pytest.raises(
        ArgumentError, match=r"report_delta must be <= .*, far below delta/n = 1e-10"
    ):
        epsilon_of_shuffled(1.0, 10**4, 1e-6, report_delta=1e-10)


def test_one_that_is_adds_a_little():
    plain = epsilon_of_shuffled(1.0, 10**4, 1e-6)
    assert plain <= epsilon_of_shuffled(1.0, 10**4, 1e-6, report_delta=1e-13) < 1.01 * plain


def test_gaussian_reports_are_given_a_delta_that_fits():
    epsilon, report_delta = gaussian_report(5.0, 10**4, 1e-6)
    assert report_delta < 0.1 * 1e-6 / 10**4
    assert epsilon_of_shuffled(epsilon, 10**4, 1e-6, report_delta=report_delta) < 0.1 * epsilon


def test_gaussian_reports_with_little_noise_are_refused():
    with pytest.raises(ArgumentError, match="noise_multiplier must be so large that"):
        gaussian_report(0.05, 500, 1e-6)


@pytest.mark.parametrize(
    ("values", "argument"),
    [((0.0, 10, 1e-6), "report_epsilon"), ((1.0, 0, 1e-6), "reports"), ((1.0, 10, 1.0), "delta"),
     ((1.0, 10, 1e-6, "laplace"), "report"), ((1.0, 10, 1e-6, BIT, 1e-20), "report_delta")],
)  # fmt: skip
def test_what_is_out_of_range_is_named(values, argument):
    with pytest.raises(ArgumentError) as error:
        epsilon_of_shuffled(*values)
    assert error.value.argument == argument


def test_more_reports_than_are_allowed_are_refused():
    with pytest.raises(ArgumentError) as error:
        epsilon_of_shuffled(1.0, 10**9 + 1, 1e-6)
    assert error.value.argument == "reports"


def test_the_largest_report_delta_of_the_message_is_accepted():
    with pytest.raises(ArgumentError) as error:
        epsilon_of_shuffled(1.0, 1000, 1e-6, report_delta=1e-6)
    largest = float(re.search(r"<= (\S+),", str(error.value))[1])
    assert 0 < largest < 1e-9
    epsilon_of_shuffled(1.0, 1000, 1e-6, report_delta=0.99 * largest)
