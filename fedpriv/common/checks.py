"""Checks of constructor arguments.

Each check takes the name of the argument and its value. It returns the value in its proper type, or raises
:class:`~fedpriv.common.errors.ArgumentError` with the argument, the value and the allowed values. Classes
with declared fields use the checks through :mod:`fedpriv.common.fields`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from fedpriv.common.errors import ArgumentError


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is an int or a float, nan and infinity included. A bool is no number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """Return a finite float inside the given bounds; a bool or a text is no number.

    Args:
        name: Name of the argument.
        value: Value of the argument.
        above: Exclusive lower bound.
        at_least: Inclusive lower bound.
        below: Exclusive upper bound.
        at_most: Inclusive upper bound.

    Raises:
        ArgumentError: The value is no number, not finite, or outside the bounds.

    Example:
        >>> number("clip_norm", 1, above=0)
        1.0
    """
    limits = bounds(above=above, at_least=at_least, below=below, at_most=at_most)
    allowed = limits or "a number"
    if not is_number(value):
        raise ArgumentError(name, value, f"a number {limits}".strip())
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    inside = (
        math.isfinite(result)
        and (above is None or result > above)
        and (at_least is None or result >= at_least)
        and (below is None or result < below)
        and (at_most is None or result <= at_most)
    )
    if not inside:
        raise ArgumentError(name, value, allowed if math.isfinite(result) else f"finite, {allowed}")
    return result


def bounds(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | str | None = None,
) -> str:
    """Return the bounds of a number as text.

    Args:
        above: Bound that the number must exceed; None: there is none.
        at_least: Smallest number that is allowed.
        below: Bound that the number must not reach.
        at_most: Largest number that is allowed, or the name of another argument.

    >>> bounds(above=0, at_most="clients")
    '> 0 and <= clients'
    """
    given = ((">", above), (">=", at_least), ("<", below), ("<=", at_most))
    return " and ".join(
        f"{sign} {bound}" if isinstance(bound, str) else f"{sign} {bound:g}"
        for sign, bound in given
        if bound is not None
    )


def parsed(text: str) -> object:
    """Return the number that a text stands for; else the text, or ``nothing`` for an empty text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or "nothing"


def whole(name: str, value: object, *, at_least: int = 0, at_most: int | None = None) -> int:
    """Return an int inside the given inclusive bounds. A float without decimals counts: 1e3, but not 2.5.

    Args:
        name: Name of the argument, for the error.
        value: The value that the user gave.
        at_least: Smallest value that is allowed.
        at_most: Largest value that is allowed; None: there is none.

    Raises:
        ArgumentError: The value is no whole number, or outside the bounds.
    """
    allowed = f"a whole number >= {at_least}" + (
        f" and <= {at_most}" if at_most is not None else ""
    )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(name, value, allowed)
    if value < at_least or (at_most is not None and value > at_most):
        raise ArgumentError(name, value, allowed)
    return value


def seed(name: str, value: object) -> int:
    """Return a seed, a whole number from 0 to 2^63 - 1. The seed 0 has no special meaning."""
    return whole(name, value, at_least=0, at_most=2**63 - 1)


def one_of(name: str, value: object, options: Iterable[str]) -> str:
    """Return a value that is one of a few names. Raise ArgumentError for any other."""
    options = list(options)
    if not isinstance(value, str) or value not in options:
        raise ArgumentError(name, value, "one of " + ", ".join(options))
    return value


def boolean(name: str, value: object) -> bool:
    """Return a bool; neither a number nor a text counts as a bool. Raise ArgumentError for these."""
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false")
    return value


def text(name: str, value: object) -> str:
    """Return a text that is not blank.

    Raises:
        ArgumentError: The value is no text. For a number the error tells how to quote it.
    """
    if not isinstance(value, str) or not value.strip():
        quoted = f"to take a number as a text, quote it: '{name}=\"{value}\"'"
        hint = quoted if is_number(value) else ""
        raise ArgumentError(name, value, "a text", hint)
    return value


def sequence(name: str, value: object, allowed: str = "a list") -> Sequence[Any]:
    """Return a sequence as a list. OmegaConf's list counts as a sequence; a text does not.

    Args:
        name: Name of the argument, for the error.
        value: The value that the user gave.
        allowed: What is allowed, for the error.

    Raises:
        ArgumentError: The value is no sequence.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ArgumentError(name, value, allowed)
    return list(value)
