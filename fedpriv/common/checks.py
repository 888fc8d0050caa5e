"""Checks of constructor arguments: each returns the value in its proper type or raises
:class:`~fedpriv.common.errors.ArgumentError` with the argument, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fedpriv.common.errors import ArgumentError


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """A finite float inside the given bounds (a bool or a text is not a number)."""
    limits = bounds(above=above, at_least=at_least, below=below, at_most=at_most)
    allowed = limits or "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
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
    """Return the bounds of a number in signs; ``at_most`` may be the name of another argument."""
    given = ((">", above), (">=", at_least), ("<", below), ("<=", at_most))
    return " and ".join(
        f"{sign} {bound}" if isinstance(bound, str) else f"{sign} {bound:g}"
        for sign, bound in given
        if bound is not None
    )


def parsed(text: str) -> object:
    """Return the number that a text stands for; else the text, or ``nothing`` in place of an empty one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or "nothing"


def not_above(name: str, value: object, other: str, limit: float, *, above: float | None) -> float:
    """A number > ``above`` and no larger than another argument, which the error names."""
    result = number(name, value, above=above)
    if result > limit:
        raise ArgumentError(name, value, f"<= {limit:g}, which is {other}")
    return result


def whole(name: str, value: object, *, at_least: int = 0, at_most: int | None = None) -> int:
    """An int (1000 and 1e3 are both whole; 2.5 is not) inside the given bounds."""
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
    """A seed: any whole number from 0 to 2^63 - 1. 0 is a seed like any other."""
    return whole(name, value, at_least=0, at_most=2**63 - 1)


def one_of(name: str, value: object, options: Iterable[str]) -> str:
    """One of a few names."""
    options = list(options)
    if not isinstance(value, str) or value not in options:
        raise ArgumentError(name, value, "one of " + ", ".join(options))
    return value


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false")
    return value


def text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        hint = f"to take a number as a text, quote it: '{name}=\"{value}\"'" if number else ""
        raise ArgumentError(name, value, "a text", hint)
    return value


def sequence(name: str, value: object, allowed: str = "a list") -> Sequence[Any]:
    """A list (OmegaConf's list counts); a text does not."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ArgumentError(name, value, allowed)
    return list(value)
