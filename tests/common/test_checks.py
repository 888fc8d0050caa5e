from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import ListConfig

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError


def refused(check, *arguments, **keys) -> str:  # type: ignore[no-untyped-def]
    """The message with which ``check`` refuses."""
    with pytest.raises(ArgumentError) as caught:
        check("x", *arguments, **keys)
    return str(caught.value)


# ---- number


@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_a_finite_number_is_itself(value):
    result = checks.number("x", value)
    assert result == value
    assert isinstance(result, float)


def test_a_numpy_float_is_a_number():
    assert checks.number("x", np.float64(2.5)) == 2.5


@pytest.mark.parametrize("value", [True, False, "1", "inf", None, [1], b"1"])
def test_what_is_no_number_is_refused(value):
    assert refused(checks.number, value).startswith("x must be a number, got ")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400])
def test_a_number_that_is_not_finite_is_refused(value):
    assert refused(checks.number, value, above=0).startswith("x must be finite, > 0, got ")


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"above": 0}, 1e-300, 0, "> 0"),
        ({"at_least": 0}, 0, -1e-300, ">= 0"),
        ({"below": 1}, 0.999, 1, "< 1"),
        ({"at_most": 1}, 1, 1.001, "<= 1"),
        ({"above": 0, "below": 1}, 0.5, 1, "> 0 and < 1"),
        ({"at_least": 0, "at_most": 1}, 1, 2, ">= 0 and <= 1"),
    ],
)
def test_a_number_must_lie_within_its_bounds(bounds, inside, outside, words):
    assert checks.number("x", inside, **bounds) == inside
    assert refused(checks.number, outside, **bounds) == f"x must be {words}, got {outside}"


def test_a_text_is_told_the_bounds_too():
    assert refused(checks.number, "3", above=0) == "x must be a number > 0, got 3"


# ---- whole


@pytest.mark.parametrize(("value", "whole"), [(0, 0), (1000, 1000), (1e3, 1000), (2**70, 2**70)])
def test_a_whole_number_becomes_an_int(value, whole):
    result = checks.whole("x", value)
    assert result == whole
    assert isinstance(result, int)


@pytest.mark.parametrize("value", [2.5, True, "3", None, math.inf, math.nan, -1])
def test_what_is_not_whole_is_refused(value):
    assert refused(checks.whole, value).startswith("x must be a whole number >= 0, got ")


def test_a_whole_number_must_lie_within_its_bounds():
    message = refused(checks.whole, 11, at_least=1, at_most=10)
    assert message == "x must be a whole number >= 1 and <= 10, got 11"


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_every_63_bit_number_is_a_seed(seed):
    assert checks.seed("x", seed) == seed


@pytest.mark.parametrize("seed", [-1, 2**63, None, False, "0"])
def test_what_is_no_seed_is_refused(seed):
    words = "x must be a whole number >= 0 and <= 9223372036854775807, got "
    assert refused(checks.seed, seed).startswith(words)


# ---- the others


def test_one_of_a_few_names_is_itself():
    assert checks.one_of("x", "b", ("a", "b")) == "b"


@pytest.mark.parametrize("value", ["c", "A", "", None, 1, ["a"]])
def test_another_name_is_refused(value):
    assert refused(checks.one_of, value, ("a", "b")).startswith("x must be one of a, b, got ")


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_itself(value):
    assert checks.boolean("x", value) is value


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_what_is_no_boolean_is_refused(value):
    assert refused(checks.boolean, value).startswith("x must be true or false, got ")


def test_a_text_is_itself():
    assert checks.text("x", " a ") == " a "


@pytest.mark.parametrize("value", ["", "  ", None, 3, b"a"])
def test_what_is_no_text_is_refused(value):
    assert refused(checks.text, value).startswith("x must be a text, got")


@pytest.mark.parametrize(
    "value", [[1, 2], (1, 2), ListConfig([1, 2])], ids=lambda v: type(v).__name__
)
def test_a_sequence_becomes_a_list(value):
    assert checks.sequence("x", value) == [1, 2]


@pytest.mark.parametrize("value", ["12", b"12", {1: 2}, 3, None])
def test_what_is_no_sequence_is_refused(value):
    assert refused(checks.sequence, value).startswith("x must be a list, got ")


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("1e3", 1000.0), ("-0.5", -0.5), ("many", "many"), ("", "nothing")],
)
def test_a_text_is_the_number_that_it_stands_for(text, value):
    found = checks.parsed(text)
    assert found == value
    assert type(found) is type(value)
