"""``fedpriv bench --aggregation``: what is printed and written of a round of each rule."""

from __future__ import annotations

import json

import pytest

from fedpriv.tools import bench_rules


def test_every_rule_that_does_not_look_at_all_subsets_is_measured():
    assert set(bench_rules.measured_rules()) == {
        "median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centered_clipping", "caf", "dnc",
        "rlr", "fltrust", "foolsgold", "flame",
    }  # fmt: skip


def test_times_and_memory_are_told_with_their_bars(monkeypatch, capsys, tmp_path):
    rows = {"krum": {"seconds": 0.5, "memory": 0.1}, "flame": {"seconds": 3.5, "memory": 0.1}}
    monkeypatch.setattr(bench_rules, "measured_rules", lambda: dict.fromkeys(rows))
    monkeypatch.setattr(bench_rules, "measured", lambda option, repeats, threads: rows[option])
    assert bench_rules.run(1, 2, tmp_path / "bench.json") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.50 s 10% met" in said.replace("│", "").replace("  ", " ").replace("  ", " ")
    assert "not met" in said
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["conditions"]["threads"] == 2
    assert [row["rule"] for row in written["settings"]] == ["krum", "flame"]


@pytest.mark.thorough
def test_a_rule_is_measured_in_a_process_of_its_own():
    row = bench_rules.measured("median", 1, 1)
    assert row["seconds"] > 0
    assert 0 <= row["memory"] < bench_rules.MEMORY
