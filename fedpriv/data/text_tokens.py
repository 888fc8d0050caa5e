"""Splitting of text into tokens, by words or by characters."""

from __future__ import annotations

import re

WORD, CHARACTER = "word", "character"
LEVELS = (WORD, CHARACTER)
USER, URL = "<user>", "<url>"

_WORD = re.compile(r"<\w+>|\w+(?:['’]\w+)*|[^\w\s]")
_URL = re.compile(r"(?:https?|ftp)://\S+|\bwww\.\S+", re.IGNORECASE)
_USER = re.compile(r"(?<!\w)@\w+")


def tokenise(text: str, level: str) -> list[str]:
    """Return the tokens of ``text``, in order.

    Args:
        text: Any text.
        level: ``word`` for lower-case words and single punctuation marks; digits, inner apostrophes and names
            in angle brackets such as ``<url>`` belong to words, and blanks are lost. ``character`` for every
            character as it is, line ends included.
    """
    return list(text) if level == CHARACTER else _WORD.findall(text.lower())


def join(tokens: list[str], level: str) -> str:
    """Join tokens that ``tokenise`` returned to a readable text, which has the same tokens again."""
    return ("" if level == CHARACTER else " ").join(tokens)


def replace_urls(text: str) -> str:
    """Replace each web address by ``<url>``."""
    return _URL.sub(f" {URL} ", text)


def replace_users(text: str) -> str:
    """Replace each ``@name`` by ``<user>``, but leave e-mail addresses as they are."""
    return _USER.sub(f" {USER} ", text)
