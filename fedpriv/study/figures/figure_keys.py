"""Checks of single keys of a figure, and the values that they become. Errors name the key."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, did_you_mean, show
from fedpriv.store.columns import COLUMNS, Quantity
from fedpriv.store.saved import saved_rows
from fedpriv.study.figures.definition import Axes

SHORT_METRICS = {"accuracy": "test_accuracy", "loss": "test_loss"}
_SET_ELSEWHERE = {
    "seed": "use seeds: [0, 1, 2]",
    "dry_run": "use fedpriv figure FILE --dry-run",
    "resume": "a figure goes on with its runs by itself",
    "publish": "the runs of a figure are found by their seeds",
}
_NAME = re.compile(r"(?!\.)[\w.+=-]+(/(?!\.)[\w.+=-]+)*")


@dataclass(frozen=True)
class StatedPoint:
    """A number of a baseline in the units shown; ``x`` is None for a number that holds everywhere."""

    x: float | None
    y: float
    low: float | None = None
    high: float | None = None


def refuse_unknown(key: str, value: Mapping[Any, Any], allowed: Iterable[str]) -> None:
    """Raise ArgumentError for a key below ``key`` that is not allowed."""
    known = list(allowed)
    for name in value:
        if name not in known:
            hint = did_you_mean(str(name), known)
            path = f"{key}.{name}" if key else str(name)
            raise ArgumentError(path[:80], name, f"one of {', '.join(known)}", hint)


def keys_in(key: str, value: Any, allowed: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a group of keys, which must not be empty, and each of which is allowed."""
    if not isinstance(value, dict) or not value:
        raise ArgumentError(key, value, "a group of keys")
    if allowed is not None:
        refuse_unknown(key, value, allowed)
    return value


def overrides_key(key: str, value: Any) -> tuple[str, ...]:
    """Return overrides from a text as after ``fedpriv train``, or from a list of such texts."""
    allowed = "overrides such as algorithm=dp_fl rounds=50"
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:  # an open quote
            raise ArgumentError(key, value, allowed) from None
    else:
        words = [checks.text(key, word) for word in checks.sequence(key, value, allowed)]
    for word in words:
        name, equals, _ = word.partition("=")
        bare = name.lstrip("+~")
        if not equals or not name or word.startswith("-"):
            raise ArgumentError(key, word, allowed)
        if bare in _SET_ELSEWHERE:
            raise ArgumentError(key, word, f"without {bare}", _SET_ELSEWHERE[bare])
        if re.split(r"[./]", bare)[0] in ("hydra", "figure"):
            raise ArgumentError(key, word, "about the runs", f"fedpriv figure FILE {word} takes it")
    return tuple(words)


def choices_key(key: str, value: Any) -> dict[str, dict[str, Any]]:
    """Return curves or panels: name → keys, among which are the overrides.

    Keys with lists of values make a choice for every combination of the values.
    """
    if not isinstance(value, dict) or not value:
        example = "{algorithm: [adap_dpfl, dp_fl]}"
        allowed = f"keys with their values, such as {example}, or names with overrides or keys each"
        raise ArgumentError(key, value, allowed)
    if not any(isinstance(entry, list) for entry in value.values()):
        return {
            str(name): entry if isinstance(entry, dict) else {"overrides": entry}
            for name, entry in value.items()
        }
    choices: dict[str, tuple[str, ...]] = {"": ()}
    for name, values in value.items():
        here = f"{key}.{name}"
        for one in checks.sequence(here, values, "a list of values, as its neighbours are"):
            if isinstance(one, list | dict):
                raise ArgumentError(here, one, "texts, numbers, true, false or null")
        words = [*map(typed, values)]
        if not words or len(set(words)) < len(words):
            raise ArgumentError(here, values or "[]", "at least one value, or different values")
        labels = [
            word if isinstance(one, str) and "." not in name else f"{_in_words(name)} = {word}"
            for one, word in zip(values, words, strict=True)
        ]
        choices = {
            ", ".join(filter(None, (before, label))): (*overrides, f"{name}={word}")
            for before, overrides in choices.items()
            for label, word in zip(labels, words, strict=True)
        }
    return {label: {"overrides": [*overrides]} for label, overrides in choices.items()}


def typed(value: object) -> str:
    """Return a plain value of a YAML as it is typed in an override."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def key_label(key: str) -> str:
    """Return the label of an axis over the values of a key, as that of the column of the same name."""
    column = COLUMNS.get(key.rpartition(".")[2])
    return "ε asked for" if key == "epsilon" else column.label if column else _in_words(key)


def _in_words(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def numbers_key(key: str, value: Any) -> tuple[float, ...]:
    """Return different numbers, in increasing order."""
    numbers = checks.sequence(key, value, "a list of numbers")
    for number in numbers:
        if not checks.is_number(number):
            hint = "options and texts belong under curves or panels"
            raise ArgumentError(key, number, "numbers", hint)
        checks.number(key, number)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ArgumentError(key, value or "[]", "at least one number, or different numbers")
    return tuple(sorted(numbers))


def seeds_key(key: str, value: Any) -> tuple[int, ...]:
    """Return the seeds of a list, or so many seeds from 0."""
    if checks.is_number(value):
        return tuple(range(checks.whole(key, value, at_least=1, at_most=10_000)))
    given = checks.sequence(key, value, "how many seeds (5), or a list of seeds ([0, 1, 2])")
    seeds = tuple(checks.seed(key, seed) for seed in given)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ArgumentError(key, value, "one seed or several different ones")
    return seeds


def column_key(key: str, value: Any, columns: Mapping[str, Quantity]) -> str:
    """Return a column, which may be given by its short name."""
    known = (*(short for short, name in SHORT_METRICS.items() if name in columns), *columns)
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ArgumentError(key, value, f"one of {', '.join(known)}", hint)
    return SHORT_METRICS.get(value, value)


def limits_key(key: str, value: Any) -> tuple[float, float]:
    """Return two limits of an axis."""
    pair = [checks.number(key, v) for v in checks.sequence(key, value, "[from, to]")]
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ArgumentError(key, value, "[from, to] with from < to")
    return pair[0], pair[1]


def optional_text(key: str, value: Any) -> str | None:
    """Return a text, or None for null."""
    return None if value is None else checks.text(key, value)


def names_key(key: str, value: Any, known: Iterable[str]) -> tuple[str, ...]:
    """Return a list of different known names."""
    known, chosen = list(known), checks.sequence(key, value, "a list of names")
    for name in chosen:
        if not isinstance(name, str) or name not in known:
            hint = did_you_mean(show(name), known)
            raise ArgumentError(key, name, f"out of {', '.join(map(show, known))}", hint)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ArgumentError(key, value, "one name or several different ones")
    return tuple(chosen)


def name_key(key: str, value: Any) -> str:
    """Return the name of a figure's folder."""
    if not _NAME.fullmatch(checks.text(key, value)):
        raise ArgumentError(key, value, "letters, digits and . _ - + =, with / for subfolders")
    return str(value)


def keys_of(overrides: Iterable[str]) -> set[str]:
    """Return the keys that overrides set, without the signs of Hydra."""
    return {override.lstrip("+~").partition("=")[0] for override in overrides}


def read_numbers(key: str, path: Path) -> list[StatedPoint]:
    """Return the numbers of a CSV with the columns x and y, and optionally low and high, or seed.

    With ``seed``, the rows of one x are averaged, and low and high are the interval over the seeds.

    Args:
        key: Key of the file, for the error.
        path: The CSV.

    Raises:
        ArgumentError: There is no such file, a column is missing or unknown, or a cell is no number.
    """
    if not path.is_file():
        hint = "paths are relative to the YAML"
        raise ArgumentError(key, str(path), "an existing CSV file", hint)
    key = f"{key} ({path.name})"
    columns, *cells = saved_rows(path) or [[]]
    columns = [column.strip() for column in columns]
    forms = ["x", "y"], ["high", "low", "x", "y"], ["seed", "x", "y"]
    if sorted(columns) not in forms or not cells:
        got = ", ".join(columns) or "nothing"
        allowed = "a CSV with the columns x and y, and low and high, or seed, if there are any"
        raise ArgumentError(key, f"{got}{'' if cells else ' and no row'}", allowed)
    rows_at: dict[float, list[dict[str, float]]] = {}
    for line, row in enumerate(cells, start=2):
        values: dict[str, float] = {}
        for column, cell in zip_longest(columns, row[: len(columns)], fillvalue=""):
            value = checks.parsed(cell.strip())
            if not checks.is_number(value) or not math.isfinite(value):
                where = f"{value} in line {line}, column {column}"
                raise ArgumentError(key, where, "a number in every cell")
            values[column] = float(value)
        rows_at.setdefault(values["x"], []).append(values)
    numbers = []
    for x, rows in sorted(rows_at.items()):
        seeds = {row.get("seed", 0) for row in rows}
        if len(seeds) < len(rows):
            allowed = "another seed in each row of an x, or each x once"
            raise ArgumentError(key, f"{x:g} {len(rows)} times", allowed)
        if "seed" in columns:
            import numpy as np  # imported late, as series imports pandas

            from fedpriv.study.figures.series import spread

            drawn = np.array([[row["y"]] for row in rows])
            (mean,) = spread(np.array([x]), drawn, Axes.band).itertuples()
            numbers.append(StatedPoint(x, mean.mean, mean.low, mean.high))
            continue
        ((y, low, high),) = [(row["y"], row.get("low"), row.get("high")) for row in rows]
        if low is not None and high is not None and not low <= y <= high:
            raise ArgumentError(key, f"{low:g}, {y:g}, {high:g}", "low <= y <= high in each row")
        numbers.append(StatedPoint(x, y, low, high))
    return numbers
