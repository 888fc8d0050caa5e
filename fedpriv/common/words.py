"""Small words for messages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_MOST_LABELS = 20
# controls of terminals, marks that turn the direction of text, halves of surrogates
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return text in which a replacement character stands for each character that a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``; ``2 histories``."""
    return f"{number} {noun if number == 1 else _plural(noun)}"


def counted_span(low: int, high: int, noun: str) -> str:
    """``2 to 5 lots``; ``5 lots`` where both are 5."""
    return counted(high, noun) if low == high else f"{low} to {high} {_plural(noun)}"


def span(low: object, high: object) -> str:
    """``2 to 5``; ``5`` where both read alike."""
    return f"{low}" if f"{low}" == f"{high}" else f"{low} to {high}"


def in_short(labels: Sequence[str]) -> str:
    """The labels, of very many only the first ones."""
    more = len(labels) - _MOST_LABELS
    rest = f" and {more} more" if more > 0 else ""
    return ", ".join(labels[:_MOST_LABELS]) + rest


def records_of(number: int | None, whose: str = "its ") -> str:
    """``78 records``; ``its records`` where nobody knows yet how many."""
    return f"{whose}records" if number is None else f"{number} records"


def round_up(epsilon: float) -> str:
    """ε with three decimals, never rounded below what was spent."""
    if math.isinf(epsilon):
        return "infinite"
    return f"{math.ceil(epsilon * 1000 - 1e-9) / 1000:.3f}"


def percent_up(share: float) -> str:
    """A share in percent with two decimals, never rounded below what it is."""
    return f"{math.ceil(share * 10_000 - 1e-9) / 100:.2f} %"


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun[-1:] == "y" and noun[-2:-1] not in "aeiou" else f"{noun}s"
