"""The words of the display."""

from __future__ import annotations

import pytest

from fedpriv.results.display import Pace


def pace(*marks: tuple[float, float]) -> float | None:
    noted = Pace()
    for now, fraction in marks:
        noted.note(now, fraction)
    return noted.left()


@pytest.mark.parametrize("marks", [[], [(9.0, 0.1)], [(9.0, 0.1), (9.9, 0.2)]])
def test_nothing_is_said_before_there_is_a_second_of_rounds(marks):
    assert pace(*marks) is None


def test_nothing_is_said_of_rounds_that_lead_nowhere():
    assert pace((9.0, 0.1), (19.0, 0.1)) is None


def test_what_is_left_goes_on_at_the_pace_of_the_rounds():
    assert pace((100.0, 0.1), (101.0, 0.2), (104.0, 0.5)) == pytest.approx(5.0)


def test_a_long_run_is_judged_by_its_last_minute():
    slow = [(float(second), 0.001 * second) for second in range(100)]
    fast = [(100.0 + second, 0.1 + 0.01 * second) for second in range(61)]
    assert pace(*slow, *fast) == pytest.approx(100 * (1 - fast[-1][1]))
