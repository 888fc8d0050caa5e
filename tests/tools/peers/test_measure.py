"""Pairs of steps of both sides in turn, and what is concluded from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedpriv.tools.peers import measure
from fedpriv.tools.peers.measure import Comparison, Goal, PeerResult, PeerRow, compare, judged
from fedpriv.tools.peers.packages import OPACUS, PFL
from fedpriv.tools.peers.process import PeerFailure

ROW = PeerRow(OPACUS, "Opacus, hooks", "opacus", {})


@pytest.fixture
def turns(monkeypatch) -> list[str]:
    """Whose turn it was, with a library that takes 2 ms."""
    order: list[str] = []

    class Process:
        def __init__(self, *arguments: object):
            self.versions = {"opacus": "1.6.0"}
            order.append(f"open {arguments[-1]} × {arguments[-2]}")

        def __enter__(self):  # type: ignore[no-untyped-def]
            return self

        def __exit__(self, *_: object) -> None:
            order.append("close")

        def seconds(self) -> float:
            order.append("theirs")
            return 0.002

    monkeypatch.setattr(measure, "PeerProcess", Process)
    monkeypatch.setattr(measure, "timed", lambda step: order.append("ours") or 0.001)
    monkeypatch.setattr(measure, "_SETTLE", 0.0)
    return order


def test_both_sides_take_turns_and_either_is_first(turns):
    compare(ROW, {"alone": lambda: None}, Path("python"), pairs=2, threads=2)
    assert turns == ["open 1 × 2", "ours", "theirs", "theirs", "ours", "close"]


def test_several_processes_share_the_threads(turns):
    row = PeerRow(PFL, "pfl, 2 processes", "pfl", {}, processes=2)
    compare(row, {"alone": lambda: None}, Path("python"), pairs=1, threads=2)
    assert turns[0] == "open 2 × 1"


def test_a_slow_row_gets_the_least_number_of_pairs(turns, monkeypatch):
    monkeypatch.setattr(measure, "_LONG", 0.0)
    result = compare(ROW, {"alone": lambda: None}, Path("python"), pairs=50, threads=2)
    assert len(result.ours["alone"]) == len(result.theirs) == measure.LEAST_PAIRS


def test_the_ratio_is_the_median_over_pairs():
    result = PeerResult(ROW, {}, ours={"one": [1.0, 2.0, 10.0]}, theirs=[2.0, 6.0, 10.0])
    told = result.as_dict()
    assert (told["pairs"], told["ours"], told["theirs_ms"]) == (3, {"one": 2.0}, 6.0)
    assert told["times_faster"] == 2.0
    assert told["quartiles"] == [1.5, 2.5]


def test_the_ratio_is_that_of_the_fastest_way_of_fedpriv():
    ours = {"alone": [4.0, 4.0], "shared": [2.0, 2.0]}
    told = PeerResult(ROW, {}, ours, theirs=[6.0, 6.0]).as_dict()
    assert (told["fastest"], told["times_faster"]) == ("shared", 3.0)


def test_all_ways_of_fedpriv_take_turns(turns, monkeypatch):
    monkeypatch.setattr(measure, "timed", lambda step: step() or 0.001)
    ways = {"alone": lambda: turns.append("alone"), "shared": lambda: turns.append("shared")}
    compare(ROW, ways, Path("python"), pairs=2, threads=2)
    assert turns[1:-1] == ["alone", "shared", "theirs", "theirs", "shared", "alone"]


def test_a_failure_of_the_library_is_a_row(turns, monkeypatch):
    def fail(*_: object) -> None:
        raise PeerFailure("no answer within 1 seconds")

    monkeypatch.setattr(measure, "PeerProcess", fail)
    result = compare(ROW, {"alone": lambda: None}, Path("python"), pairs=2, threads=2)
    assert result.as_dict()["failure"] == "no answer within 1 seconds"


def test_a_library_that_is_not_there_is_a_row():
    told = compare(ROW, {}, "no wheel", pairs=2, threads=2).as_dict()
    assert told == {"row": ROW.name, "library": "Opacus", "failure": "no wheel"}


@pytest.mark.parametrize(("times", "met"), [(2.0, True), (2.5, False)])
def test_a_goal_is_held_against_the_fastest_of_its_rows(times, met):
    rows = [PeerRow(PFL, name, "pfl", {}) for name in ("threads", "processes", "other")]
    comparison = Comparison("mlp", "work", (), tuple(rows), Goal(("threads", "processes"), times))
    results = [
        PeerResult(row, {}, {"one": [1.0, 1.0]}, [ms, ms])
        for row, ms in zip(rows, (5.0, 2.0, 1.0), strict=True)
    ]
    goal = judged(comparison, results)["goal"]
    assert (goal["reached"], goal["met"]) == (2.0, met)


def test_a_goal_without_its_rows_is_neither_met_nor_missed():
    comparison = Comparison("mlp", "work", (), (ROW,), Goal((ROW.name,), 2.0))
    goal = judged(comparison, [PeerResult(ROW, failure="no wheel")])["goal"]
    assert (goal["reached"], goal["met"]) == (None, None)
