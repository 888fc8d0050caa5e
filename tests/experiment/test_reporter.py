"""The words of the display."""

from __future__ import annotations

import re

import pytest

from fedpriv.experiment.reporter import Pace


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


@pytest.fixture
def shown(command):
    """(overrides) → what a short run prints, on one line."""

    def run(*overrides: str) -> str:
        said = command("train", *overrides, "runtime.plots=false", "runtime.progress=lines")
        assert (said.status, said.err) == (0, "")
        return " ".join(said.out.split())

    return run


def test_equal_numbers_are_said_once_and_nothing_is_called_enforced(shown):
    words = shown("algorithm=dp_fl", "epsilon=null", "rounds=2", "partition.clients=1")
    assert "1437 for each of 1 client; 360 test" in words.replace("│ ", "")
    assert re.search(r"worst client:.* sound [\d.]+ .* composed [\d.]+ .* published ", words)
    assert " enforced " not in words
    assert "in the last round" in words
    assert "decay" not in words


@pytest.mark.thorough
def test_a_bound_by_rdp_is_not_said_of_a_budget_that_is_less(shown):
    """RDP alone would say 2.2 of what PLD was calibrated to 2."""
    words = shown(
        "algorithm=dp_ftrl", "rounds=8", "algorithm.min_separation=4", "partition.clients=20",
        "algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5", "accountant=pld", "epsilon=2",
    )  # fmt: skip
    assert "epsilon within the budget of 2 (pld is slow)" in words
    assert "by RDP" not in words


def test_a_schedule_that_can_decay_says_how_often_it_did(shown):
    words = shown("algorithm=adap_dpfl", "rounds=2")
    assert "0 decays" in words
    assert re.search(r"worst client:.* enforced [\d.]+ ", words)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
def test_no_noise_and_no_clip_norm_is_shown_of_a_run_without_privacy(algorithm, shown):
    words = shown(f"algorithm={algorithm}", "rounds=1")
    assert "round 1 loss" in words
    for word in ("sigma", " C ", "inf"):
        assert word not in words.split("round 1", 1)[1]
