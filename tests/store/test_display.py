"""What the screen says of ε at the end of a run."""

from __future__ import annotations

import math

import pytest

from fedpriv.store.display import statement_lines, summary_lines


def line_of(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return line


def test_an_infinite_sound_epsilon_is_not_called_proven(ran):
    unclipped = ran(
        "algorithm=adap_dpfl", "clipper.reading=unclipped", "budget_view=published", "rounds=2"
    )
    said = line_of(statement_lines(unclipped.privacy), "sound")
    assert math.isinf(unclipped.privacy["epsilon_sound"])
    assert "infinite" in said
    assert "no guarantee holds" in said


def test_a_finite_sound_epsilon_is_the_one_to_report(ran):
    said = line_of(statement_lines(ran("algorithm=dp_fl", "rounds=2").privacy), "sound")
    assert "the number to report" in said


def test_an_algorithm_without_a_published_analysis_has_no_claim(ran):
    facts = {**ran("algorithm=dp_fl", "rounds=2").privacy, "epsilon_published": None}
    said = line_of(statement_lines(facts), "published")
    assert said.split()[:3] == ["published", "none", "no"]


@pytest.mark.parametrize(
    ("sound", "enforced", "shown"),
    [(0.684, 0.752, "0.684 (sound) at delta 1e-05; enforced: 0.752"),
     (2.0, 2.0, "2.000 (sound) at delta 1e-05"),
     (math.inf, 0.278, "infinite (sound) at delta 1e-05; enforced: 0.278")],
)  # fmt: skip
def test_the_result_shows_the_sound_epsilon_first(sound, enforced, shown, ran):
    summary = {
        **ran("algorithm=dp_fl", "rounds=2").summary,
        "epsilon_sound": sound,
        "epsilon": enforced,
    }
    assert dict(summary_lines(summary, False))["epsilon"] == shown
    without_budget = dict(summary_lines(summary, False, limited=False))["epsilon"]
    assert without_budget == shown.replace("enforced", "composed")
