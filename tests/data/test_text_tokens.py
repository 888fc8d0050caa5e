from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.text_tokens import join, replace_urls, replace_users, tokenise


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The weather in London IS sunny.", "the weather in london is sunny ."),
        ("I'm sure: it's 3.5, isn’t it?", "i'm sure : it's 3 . 5 , isn’t it ?"),
        ("see <url> and <b", "see <url> and < b"),
        ("sudo apt-get   install\nx_y", "sudo apt - get install x_y"),
        ("'quoted' words''", "' quoted ' words ' '"),
        ("naïve Straße", "naïve straße"),
        ("", ""),
        (" \t\n", ""),
    ],
)
def test_words_are_lower_case_and_punctuation_stands_alone(text, tokens):
    assert tokenise(text, "word") == tokens.split()


def test_characters_are_kept_as_they_are():
    assert tokenise("To be,\nOr", "character") == ["T", "o", " ", "b", "e", ",", "\n", "O", "r"]


@given(st.text())
def test_joined_words_are_the_same_tokens(text):
    tokens = tokenise(text, "word")
    if [t.lower() for t in tokens] == tokens:  # a few letters have a lower case that has another
        assert tokenise(join(tokens, "word"), "word") == tokens


@given(st.text())
def test_joined_characters_are_the_text(text):
    assert join(tokenise(text, "character"), "character") == text


def test_addresses_and_users_are_replaced():
    assert tokenise(replace_urls("at http://t.co/x?y=1 or WWW.a.b now"), "word") == [
        "at", "<url>", "or", "<url>", "now",
    ]  # fmt: skip
    assert tokenise(replace_users("@one: mail me@home.org"), "word") == [
        "<user>", ":", "mail", "me", "@", "home", ".", "org",
    ]  # fmt: skip
