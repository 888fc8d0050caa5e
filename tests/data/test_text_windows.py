from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.text_windows import TokenIds, next_tokens, sequences

TEXTS = TokenIds.of([[2, 3, 4, 5, 6, 7], [], [8], [9, 10]])


def test_every_token_but_the_first_is_a_target_once():
    inputs, targets, source = next_tokens(TEXTS, 3, "windows")
    assert inputs.tolist() == [[2, 3, 4], [5, 6, 0], [9, 0, 0]]
    assert targets.tolist() == [[3, 4, 5], [6, 7, 0], [10, 0, 0]]
    assert source.tolist() == [0, 0, 3]


def test_truncated_texts_have_their_beginning_only():
    inputs, targets, source = next_tokens(TEXTS, 3, "truncate")
    assert inputs.tolist() == [[2, 3, 4], [9, 0, 0]]
    assert targets.tolist() == [[3, 4, 5], [10, 0, 0]]
    assert source.tolist() == [0, 3]


def test_sequences_are_padded_on_the_right():
    inputs, source = sequences(TEXTS, 4, "windows")
    assert inputs.tolist() == [[2, 3, 4, 5], [6, 7, 0, 0], [8, 0, 0, 0], [9, 10, 0, 0]]
    assert source.tolist() == [0, 0, 2, 3]
    inputs, source = sequences(TEXTS, 4, "truncate")
    assert inputs.tolist() == [[2, 3, 4, 5], [8, 0, 0, 0], [9, 10, 0, 0]]
    assert source.tolist() == [0, 2, 3]


def test_no_texts_give_no_records():
    nothing = TokenIds.of([])
    inputs, targets, source = next_tokens(nothing, 3, "windows")
    assert (inputs.shape, targets.shape, source.shape) == ((0, 3), (0, 3), (0,))
    assert sequences(TokenIds.of([[]]), 3, "windows")[0].shape == (0, 3)


@given(st.lists(st.lists(st.integers(2, 9), max_size=20), max_size=8), st.integers(1, 7))
def test_windows_put_together_are_the_texts(texts, length):
    inputs, targets, source = next_tokens(TokenIds.of(texts), length, "windows")
    assert ((inputs == 0) == (targets == 0)).all()
    for number, text in enumerate(texts):
        own = source == number
        assert inputs[own][inputs[own] > 0].tolist() == text[:-1]
        assert targets[own][targets[own] > 0].tolist() == text[1:]
    cut, source = sequences(TokenIds.of(texts), length, "windows")
    for number, text in enumerate(texts):
        assert cut[source == number][cut[source == number] > 0].tolist() == text
    assert np.all(np.diff(source) >= 0)
