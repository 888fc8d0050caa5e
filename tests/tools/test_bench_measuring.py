from __future__ import annotations

from fedpriv.tools.bench_measuring import Bar, Benchmark, Result, TimedStep, measure


def test_ratios_are_to_the_floor_and_bars_to_their_reference():
    setting = Benchmark("s", "a", (), (Bar("b", "a", 1.5), Bar("b", "c", 1 / 2)))
    report = Result(setting, {"a": 2.0, "b": 4.0, "c": 8.0}).as_dict()
    assert [row["ratio"] for row in report["rows"]] == [1.0, 2.0, 4.0]
    assert [bar["met"] for bar in report["bar"]] == [False, True]
    assert [str(bar) for bar in setting.bars] == ["≤ 1.5 × a", "≥ 2 × faster than c"]


def test_rows_take_turns():
    order = []
    rows = tuple(TimedStep(name, lambda name=name: order.append(name)) for name in "ab")
    measure(Benchmark("s", "a", rows), 2)
    assert order == list("aabb") * 2
