"""The file of an entry, which may come from somebody else."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.entry import (
    AttackedReproduction,
    WorstCase,
    plain_words,
    read_entry,
    write_entry,
)


def test_an_entry_is_read_back_as_it_was_written(entry, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, entry)
    assert read_entry(path) == entry
    keys = list(json.loads(path.read_text()))
    assert keys == sorted(keys)


def test_mean_sd_and_epsilon_are_those_of_its_runs(entry, reaching):
    assert entry.mean == pytest.approx(0.87)
    assert entry.sd == pytest.approx(0.01)
    assert entry.test_error == pytest.approx(math.sqrt(0.87 * 0.13 / 10_000))
    assert (entry.epsilon, entry.cpu_minutes) == (1.8, 0.5)
    assert reaching(runs=entry.runs[:1]).sd is None


JUNK = (
    None,
    True,
    "x",
    -1,
    2.5,
    [],
    {},
    "<script>alert(1)</script>",
    "a|b",
    "`x`",
    "x\ny",
    "[a](javascript:b)",
    1e999,
)


def places(tree: object, path: tuple = ()):
    """The path of everything in a tree."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree if isinstance(tree, list) else ())
    )
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


@pytest.fixture
def attacked(entry, worst_case):
    """The entry with a worst case."""
    return replace(entry, worst_case=worst_case)


def test_a_worst_case_is_read_back_as_it_was_written(attacked, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, attacked)
    assert read_entry(path) == attacked


def test_an_entry_without_a_worst_case_has_no_such_key(entry, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, entry)
    assert "worst_case" not in json.loads(path.read_text())


def test_the_worst_attack_has_the_lowest_mean(worst_case):
    assert (worst_case.attack, worst_case.seeds) == ("ipm", 3)
    assert worst_case.accuracies("ipm") == pytest.approx([0.3, 0.4, 0.5])
    nothing = replace(worst_case, runs=(), left_out=tuple(ATTACK_SETS[1]))
    assert (nothing.attack, nothing.seeds) == (None, 0)


def spoil(content: dict, change: str) -> None:
    """Change the worst case of an entry's file."""
    runs = content["worst_case"]["runs"]
    if change == "attack_set":
        content["worst_case"]["attack_set"] = 7
    elif change == "attack":
        runs[0]["attack"] = "backdoor"
    elif change == "absent attack":
        content["worst_case"]["runs"] = [run for run in runs if run["attack"] != "ipm"]
    elif change == "left out and run":
        content["worst_case"]["left_out"] = ["ipm"]
    elif change == "two seeds":
        content["worst_case"]["runs"] = [run for run in runs if run["seed"] < 2]
    elif change == "other seeds":
        runs[0]["seed"] = 9
    elif change == "the same seed twice":
        runs[0].update(seed=1, noise_seed=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("attack_set", "attack_set must be one of 1, got 7"),
        ("attack", "worst_case.runs.0.attack must be one of"),
        ("absent attack", "got ipm"),
        ("left out and run", "got ipm"),
        ("two seeds", "3 or more seeds"),
        ("other seeds", "the same for every attack"),
        ("the same seed twice", "worst_case.runs must be"),
    ],
)
def test_a_worst_case_that_is_not_of_the_whole_set_is_refused(change, said, attacked, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, attacked)
    content = json.loads(path.read_text())
    spoil(content, change)
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError) as refusal:
        read_entry(path)
    assert said in str(refusal.value)


def outcome(path) -> str:
    """The entry, or the sentence that refuses it."""
    try:
        return repr(read_entry(path))
    except ConfigError as error:
        return str(error)


def test_whatever_stands_anywhere_is_an_entry_or_refused_in_a_sentence(
    entry, worst_case, monkeypatch, tmp_path
):
    path = tmp_path / "x.json"
    monkeypatch.setitem(ATTACK_SETS, 1, {"ipm": ATTACK_SETS[1]["ipm"]})
    runs = tuple(run for run in worst_case.runs if run.attack == "ipm")
    check = AttackedReproduction("2026-11-26", "ipm", 0, 9, 0.4)
    write_entry(path, replace(entry, worst_case=WorstCase(1, runs, (), (check,))))
    sound, refused = json.loads(path.read_text()), 0
    for place in places(sound):
        for junk in JUNK:
            content = copy.deepcopy(sound)
            node = content
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = junk
            path.write_text(json.dumps(content))
            said = outcome(path)
            assert not set("<>|`\n") & set(said) or said.startswith(f"{path}")
            assert "\n" not in said
            refused += said.startswith(f"{path}")
    assert refused > 200


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1}, {"schema_version": 2}, {"commit": "-x"}, {"commit": "main"}, {"commit": "A" * 40},
        {"overrides": ["runtime.output_dir=/"]}, {"delta": 1}, {"dataset": "../x"}, {"trust": "none"},
        {"machine": "x" * 300}, {"fedpriv": "0.2.0 "}, {"runs": []},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_entry_is_refused(change, entry, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, entry)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=r"x\.json"):
        read_entry(path)


@pytest.mark.parametrize("key", ["trust", "runs", "checks", "schema_version"])
def test_a_key_that_is_absent_is_refused(key, entry, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, entry)
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=key):
        read_entry(path)


def test_two_runs_of_the_same_seeds_are_refused(entry, reaching, tmp_path):
    write_entry(tmp_path / "x.json", reaching(runs=(*entry.runs, entry.runs[0])))
    with pytest.raises(ConfigError, match="two of its runs have the same seeds"):
        read_entry(tmp_path / "x.json")


def test_a_processor_is_named_in_the_alphabet_of_an_entry():
    assert plain_words("Intel(R) Core(TM) i5 @ 2.40GHz") == "Intel(R) Core(TM) i5 @ 2.40GHz"
    assert plain_words("<b>|`é\n") == "b"
    assert plain_words("|") == "unknown"
