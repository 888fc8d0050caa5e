"""The file of an entry, which may come from somebody else."""

from __future__ import annotations

import copy
import json
import math

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.tools.leaderboard.entry import plain_words, read_entry, write_entry


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


def outcome(path) -> str:
    """The entry, or the sentence that refuses it."""
    try:
        return repr(read_entry(path))
    except ConfigError as error:
        return str(error)


def test_whatever_stands_anywhere_is_an_entry_or_refused_in_a_sentence(entry, tmp_path):
    path = tmp_path / "x.json"
    write_entry(path, entry)
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
