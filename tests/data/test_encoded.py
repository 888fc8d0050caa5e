from __future__ import annotations

import numpy as np
import pytest

from fedpriv.data.encoded import is_kept, kept


def no_make():
    pytest.fail("made again")


def test_arrays_are_made_once_for_the_same_sources_and_settings(cache):
    assert not is_kept("x", ("sum", 1))
    made = kept("x", ("sum", 1), lambda: {"a": np.arange(3), "words": np.array(["é", "b\n"])})
    assert is_kept("x", ("sum", 1))
    again = kept("x", ("sum", 1), no_make)
    assert list(again) == list(made) == ["a", "words"]
    assert again["words"].tolist() == ["é", "b\n"]
    assert kept("x", ("sum", 2), lambda: {"a": np.ones(1)})["a"].tolist() == [1.0]
    assert len(list((cache / "encoded").iterdir())) == 2


def test_a_damaged_file_is_made_again(cache):
    kept("x", 1, lambda: {"a": np.arange(3)})
    (file,) = (cache / "encoded").iterdir()
    for content in (b"", b"no zip", file.read_bytes()[:-30]):
        file.write_bytes(content)
        assert kept("x", 1, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
    assert kept("x", 1, no_make)["a"].tolist() == [0, 1, 2]


def test_a_cache_that_cannot_be_written_is_done_without(cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in its place")
    assert kept("x", 1, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]
