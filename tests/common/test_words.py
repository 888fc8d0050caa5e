"""Small words for messages."""

from __future__ import annotations

import math

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.common.words import counted, counted_span, digits_up, quoted, round_up, span


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


@given(st.floats(1e-300, 1e300))
def test_digits_of_an_epsilon_are_rounded_up_by_less_than_one_step(epsilon):
    shown = float(digits_up(epsilon))
    assert epsilon * (1 - 1e-11) <= shown <= epsilon * (1 + 1.001e-3)


def test_what_has_few_digits_is_not_rounded():
    assert [digits_up(value) for value in (0.0, 2.0, 0.1 + 0.2, 1500.0, math.inf)] == [
        "0", "2", "0.3", "1500", "inf",
    ]  # fmt: skip
    assert (round_up(0.452119), round_up(0.452119, 6)) == ("0.453", "0.452119")


@given(st.text("ab1'\\\\,\"= /:{}[]()\u00e9.", min_size=1).map(lambda text: f"/{text}"))
def test_hydra_reads_a_quoted_text_as_it_is(text):
    parsed = OverridesParser.create().parse_override(f"key={quoted(text)}")
    assert not parsed.is_sweep_override()
    assert parsed.value() == text
