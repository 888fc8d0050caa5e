"""The search of T: what is tried, and that a valley is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.algorithms.rounds_search import RoundsSearch
from fedpriv.common.errors import ArgumentError


def search(method: str, rounds: list[int]) -> RoundsSearch:
    return RoundsSearch(method, rounds)


def counting(cost):  # type: ignore[no-untyped-def]
    asked: list[int] = []

    def of(rounds: int) -> float:
        asked.append(rounds)
        return cost(rounds)

    return of, asked


def test_a_grid_asks_for_every_value_once_and_takes_the_smaller_of_equals():
    cost, asked = counting(lambda t: {10: 2.0, 20: 1.0, 30: 1.0}[t])
    assert search("grid", [30, 10, 20, 10]).best(cost) == 20
    assert sorted(asked) == [10, 20, 30]


@given(
    low=st.integers(1, 50),
    width=st.integers(1, 400),
    share=st.floats(0, 1),
    steep=st.floats(0.1, 9),
)
def test_golden_section_finds_the_bottom_of_a_valley(low, width, share, steep):
    bottom = low + round(share * width)
    cost, asked = counting(lambda t: (t - bottom) * (1.0 if t > bottom else -steep))
    assert search("golden", [low, low + width]).best(cost) == bottom
    assert len(asked) == len(set(asked)) <= 22  # the most for any bottom of any such width
    assert all(low <= t <= low + width for t in asked)


def test_golden_section_needs_few_of_many():
    cost, asked = counting(lambda t: abs(t - 77))
    assert search("golden", [1, 300]).best(cost) == 77
    assert len(asked) <= 14


def test_golden_section_needs_two_ends():
    with pytest.raises(ArgumentError, match="at least two with method=golden"):
        search("golden", [10])


def test_the_search_in_words():
    assert "3 values of T from 10 to 30" in search("grid", [30, 10, 20]).describe()
    assert "golden section of T from 10 to 30" in search("golden", [10, 30]).describe()
