"""Which runs are shown, in which order: ``--filter`` and ``--sort``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from fedpriv.common.errors import ConfigError, did_you_mean, show

SHOWN = (
    "run", "algorithm", "dataset", "seed", "rounds", "state",
    "test_accuracy", "epsilon", "epsilon_published", "epsilon_sound",
)  # fmt: skip
"""The columns of every table; after them the keys that differ."""
Values = Mapping[str, object]
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def refuse_unknown(flag: str, key: str, known: Collection[str]) -> None:
    """Raise ConfigError for a key that no run has, with the nearest name."""
    if key not in known:
        hint = did_you_mean(key, known)
        raise ConfigError(flag, key or "nothing", "a key of config.yaml or summary.json", hint)


def filtered(
    rows: Sequence[Values], filters: Sequence[str], known: Collection[str]
) -> list[Values]:
    """The rows that every filter lets through. Raises ConfigError for what is no filter."""
    for written in filters:
        match = re.fullmatch(r"([^=<>!]+)(!=|>=|<=|=|>|<)(.*)", written, re.DOTALL)
        if match is None:
            allowed = "KEY=VALUE, KEY!=VALUE, KEY>NUMBER or KEY<NUMBER"
            raise ConfigError("--filter", written or "nothing", allowed)
        key, sign, wanted = (part.strip() for part in match.groups())
        refuse_unknown("--filter", key, known)
        if sign in _COMPARE:
            limit = as_number(wanted)
            if limit is None:
                raise ConfigError("--filter", written, f"a number after {key}{sign}")
            numbers = [(row, as_number(row.get(key))) for row in rows]
            rows = [row for row, x in numbers if x is not None and _COMPARE[sign](x, limit)]
        else:
            rows = [row for row in rows if _same(row.get(key), wanted) == (sign == "=")]
    return list(rows)


def ordered(rows: Sequence[Values], keys: str, known: Collection[str]) -> list[Values]:
    """The rows by these keys: numbers before words, what is absent last, ``-key`` descending."""
    rows = list(rows)
    for written in reversed(keys.split(",")):
        key = written.strip().removeprefix("-")
        refuse_unknown("--sort", key, known)
        there = [row for row in rows if row.get(key) is not None]
        absent = [row for row in rows if row.get(key) is None]
        there.sort(key=lambda row: _rank(row[key]), reverse=written.strip().startswith("-"))
        rows = there + absent
    return rows


def as_number(value: object) -> float | None:
    """A number, also as it is written; None for anything else, NaN too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _same(value: object, wanted: str) -> bool:
    a, b = as_number(value), as_number(wanted)
    if a is not None and b is not None:
        return a == b
    return show(value) == wanted


def _rank(value: object) -> tuple[bool, float, str]:
    number = as_number(value)
    return (True, 0.0, show(value)) if number is None else (False, number, "")
