"""A table of the user's own: a CSV, Parquet or npz file, without code.

Everything that turns a record into numbers is declared in the configuration and taken as public: the range of
each number, the categories of each text, the labels. Nothing is computed from the records, as a mean or a
largest value would be a statistic of private data that no ε covers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, DataError, did_you_mean, show
from fedpriv.common.fields import (
    declared,
    field,
    not_null,
    number,
    or_null,
    random_seed,
    text,
    unchecked,
)
from fedpriv.common.random_streams import coins
from fedpriv.common.words import counted, in_short
from fedpriv.data.base import Dataset
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.data.table_files import (
    FORMATS,
    Columns,
    digests,
    numbers,
    one_hot,
    place_of,
    read_table,
    text_of,
    texts,
)

MOST_LABELS = 1000
"""Labels that are read from the records: a column with more of them is probably a number."""
DECLARED = (
    "The ranges of dataset.ranges and the categories of dataset.categories are taken as public: the "
    "guarantee holds if they were chosen without looking at the records. Values outside a range were set to "
    "its nearest bound; how many is not counted."
)
LABELS_READ = (
    "The set of labels ({count}) was read from the records and is taken as a public fact: no epsilon covers "
    "it. dataset.labels declares the labels instead."
)
_RANGE = "[low, high], two numbers with low < high"
_RANGES = (
    "{COLUMN: [low, high], ...}, or one [low, high] for all columns that are not named elsewhere"
)
_CATEGORIES = "{COLUMN: [value, value, ...], ...}"


@dataclass(frozen=True)
class _Declaration:
    """The declared columns of a table, as values that can be compared.

    Attributes:
        label: Column of the label.
        user: Column of the user, or None.
        ranges: (column, low, high) of each number.
        rest: Range of all other columns, or None.
        categories: (column, its values as texts) of each text.
        labels: The labels as texts, or None to read them.
    """

    label: str
    user: str | None
    ranges: tuple[tuple[str, float, float], ...]
    rest: tuple[float, float] | None
    categories: tuple[tuple[str, tuple[str, ...]], ...]
    labels: tuple[str, ...] | None


@dataclass(frozen=True)
class _Table:
    """All records of a file as numbers.

    Attributes:
        inputs: float32 [n, ...].
        labels: Label of each record as text [n].
        users: Number of each record's user, int64 [n], or None.
        digests: Digest of all columns of each record; with users, of each user's name instead.
        order: The columns of the inputs, in their order.
        unused: Columns that are declared nowhere.
    """

    order: tuple[str, ...]
    inputs: np.ndarray
    labels: np.ndarray
    users: np.ndarray | None
    digests: tuple[bytes, ...]
    unused: tuple[str, ...]


@declared
class OwnTable(Dataset):
    """Records of a table with declared columns.

    A number x of a column with the range [low, high] becomes (x - low) / (high - low), and is first set to
    the nearest bound if it lies outside. A category becomes as many inputs as the column has values, one of
    them 1. An array of npz with a shape of its own, such as images [n, h, w], keeps it if it is the only
    input; images get a channel. The constructor reads the file, so every mistake comes before the run.

    The test records are about ``test_share`` of the records, or of the users where there are any (a user's
    records are never in both). Each record, or user, has a coin of its own, which follows from ``split_seed``
    and from what the record holds, or the user's name: one more record, wherever it stands, changes the side
    of no other. The seed is public and does not follow the seed of a run.

    Raises:
        ArgumentError: A setting is wrong, or names a column that the file does not have.
        DataError: The file cannot be read, or a value is not what was declared.
    """

    name: ClassVar[str] = "csv"

    path: str = field(
        not_null(text, f"a file of your own: {FORMATS}"), default=None, help=f"the file: {FORMATS}"
    )
    label: str = field(
        not_null(text, "the column with the label"), default=None, help="column of the label"
    )
    user: str | None = field(
        or_null(text),
        default=None,
        help="column that names the user of a record, for partition=natural; null: none",
    )
    ranges: Any = field(
        unchecked("mapping or list"),
        default=None,
        help="public range of each number, {{age: [0, 100]}}; or [low, high] for all other columns",
    )
    categories: Any = field(
        unchecked("mapping"), default=None, help="public values of each text, {{sex: [f, m]}}"
    )
    labels: Any = field(
        unchecked("list"),
        default=None,
        help="the labels, in the order of the classes; null: read, which the statement says",
    )
    test_path: str | None = field(
        or_null(text),
        default=None,
        help="a file of the same columns with the test records; null: a share of path",
    )
    test_share: float = field(
        number(above=0, below=1),
        default=0.2,
        help="share of the records, or users, held out to test",
    )
    split_seed: int = field(
        random_seed, default=0, help="draws the test records; public, other than the seed of a run"
    )
    validation_records: int = field(
        unchecked("whole number >= 1"),
        default=None,
        help="held out of the training records if something reads them; null: a tenth",
    )

    def __attrs_post_init__(self) -> None:
        declaration = _declaration(self)
        self._table = _read(Path(self.path).expanduser(), declaration)
        self._test_table = None
        if self.test_path is not None:
            test_file, order = Path(self.test_path).expanduser(), self._table.order
            self._test_table = _read(test_file, replace(declaration, user=None), order)
        self._words = declaration.labels or self._labels_of_records()
        if len(self._words) < 2:
            raise DataError(
                f"{self.path}: every label in {self.label} is {self._words[0]}; there is nothing to learn"
            )
        for path, table in ((self.path, self._table), (self.test_path, self._test_table)):
            if table is not None:
                self._refuse_other_labels(path, table.labels)
        self._train, self._test = self._split()
        train_records = len(self._train)
        tested = self._test_table or self._table
        facts = {
            "train_records": train_records,
            "test_records": len(tested.labels) if self._test_table else len(self._test),
            "input_shape": self._table.inputs.shape[1:],
            "classes": len(self._words),
        }
        vars(self).update(facts)
        records = self.validation_records
        self.validation_records = checks.whole(
            "validation_records",
            max(1, train_records // 10) if records is None else records,
            at_least=1,
            at_most=train_records - 1,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the data for the plan."""
        unused = self._table.unused
        where = "in neither dataset.ranges nor dataset.categories"
        left_out = [f"columns not used, {where}: {in_short(unused)}"] if unused else []
        share = f"{self.test_share:g} of the {'records' if self.user is None else 'users'}"
        drawn = f"test records: about {share}, each drawn by itself, dataset.split_seed={self.split_seed}"
        return (*left_out, *([] if self.test_path else [drawn]))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about the data for the privacy statement."""
        read = [] if self.labels is not None else [LABELS_READ.format(count=len(self._words))]
        return (DECLARED, *read)

    def load(self) -> LoadedDataset:
        """Return the records as tensors."""
        users = self._table.users
        return LoadedDataset(
            train=self._records(self._table, self._train),
            test=self._records(self._table, self._test)
            if self._test_table is None
            else self._records(self._test_table, np.arange(self.test_records)),
            client_ids=None if users is None else users[self._train],
        )

    def _records(self, table: _Table, indices: np.ndarray) -> Records:
        import torch

        position = {word: place for place, word in enumerate(self._words)}
        targets = np.array([position[word] for word in table.labels[indices]], dtype=np.int64)
        return Records(torch.from_numpy(table.inputs[indices]), torch.from_numpy(targets))

    def _labels_of_records(self) -> tuple[str, ...]:
        tables = [table for table in (self._table, self._test_table) if table is not None]
        found = {word for table in tables for word in table.labels}
        if len(found) > MOST_LABELS:
            raise ArgumentError(
                "label",
                self.label,
                f"a column with at most {MOST_LABELS} different values",
                f"it has {len(found):,}; if these are classes, list them in dataset.labels",
            )
        try:
            return tuple(sorted(found, key=float))
        except ValueError:
            return tuple(sorted(found))

    def _refuse_other_labels(self, path: str | None, labels: np.ndarray) -> None:
        known = set(self._words)
        for record, word in enumerate(labels):
            if word not in known:
                allowed = in_short(self._words)
                place = place_of(Path(str(path)).expanduser(), record)
                raise DataError(
                    f"{path}, {place}: {self.label} is {show(word) or 'empty'}, which is none of "
                    f"dataset.labels ({allowed})"
                )

    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted indices of the training and of the test records in ``path``."""
        count, users = len(self._table.labels), self._table.users
        if self.test_path is not None:
            return np.arange(count), np.zeros(0, dtype=np.int64)
        drawn = np.array(coins(self.split_seed, "own_table_split", self._table.digests))
        in_test = (drawn if users is None else drawn[users]) < self.test_share
        sides = (~in_test, in_test)
        unit = "record" if users is None else "user"
        trained, tested = (
            int(side.sum()) if users is None else len(np.unique(users[side])) for side in sides
        )
        if trained < 2 or not tested:
            raise DataError(
                f"{self.path}: dataset.test_share={self.test_share:g} gives {counted(trained, unit)} to "
                f"training and {tested} to test, at least 2 and 1 are needed; choose another share or "
                "dataset.split_seed, or name a file with test records in dataset.test_path"
            )
        return np.flatnonzero(sides[0]), np.flatnonzero(sides[1])


# ---- what is declared


def _declaration(table: OwnTable) -> _Declaration:
    """Check the declared columns and return them in comparable form."""
    rest, ranges = None, []
    if isinstance(table.ranges, Mapping):
        for column, limits in table.ranges.items():
            ranges.append((str(column), *_limits(f"ranges.{column}", limits)))
    elif table.ranges is not None:
        rest = _limits("ranges", table.ranges, _RANGES)
    if table.categories is not None and not isinstance(table.categories, Mapping):
        raise ArgumentError("categories", table.categories, _CATEGORIES)
    categories = tuple(
        (str(column), _declared_words(f"categories.{column}", words))
        for column, words in (table.categories or {}).items()
    )
    if not ranges and rest is None and not categories:
        hint = "columns of text are declared in dataset.categories"
        raise ArgumentError("ranges", table.ranges, _RANGES, hint)
    names = [name for name, *_ in (*ranges, *categories)]
    for name in names:
        if names.count(name) > 1:
            allowed, hint = "a column that ranges does not name", "a column is a number or a text"
            raise ArgumentError(f"categories.{name}", name, allowed, hint)
    for key, column in (("label", table.label), ("user", table.user)):
        if column in names:
            hint = f"take it out of dataset.{'ranges' if column in _by_column(ranges) else 'categories'}"
            raise ArgumentError(key, column, "a column that is no input", hint)
    if table.user is not None and table.user == table.label:
        raise ArgumentError("user", table.user, "another column than dataset.label")
    labels = None if table.labels is None else _declared_words("labels", table.labels)
    if labels is not None and len(labels) < 2:
        raise ArgumentError("labels", table.labels, "a list of two labels or more")
    return _Declaration(table.label, table.user, tuple(ranges), rest, categories, labels)


def _by_column(ranges: Sequence[tuple[str, float, float]]) -> dict[str, tuple[float, float]]:
    """Return the declared ranges by column."""
    return {name: (low, high) for name, low, high in ranges}


def _limits(key: str, limits: object, allowed: str = _RANGE) -> tuple[float, float]:
    values = checks.sequence(key, limits, allowed)
    if len(values) != 2 or not all(checks.is_number(v) and math.isfinite(v) for v in values):
        raise ArgumentError(key, limits, allowed)
    low, high = map(float, values)
    if low >= high:
        raise ArgumentError(key, limits, _RANGE)
    return low, high


def _declared_words(key: str, words: object) -> tuple[str, ...]:
    allowed = "a list of different values"
    values = checks.sequence(key, words, allowed)
    for value in values:
        if value is None or isinstance(value, (bool, list, dict)):
            hint = "quote it: YAML reads yes, no, true, false and null as no text"
            raise ArgumentError(key, value, "a list of texts or numbers", hint)
    declared_words = tuple(map(text_of, values))
    if not declared_words or len(set(declared_words)) < len(declared_words):
        raise ArgumentError(key, words, allowed)
    return declared_words


# ---- the file


def _read(path: Path, declaration: _Declaration, order: tuple[str, ...] | None = None) -> _Table:
    """Return a table as numbers. A file that has not changed is read once in a process.

    Args:
        path: The file.
        declaration: What its columns hold.
        order: Columns of the inputs in their order; None for that of the file.
    """
    try:
        facts = path.stat()
    except OSError:
        facts = None  # reading it says why
    return _read_once(path, declaration, order, facts and (facts.st_mtime_ns, facts.st_size))


@lru_cache(maxsize=4)  # the jobs of a sweep share the table, and the test file
def _read_once(
    path: Path, declaration: _Declaration, order: tuple[str, ...] | None, state: object
) -> _Table:
    columns = read_table(path)
    ranges = _by_column(declaration.ranges)
    categories = dict(declaration.categories)
    _refuse_absent(path, declaration, columns)
    declared_names = {declaration.label, declaration.user, *ranges, *categories}
    others = [name for name in order or columns if name not in declared_names]
    if declaration.rest is not None:
        ranges |= dict.fromkeys(others, declaration.rest)
        others = []
    order = order or tuple(name for name in columns if name in ranges or name in categories)
    for name in order:
        if name not in columns:
            raise DataError(f"{path} has no column {name}, which is an input of dataset.path")
    parts = []
    for name in order:
        values = columns[name]
        if name in ranges:
            is_declared = name in _by_column(declaration.ranges)
            key = f"ranges.{name}" if is_declared else "ranges"
            parts.append(_scaled(numbers(path, name, values, f"dataset.{key}"), *ranges[name]))
        else:
            parts.append(one_hot(path, name, texts(path, name, values), categories[name]))
    if not parts:
        raise ArgumentError(
            "ranges", list(declaration.rest or ()), "the range of at least one column"
        )
    users, owners = None, columns
    if declaration.user is not None:
        user_names = texts(path, declaration.user, columns[declaration.user])
        for record in np.flatnonzero(user_names == "")[:1]:
            raise DataError(
                f"{path}, {place_of(path, record)}: {declaration.user} (the user) is missing"
            )
        names_of_users, numbers_of_users = np.unique(user_names.astype(str), return_inverse=True)
        users = numbers_of_users.astype(np.int64)
        owners = {declaration.user: names_of_users}
    labels = texts(path, declaration.label, columns[declaration.label])
    for record in np.flatnonzero(labels == "")[:1]:
        raise DataError(
            f"{path}, {place_of(path, record)}: {declaration.label} (the label) is missing"
        )
    return _Table(order, _joined(parts), labels, users, digests(owners), tuple(others))


def _refuse_absent(path: Path, declaration: _Declaration, columns: Columns) -> None:
    named = {"label": declaration.label, "user": declaration.user}
    named |= {f"ranges.{name}": name for name, *_ in declaration.ranges}
    named |= {f"categories.{name}": name for name, _ in declaration.categories}
    for key, name in named.items():
        if name is not None and name not in columns:
            hint = did_you_mean(name, columns)
            if len(columns) == 1 and ";" in next(iter(columns)):
                hint = "columns of a .csv are separated by commas, and this header has semicolons"
            elif any(c.lstrip("-").replace(".", "", 1).isdigit() for c in columns):
                hint = "its first line looks like a record, not like a header with the names of columns"
            raise ArgumentError(key, name, f"a column of {path} ({in_short(tuple(columns))})", hint)


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return ((np.clip(values, low, high) - low) / (high - low)).astype(np.float32)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return all inputs, float32 [n, d]. The only array of npz keeps its shape; grey images get a channel."""
    if len(parts) == 1 and parts[0].ndim > 2:
        (values,) = parts
        return values[:, np.newaxis] if values.ndim == 3 else values
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
