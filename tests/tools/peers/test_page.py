"""The page of the comparison with other libraries."""

from __future__ import annotations

import json
from pathlib import Path

from fedpriv.tools.peers.page import page

ROOT = Path(__file__).parents[3]
CONDITIONS = {
    "date": "2026-11-26", "processor": "EPYC", "cores": 2, "threads": 2, "system": "Linux x86_64",
    "python": "3.11.9", "fedpriv": "commit 0123456789ab", "torch": "2.13.0+cpu", "tuned allocator": True,
    "load at the beginning": 0.1, "load at the end": 1.2,
}  # fmt: skip
ROW = {
    "row": "Opacus, hooks", "library": "Opacus", "versions": {"opacus": "1.6.0", "torch": "2.13.0"},
    "pairs": 9, "ours": {"two processes": 2.0, "one process": 4.0},
    "fastest": "two processes", "theirs_ms": 6.0, "times_faster": 3.0, "quartiles": [2.9, 3.1],
}  # fmt: skip


def report(load: float = 0.1, **goal: object) -> dict:
    told = {"rows": ["Opacus, hooks"], "times_faster": 2.5, "reached": 3.0, "met": True, **goal}
    failure = {"row": "JAX", "library": "JAX", "failure": "no wheel"}
    return {
        "conditions": {**CONDITIONS, "load at the beginning": load},
        "comparisons": [
            {
                "model": "cnn",
                "work": "sums",
                "ours": ["one process", "two processes"],
                "rows": [ROW, failure],
                "goal": told,
            }
        ],
    }


def test_it_has_versions_pairs_machine_and_verdict():
    text = page(report())
    for words in ("opacus 1.6.0", "3.00 × (2.90 to 3.10)", "| 9 |", "EPYC, 2 cores", "3.00 ×, met"):
        assert words in text
    assert "not measured: no wheel" in text


def test_all_ways_of_fedpriv_are_columns():
    text = page(report())
    assert "fedpriv, one process | fedpriv, two processes | library" in text
    assert "4.0 ms | 2.0 ms | 6.0 ms | 3.00 ×" in text


def test_it_says_that_a_goal_is_not_met():
    assert "3.00 ×, not met" in page(report(times_faster=4.0, met=False))


def test_it_says_that_the_machine_had_other_work():
    assert "had other work" in page(report(load=7.5))
    assert "had other work" not in page(report())


def test_the_page_of_the_documentation_is_of_the_stored_numbers():
    numbers = json.loads((ROOT / "outputs/reference/speed/peers.json").read_text("utf-8"))
    assert (ROOT / "docs/speed.md").read_text("utf-8") == page(numbers)
