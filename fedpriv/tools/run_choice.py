"""The choice and the order of the runs in a table: ``--filter`` and ``--sort``.

A row is a mapping of keys to values, as ``fedpriv.store.run_folders.ListedRun.values`` makes it.
"""

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
"""The columns of every table. The keys of the configuration that differ follow them."""

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
    """Return the rows that pass every filter.

    Args:
        rows: One mapping of keys to values for each run.
        filters: Texts such as ``dataset=digits`` or ``test_accuracy>0.9``. Values are compared as numbers
            where both are numbers, and as they are shown otherwise.
        known: Keys that any run has.

    Raises:
        ConfigError: A text is no filter, its key is unknown, ``<`` and ``>`` are given no number, or the
            value is near one that a run has, and no run has it.
    """
    for text in filters:
        match = re.fullmatch(r"([^=<>!]+)(!=|>=|<=|=|>|<)(.*)", text, re.DOTALL)
        if match is None:
            allowed = "KEY=VALUE, KEY!=VALUE, KEY>NUMBER or KEY<NUMBER"
            raise ConfigError("--filter", text or "nothing", allowed)
        key, sign, operand = (part.strip() for part in match.groups())
        refuse_unknown("--filter", key, known)
        if sign in _COMPARE:
            limit = as_number(operand)
            if limit is None:
                raise ConfigError("--filter", text, f"a number after {key}{sign}")
            numbers = [(row, as_number(row.get(key))) for row in rows]
            rows = [row for row, x in numbers if x is not None and _COMPARE[sign](x, limit)]
        else:
            values = {show(row[key]) for row in rows if row.get(key) is not None}
            rows = [row for row in rows if _equal(row.get(key), operand) == (sign == "=")]
            if sign == "=" and not rows and (hint := did_you_mean(operand, values)):
                allowed = f"a value that a run has: {', '.join(sorted(values))}"
                raise ConfigError("--filter", text, allowed, hint)
    return list(rows)


def ordered(rows: Sequence[Values], keys: str, known: Collection[str]) -> list[Values]:
    """Return the rows sorted by ``keys``, a text such as ``dataset,-test_accuracy``.

    The first key counts most. Numbers come before words, rows without the key come last, and ``-key`` sorts
    in descending order.

    Args:
        rows: One mapping of keys to values for each run.
        keys: Keys, separated by commas.
        known: Keys that any run has.

    Raises:
        ConfigError: No run has one of the keys.
    """
    rows = list(rows)
    # Sorting is stable, so the rows are sorted by the last key first.
    for text in reversed(keys.split(",")):
        key = text.strip().removeprefix("-")
        refuse_unknown("--sort", key, known)
        with_key = [row for row in rows if row.get(key) is not None]
        without_key = [row for row in rows if row.get(key) is None]
        with_key.sort(key=lambda row: _rank(row[key]), reverse=text.strip().startswith("-"))
        rows = with_key + without_key
    return rows


def as_number(value: object) -> float | None:
    """Return a number, or the number that a text spells; None for anything else and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _equal(value: object, operand: str) -> bool:
    a, b = as_number(value), as_number(operand)
    if a is not None and b is not None:
        return a == b
    return show(value) == operand


def _rank(value: object) -> tuple[bool, float, str]:
    number = as_number(value)
    return (True, 0.0, show(value)) if number is None else (False, number, "")
