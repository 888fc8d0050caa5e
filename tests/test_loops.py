"""A loop over cases names every case that fails."""

from __future__ import annotations

import pytest
from loops import for_each


def test_every_case_that_fails_is_named():
    @for_each("number", range(5))
    def is_even(number):
        assert number % 2 == 0

    with pytest.raises(AssertionError, match=r"2 of 5 failed\n1: (?s:.*)\n3: "):
        is_even()


def test_no_cases_are_no_success():
    @for_each("number", ())
    def never(number):
        raise AssertionError

    with pytest.raises(AssertionError):
        never()


@for_each("number", (1, 2))
def test_fixtures_reach_the_test(number, tmp_path):
    assert number in (1, 2)
    assert tmp_path.is_dir()
