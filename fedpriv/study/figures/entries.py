"""Checks of the entries of a figure's YAML. Errors name the key below ``figure``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, show


def mapping(key: str, value: Any) -> dict[str, Any]:
    """Return a group of keys, which must not be empty."""
    if not isinstance(value, dict) or not value:
        raise ArgumentError(key, value, "a group of keys")
    return value


def texts(key: str, value: Any) -> tuple[str, ...]:
    """Return a list of overrides."""
    return tuple(checks.text(key, v) for v in checks.sequence(key, value, "a list of overrides"))


def optional_text(key: str, value: Any) -> str | None:
    """Return a text, or None for null."""
    return None if value is None else checks.text(key, value)


def names(key: str, value: Any, known: Mapping[str, Any], noun: str) -> tuple[str, ...]:
    """Return a list of different known names; ``noun`` says in messages what the names are of."""
    chosen = checks.sequence(key, value, f"a list of {noun}s")
    for name in chosen:
        if isinstance(name, list | dict):
            raise ArgumentError(key, value, f"a list of {noun}s")
        if name not in known:
            hint = did_you_mean(name, known, "; ")
            raise ConfigError(
                f"figure.{key}: no {noun} {show(name)}{hint} (known: {listed(known)})"
            )
    if not chosen or len(set(chosen)) != len(chosen):
        raise ArgumentError(key, value, f"one {noun} or several different ones")
    return tuple(chosen)


def refuse_unknown(key: str, value: Mapping[str, Any], allowed: Any) -> None:
    """Raise ConfigError for a key below ``figure.<key>`` that is not allowed."""
    for name in value:
        if name not in allowed:
            hint = did_you_mean(str(name), allowed, "; ")
            dotted = ".".join(part for part in ("figure", key, str(name)) if part)
            raise ConfigError(f"unknown key {show(dotted)}{hint} (known: {', '.join(allowed)})")


def listed(names: Iterable[object]) -> str:
    """Join names for a sentence, each shortened to a line."""
    return ", ".join(map(show, names))


def increasing(
    key: str, value: Any, allowed: str = "a list of increasing numbers"
) -> tuple[float, ...]:
    """Return a list of increasing numbers."""
    numbers = checks.sequence(key, value, allowed)
    for number in numbers:
        checks.number(key, number)
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        raise ArgumentError(key, value, allowed)
    return tuple(numbers)
