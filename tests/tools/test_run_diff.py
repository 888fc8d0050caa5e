"""``fedpriv runs diff A B``: the keys that differ, and both ends."""

from __future__ import annotations

import json

import pytest

from fedpriv import cli


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    shared = (
        "algorithm=dp_fl",
        "epsilon=null",
        "rounds=1",
        "runtime.progress=none",
        "runtime.plots=false",
    )
    for name, words in (
        ("a", ("noise_schedule.noise_multiplier=8",)),
        ("b", ("noise_schedule.noise_multiplier=4", "clipper=constant", "seed=1")),
        ("c", ("noise_schedule=constant", "algorithm=adap_dpfl")),
    ):
        assert cli.run(["train", *shared, *words, f"runtime.run_dir={folder / name}"]) == 0
    return folder


@pytest.mark.thorough
def test_the_keys_that_differ_are_shown_with_both_values(two, command):
    said = command("runs", "diff", str(two / "a"), str(two / "b"))
    assert said.status == 0, said.err
    (row,) = [line for line in said.out.splitlines() if "noise_schedule.noise_multiplier" in line]
    assert {"8", "4"} <= set(row.split())
    assert "rounds" not in said.out.partition("Results")[0]


def test_algorithms_of_one_class_are_told_apart_by_their_names(two, command):
    said = command("runs", "diff", str(two / "a"), str(two / "c"))
    assert said.status == 0, said.err
    (row,) = [line for line in said.out.splitlines() if " algorithm " in line]
    assert {"dp_fl", "adap_dpfl"} <= set(row.split())
    assert "DpFl" not in said.out


def test_no_epsilon_is_rounded_down(two, command):
    said = command("runs", "diff", str(two / "a"), str(two / "b"))
    for key in ("epsilon", "epsilon_sound"):
        (row,) = [line for line in said.out.splitlines() if f" {key} " in line]
        shown = [float(word) for word in row.split() if word[0].isdigit()]
        for name, number in zip("ab", shown, strict=True):
            assert number >= json.loads((two / name / "summary.json").read_text())[key]


def test_equal_runs_differ_in_nothing(two, command):
    said = command("runs", "diff", str(two / "a"), str(two / "a"))
    assert said.status == 0
    assert "the configurations are the same" in said.out


@pytest.mark.parametrize("given", [["a"], ["a", "b", "a"], []])
def test_two_folders_are_needed(given, two, command):
    said = command("runs", "diff", *(str(two / name) for name in given))
    assert said.status == 2
    assert "fedpriv runs diff" in said.sentence


def test_a_folder_that_is_no_run_is_refused(two, command):
    said = command("runs", "diff", str(two), str(two / "a"))
    assert said.status == 2
    assert "no run folder" in said.sentence
    said = command("runs", "diff", "nowhere", str(two / "a"))
    assert said.sentence == "fedpriv: there is no folder nowhere"
