"""What is said before a sweep over epsilon."""

from __future__ import annotations

import pytest

NOTE = (
    "note: epsilon=1,2,4 moves only the end of the runs, as the noise multiplier does not depend on it; "
    "noise_schedule=calibrated rounds=T calibrates it to each epsilon"
)
SWEEP = ("train", "-m", "algorithm=dp_fl", "epsilon=1,2,4", "dry_run=true")


@pytest.mark.parametrize("more", [[], ["rounds=100000"], ["seed=0,1"], ["noise_schedule=step"]])
def test_a_sweep_that_only_moves_the_end_says_so_once(more, command):
    said = command(*SWEEP, *more)
    assert (said.status, said.err) == (0, "")
    assert said.out.count("note:") == 1
    assert NOTE in said.out


@pytest.mark.parametrize(
    "more",
    [
        ["rounds=3"],  # reached whatever the budget
        ["noise_schedule=calibrated", "rounds=20"],
        ["algorithm=fedavg", "clipper=none", "noise_schedule=none"],
        ["algorithm=adap_dpfl", "noise_schedule=validation_decay", "clipper=adap"],
    ],
)
def test_elsewhere_nothing_is_said(more, command):
    assert "note: epsilon" not in command(*SWEEP, *more).out


def test_one_epsilon_is_no_sweep_over_it(command):
    said = command("train", "-m", "algorithm=dp_fl", "epsilon=2", "seed=0,1", "dry_run=true")
    assert "note: epsilon" not in said.out
