"""The figures of correlated noise."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ArgumentError
from fedpriv.study.figures.ftrl import error_against_rounds


@pytest.mark.thorough
def test_every_strategy_is_drawn_up_to_its_rounds():
    drawing = error_against_rounds([16, 64], {"identity": 99, "banded": 16, "blt": 99}, epochs=4)
    mean, largest = drawing.rows[0]
    assert [line.label for line in mean.lines] == ["identity", "banded", "blt"]
    assert [list(line.x) for line in mean.lines] == [[16, 64], [16], [16, 64]]
    for low, high in zip(mean.lines, largest.lines, strict=True):
        assert all(a <= b for a, b in zip(low.y, high.y, strict=True))
    assert mean.lines[0].y[1] > mean.lines[2].y[1]
    assert "n = 64" in drawing.findings[0]


def test_a_sixth_strategy_is_drawn(monkeypatch):
    monkeypatch.setattr("fedpriv.study.figures.ftrl.make_strategy", lambda *_, **__: None)
    monkeypatch.setattr("fedpriv.study.figures.ftrl.error", lambda *_: 1.0)
    drawing = error_against_rounds([16], dict.fromkeys("abcdef", 99), epochs=4)
    lines = drawing.rows[0][0].lines
    assert [line.label for line in lines] == [*"abcdef"]
    assert len({line.colour for line in lines}) == 6


@pytest.mark.parametrize("keys", [{}, {"epochs": 2, "min_separation": 4}])
def test_patterns_are_said_in_one_way(keys):
    with pytest.raises(ArgumentError, match="epochs must be given"):
        error_against_rounds([16], {"identity": 16}, **keys)
