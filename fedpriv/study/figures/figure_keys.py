"""Checks of the keys of a figure's file, each by itself, and the values that they become."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, did_you_mean, show
from fedpriv.store.columns import AUDIT_COLUMNS, COLUMNS

SHORT_METRICS = {"accuracy": "test_accuracy", "loss": "test_loss"}
_SET_ELSEWHERE = {
    "seed": "seeds: [0, 1, 2]",
    "dry_run": "fedpriv figure FILE --dry-run",
    "resume": "nothing; a figure goes on with its runs by itself",
    "publish": "nothing; the runs of a figure are found by their seeds",
}
_NAME = re.compile(r"(?!\.)[\w.+=-]+(/(?!\.)[\w.+=-]+)*")


@dataclass(frozen=True)
class Values:
    """A config key and its values.

    Attributes:
        key: The config key.
        values: The values.
    """

    key: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """One of the curves or panels of a file.

    Attributes:
        label: Label in the legend, or title of the panel.
        overrides: Overrides of its runs.
    """

    label: str
    overrides: tuple[str, ...]


def overrides_key(name: str, value: Any) -> tuple[str, ...]:
    """Return overrides from a text as after ``fedpriv train``, or from a list of such texts."""
    allowed = "overrides such as algorithm=dp_fl rounds=50"
    if value is None:
        return ()
    try:
        words = (
            shlex.split(value)
            if isinstance(value, str)
            else [checks.text(name, word) for word in checks.sequence(name, value, allowed)]
        )
    except ValueError as error:  # an open quote, or a part that is no text
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(name, value, allowed) from None
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals or not key or word.startswith("-"):
            raise ArgumentError(name, word, allowed)
        bare = key.lstrip("+~")
        if bare in _SET_ELSEWHERE:
            raise ArgumentError(name, word, f"without {bare}", f"use {_SET_ELSEWHERE[bare]}")
        if bare.partition(".")[0] in ("hydra", "figure") or bare.startswith("hydra/"):
            raise ArgumentError(
                name, word, "about the runs", f"fedpriv figure FILE {word} takes it"
            )
    return tuple(words)


def x_key(name: str, value: Any) -> str | Values:
    """Return a column that is drawn over rounds, or a key with its values."""
    allowed = "a key with its values, such as {epsilon: [1, 2, 4]}, or a column such as round"
    if isinstance(value, str):
        columns = [column for column in COLUMNS if column not in AUDIT_COLUMNS]
        if value not in columns:
            raise ArgumentError(name, value, allowed, did_you_mean(value, columns))
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ArgumentError(name, value, allowed)
    ((key, values),) = value.items()
    if key == "seed" or key.startswith(("runtime.", "figure.", "hydra")):
        raise ArgumentError(name, key, "a key that makes another run", "seeds: 5 sets the seeds")
    numbers = checks.sequence(f"{name}.{key}", values, "a list of numbers")
    if not numbers:
        raise ArgumentError(f"{name}.{key}", "[]", "at least one number")
    for number in numbers:
        if not checks.is_number(number):
            hint = "options and texts belong under curves or panels"
            raise ArgumentError(f"{name}.{key}", number, "numbers", hint)
        checks.number(f"{name}.{key}", number)
    if len(set(numbers)) < len(numbers):
        raise ArgumentError(f"{name}.{key}", values, "different numbers")
    return Values(key, tuple(sorted(numbers)))


def choices_key(name: str, value: Any) -> tuple[Choice, ...]:
    """Return curves or panels: every combination of keys with values, or labels with overrides."""
    allowed = f"keys with their values, such as {{{_EXAMPLE}}}, or labels with overrides each"
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not value:
        raise ArgumentError(name, value, allowed)
    listed = [isinstance(values, list) for values in value.values()]
    if not any(listed):
        return tuple(
            Choice(str(label), overrides_key(f"{name}.{label}", text))
            for label, text in value.items()
        )
    if not all(listed):
        odd = next(key for key, values in value.items() if not isinstance(values, list))
        raise ArgumentError(f"{name}.{odd}", value[odd], "a list of values, as its neighbours are")
    choices = [Choice("", ())]
    for key, values in value.items():
        if not values:
            raise ArgumentError(f"{name}.{key}", "[]", "at least one value")
        for one in values:
            if isinstance(one, list | dict):
                raise ArgumentError(f"{name}.{key}", one, "texts, numbers, true, false or null")
        words = [written(one) for one in values]
        if len(set(words)) < len(words):
            raise ArgumentError(f"{name}.{key}", values, "different values")
        overrides_key(f"{name}.{key}", [f"{key}={word}" for word in words])
        choices = [
            Choice(_joined(choice.label, _label(key, one)), (*choice.overrides, f"{key}={word}"))
            for choice in choices
            for one, word in zip(values, words, strict=True)
        ]
    return tuple(choices)


_EXAMPLE = "algorithm: [adap_dpfl, dp_fl]"


def written(value: object) -> str:
    """Return a plain value of a YAML as it is typed in an override."""
    return repr(value) if isinstance(value, float) else show(value)


def _label(key: str, value: object) -> str:
    """Return the label of a value: an option by its name, a number with the last part of its key."""
    is_option = isinstance(value, str) and "." not in key
    return written(value) if is_option else f"{_in_words(key)} = {written(value)}"


def key_label(key: str) -> str:
    """Return the label of an axis over the values of a key, as that of the column of the same name."""
    column = COLUMNS.get(key.rpartition(".")[2])
    return "ε asked for" if key == "epsilon" else column.label if column else _in_words(key)


def title_key(name: str, value: object) -> object:
    """Return a title, which may be null or empty."""
    return value if value is None or value == "" else checks.text(name, value)


def _in_words(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def _joined(first: str, second: str) -> str:
    return f"{first}, {second}" if first else second


def seeds_key(name: str, value: Any) -> tuple[int, ...]:
    """Return the seeds of a list, or so many seeds from 0."""
    if not isinstance(value, list):
        try:
            return tuple(range(checks.whole(name, value, at_least=1, at_most=10_000)))
        except ArgumentError:
            raise ArgumentError(name, value, "how many (5), or a list ([0, 1, 2])") from None
    seeds = tuple(checks.seed(name, seed) for seed in value)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ArgumentError(name, value, "one seed or several different ones")
    return seeds


def metric_column(name: str, value: Any) -> str:
    """Return the column that a metric of the file names."""
    if value in SHORT_METRICS:
        return SHORT_METRICS[value]
    columns = [column for column in COLUMNS if column != "round"]
    if not isinstance(value, str) or value not in columns:
        known = (*SHORT_METRICS, *columns)
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ArgumentError(name, value, f"one of {', '.join(known)}", hint)
    return value


def metrics_key(name: str, value: Any) -> tuple[str, ...]:
    """Return the columns that a metric, or a list of metrics, names."""
    values = value if isinstance(value, list) else [value]
    columns = tuple(metric_column(name, one) for one in values)
    if not columns or len(set(columns)) < len(columns):
        raise ArgumentError(name, value, "a metric, or a list of different ones")
    return columns


def texts_key(name: str, value: Any) -> tuple[str, ...]:
    """Return folders from a text or a list of texts."""
    words = [value] if isinstance(value, str) else checks.sequence(name, value, "a list of folders")
    return tuple(checks.text(name, word) for word in words)


def name_key(name: str, value: Any) -> str:
    """Return the name of the figure's folder."""
    if not _NAME.fullmatch(checks.text(name, value)):
        raise ArgumentError(name, value, "letters, digits and . _ - + =, with / for subfolders")
    return str(value)


def keys_of(overrides: Iterable[str]) -> set[str]:
    """Return the keys that overrides set, without the signs of Hydra."""
    return {override.lstrip("+~").partition("=")[0] for override in overrides}
