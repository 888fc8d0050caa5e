"""Checks of single keys of a figure, and the values that they become. Errors name the key."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
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


class Keys:
    """A group of keys of a figure; each is checked when it is taken, and an error names its whole path.

    Args:
        path: The path of the group; empty for the figure itself.
        values: The keys, of which those with null count as absent.
        allowed: The keys that are allowed; None: all.
        empty: True where the group may have no key.

    Raises:
        ArgumentError: The values are no group of keys, or a key is not allowed.
    """

    def __init__(
        self, path: str, values: Any, allowed: Iterable[str] | None = None, empty: bool = False
    ):
        if not isinstance(values, dict) or not (values or empty):
            raise ArgumentError(path, values, "a group of keys")
        self.path, self.values = path, {k: v for k, v in values.items() if v is not None}
        known = None if allowed is None else [*allowed]
        for name in values:
            if known is not None and name not in known:
                hint = did_you_mean(str(name), known)
                raise ArgumentError(self.at(name)[:80], name, f"one of {', '.join(known)}", hint)

    def at(self, name: object) -> str:
        """Return the path of a key."""
        return f"{self.path}.{name}" if self.path else str(name)

    def take(self, name: str, check: Callable[[str, Any], Any], default: Any = None) -> Any:
        """Return the value of a key as ``check`` returns it, or the default where it is absent."""
        return check(self.at(name), self.values[name]) if name in self.values else default


def one_of(options: Iterable[str]) -> Callable[[str, Any], str]:
    """Return the check of a choice among names."""
    return lambda key, value: checks.one_of(key, value, options)


def each(read: Callable[[str, Any], Any]) -> Callable[[str, Any], list[Any]]:
    """Return the reader of a list, given that of an entry."""
    example = "a list such as [{label: guessing, value: 10}]"
    return lambda key, value: [
        read(f"{key}.{number}", entry)
        for number, entry in enumerate(checks.sequence(key, value, example))
    ]


def folders_key(key: str, value: Any) -> tuple[str, ...]:
    """Return folders from a text or a list of texts."""
    words = [value] if isinstance(value, str) else checks.sequence(key, value, "folders")
    return tuple(checks.text(key, word) for word in words)


def overrides_key(key: str, value: Any) -> tuple[str, ...]:
    """Return overrides from a text as after ``fedpriv train``, or from a list of such texts."""
    allowed = "overrides such as algorithm=dp_fl rounds=50"
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

            from fedpriv.store.pairs import spread

            drawn = np.array([[row["y"]] for row in rows])
            (mean,) = spread(np.array([x]), drawn, Axes.band).itertuples()
            numbers.append(StatedPoint(x, mean.mean, mean.low, mean.high))
            continue
        ((y, low, high),) = [(row["y"], row.get("low"), row.get("high")) for row in rows]
        if low is not None and high is not None and not low <= y <= high:
            raise ArgumentError(key, f"{low:g}, {y:g}, {high:g}", "low <= y <= high in each row")
        numbers.append(StatedPoint(x, y, low, high))
    return numbers
