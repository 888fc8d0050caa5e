"""Formatting of numbers, counts and labels in messages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextvars import ContextVar
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

TABLE_FORMAT: ContextVar[str] = ContextVar("table_format", default="text")
"""Form of the tables that a command prints: text, markdown, latex or csv (its flag --table)."""
_MOST_LABELS = 20
# controls of terminals, marks that turn the direction of text, halves of surrogates
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return a text with each control character of terminals replaced by the replacement character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "round"), counted(2, "history")
    ('1 round', '2 histories')
    """
    return f"{number} {noun if number == 1 else _plural(noun)}"


def counted_span(low: int, high: int, noun: str) -> str:
    """Return a range of numbers with their noun.

    >>> counted_span(2, 5, "lot"), counted_span(5, 5, "lot")
    ('2 to 5 lots', '5 lots')
    """
    return counted(high, noun) if low == high else f"{low} to {high} {_plural(noun)}"


def span(low: object, high: object) -> str:
    """Return a range of values; a single value if both read the same.

    >>> span(2, 5), span(5, 5)
    ('2 to 5', '5')
    """
    return f"{low}" if f"{low}" == f"{high}" else f"{low} to {high}"


def in_short(labels: Sequence[str]) -> str:
    """Return labels with commas; of more than 20 labels only the first 20 and the number of the others."""
    hidden = len(labels) - _MOST_LABELS
    suffix = f" and {hidden} more" if hidden > 0 else ""
    return ", ".join(labels[:_MOST_LABELS]) + suffix


def records_of(number: int | None, whose: str = "its ") -> str:
    """Return a number of records; ``its records`` while the number is unknown.

    Args:
        number: The number, or None.
        whose: Words before ``records`` where the number is unknown.

    >>> records_of(78), records_of(None)
    ('78 records', 'its records')
    """
    return f"{whose}records" if number is None else f"{number} records"


def round_up(epsilon: float, decimals: int = 3) -> str:
    """Return ε with so many decimals, rounded up so that no privacy loss is understated.

    >>> round_up(1.2341)
    '1.235'
    """
    if math.isinf(epsilon):
        return "infinite"
    return f"{math.ceil(epsilon * 10**decimals - 1e-9) / 10**decimals:.{decimals}f}"


def digits_up(epsilon: float, digits: int = 4) -> str:
    """Return ε with at most so many significant digits, rounded up.

    >>> digits_up(0.452119), digits_up(12341.0), digits_up(2.0)
    ('0.4522', '1.235e+04', '2')
    """
    # Twelve digits first: 0.1 + 0.2 is 0.3, not 0.3001.
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(upwards.create_decimal(f'{epsilon:.12g}')):.{digits}g}"


def digits_down(epsilon: float, digits: int = 3) -> str:
    """Return a lower bound of ε with at most so many significant digits, rounded down so that it still holds.

    >>> digits_down(0.45289), digits_down(1.0), digits_down(0.0)
    ('0.452', '1', '0')
    """
    downwards = Context(prec=digits, rounding=ROUND_FLOOR)
    return f"{float(downwards.create_decimal(f'{epsilon:.12g}')):.{digits}g}"


def percent_up(share: float) -> str:
    """Return a share in percent with two decimals, rounded up.

    >>> percent_up(0.12341)
    '12.35 %'
    """
    return f"{math.ceil(share * 10_000 - 1e-9) / 100:.2f} %"


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun[-1:] == "y" and noun[-2:-1] not in "aeiou" else f"{noun}s"


def quoted(text: object) -> str:
    r"""Return a text as a value of Hydra's grammar: in single quotes where it would read something else.

    A backslash is doubled before a quote alone, as Hydra takes every other one as it is.

    >>> print(quoted("outputs/a"), quoted("it's, b"))
    outputs/a 'it\'s, b'
    """
    if re.fullmatch(r"[\w/.+-]*[A-Za-z/][\w/.+-]*", str(text), re.ASCII):
        return str(text)
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: 2 * m[1] + m[2].replace("'", r"\'"), str(text))
    return f"'{escaped}'"
