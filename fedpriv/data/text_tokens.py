"""Text to tokens, word by word or character by character."""

from __future__ import annotations

import html
import re

WORD, CHARACTER = "word", "character"
LEVELS = (WORD, CHARACTER)
USER, URL = "<user>", "<url>"

_WORD = re.compile(r"<\w+>|\w+(?:['’]\w+)*|[^\w\s]")
_URL = re.compile(r"(?:https?|ftp)://\S+|\bwww\.\S+", re.IGNORECASE)
_USER = re.compile(r"(?<!\w)@\w+")


def tokenise(text: str, level: str) -> list[str]:
    """The tokens of ``text``, in order.

    ``word``: lower-case words (digits, inner apostrophes and names in angle brackets such as
    ``<url>`` included) and single punctuation marks; blanks are lost. ``character``: every character
    as it is, line ends included.
    """
    return list(text) if level == CHARACTER else _WORD.findall(text.lower())


def join(tokens: list[str], level: str) -> str:
    """Tokens as a text to read; ``tokenise`` gives them back, names such as ``<pad>`` whole."""
    return ("" if level == CHARACTER else " ").join(tokens)


def unescape(text: str) -> str:
    """HTML entities as the characters they stand for: ``&amp;`` → ``&``."""
    return html.unescape(text)


def replace_urls(text: str) -> str:
    """Each address becomes ``<url>``."""
    return _URL.sub(f" {URL} ", text)


def replace_users(text: str) -> str:
    """Each ``@name`` becomes ``<user>`` (an e-mail address is left alone)."""
    return _USER.sub(f" {USER} ", text)
