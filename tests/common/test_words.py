"""Small words for messages."""

from __future__ import annotations

import pytest

from fedpriv.common.words import counted, counted_span, span


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "round", "0 rounds"),
        (1, "round", "1 round"),
        (2, "history", "2 histories"),
        (1, "history", "1 history"),
        (2, "decay", "2 decays"),
    ],
)
def test_a_number_comes_with_its_noun(number, noun, words):
    assert counted(number, noun) == words


def test_a_span_of_one_number_is_that_number():
    assert (span(5800, 5800), span(1, 2)) == ("5800", "1 to 2")
    assert (counted_span(106, 106, "lot"), counted_span(0, 1, "lot")) == ("106 lots", "0 to 1 lots")
