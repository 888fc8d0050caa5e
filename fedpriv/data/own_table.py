"""A table of the user's own: a CSV, Parquet or npz file, without code.

Everything that turns a record into numbers is declared in the configuration and taken as public: the range of
each number, the categories of each text, the labels. Nothing is computed from the records, as a mean or a
largest value would be a statistic of private data that no ε covers.
"""

from __future__ import annotations

import math
from collections import Counter
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
    own_check,
    random_seed,
    text,
    unchecked,
    whole,
)
from fedpriv.common.words import counted, in_short
from fedpriv.data.base import Dataset
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.data.roles import coin, keys_of_names, told_apart
from fedpriv.data.table_files import (
    FORMATS,
    Columns,
    columns_of,
    digests,
    numbers,
    one_hot,
    place_of,
    read_table,
    text_of,
    texts,
)

MOST_LABELS, FEW_LABELS = 1000, 20
"""Labels that are read from the records: more are refused, and up to so few may be any numbers."""
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
_NAMES = {"user": "the user", "client": "the client", "id": "the id"}
_CATEGORIES = "{COLUMN: [value, value, ...], ...}"


@dataclass(frozen=True)
class _Declaration:
    """The declared columns of a table, as values that can be compared.

    Attributes:
        label: Column of the label; None: the records have none.
        user: Column of the user, or None.
        client: Column of who holds a record, or None.
        id: Column of the record's own id, or None.
        ranges: (column, low, high) of each number.
        rest: Range of all other columns, or None.
        categories: (column, its values as texts) of each text.
        labels: The labels as texts, or None to read them.
    """

    label: str | None
    user: str | None
    client: str | None
    id: str | None
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
        names: User, client and id of each record as text [n], by key, where a column has them.
        digests: Digest of all columns of each record.
        order: The columns of the inputs, in their order.
        unused: Columns that are declared nowhere.
    """

    order: tuple[str, ...]
    inputs: np.ndarray
    labels: np.ndarray
    names: Mapping[str, np.ndarray]
    digests: tuple[bytes, ...]
    unused: tuple[str, ...]


def _file(name: str, value: Any) -> str:
    path = Path(checks.text(name, value)).expanduser()
    if not path.is_file():
        read_table(path)  # says why not, before anything is asked about its columns
    return str(value)


@declared
class OwnTable(Dataset):
    """Records of a table with declared columns.

    A number x of a column with the range [low, high] becomes (x - low) / (high - low), and is first set to
    the nearest bound if it lies outside. A category becomes as many inputs as the column has values, one of
    them 1. An array of npz with a shape of its own, such as images [n, h, w], keeps it if it is the only
    input; images get a channel. The constructor reads the file, so every mistake comes before the run.

    The test records are about ``test_share`` of the records, or of the users where there are any (a user's
    records are never in both); where a client is protected, of the clients. Each of them has a coin of its
    own, which follows from ``split_seed`` and from its name, or its id, or all that the record holds: one
    more record, wherever it stands, changes the side of no other. The seed is public and does not follow the
    seed of a run. Validation records are a file of their own, or a share that is declared public.

    Raises:
        ArgumentError: A setting is wrong, or names a column that the file does not have.
        DataError: The file cannot be read, or a value is not what was declared.
    """

    name: ClassVar[str] = "csv"

    path: str = field(
        not_null(own_check(_file, "text"), f"a file of your own: {FORMATS}"),
        default=None,
        help=f"the file: {FORMATS}",
    )
    label: str = field(
        not_null(text, "the column with the label"), default=None, help="column of the label"
    )
    user: str | None = field(
        or_null(text),
        default=None,
        help="column that names the user of a record, whose records have one role in the split; null: none",
    )
    client: str | None = field(
        or_null(text),
        default=None,
        help="column that names who holds a record, for partition=natural; null: the user",
    )
    id: str | None = field(
        or_null(text),
        default=None,
        help="column with a name of each record, which stays when the record changes; null: none",
    )
    records: int | None = field(
        or_null(whole(at_least=2)),
        default=None,
        help="declared number of training records, by which lots and weights are set; null: as found, public",
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
        random_seed,
        default=0,
        help="draws the split and deals out the records; public, other than the seed of a run",
    )
    validation_path: str | None = field(
        or_null(text),
        default=None,
        help="a file of the same columns with public validation records; null: none",
    )
    validation_share: float = field(
        number(at_least=0, below=1),
        default=0.0,
        help="share of the records, users or clients that is public, for validation",
    )

    def __attrs_post_init__(self) -> None:
        declaration = _declaration(self)
        self._table = _read(Path(self.path).expanduser(), declaration)
        plain, order = replace(declaration, id=None), self._table.order

        def other(path: str | None) -> _Table | None:
            return None if path is None else _read(Path(path).expanduser(), plain, order)

        if self.validation_path is not None and self.validation_share:
            raise ArgumentError("validation_share", self.validation_share, "0 with validation_path")
        self._test_table, self._validation_table = (
            other(self.test_path),
            other(self.validation_path),
        )
        self._tables = {
            path: table
            for path, table in (
                (self.path, self._table),
                (self.test_path, self._test_table),
                (self.validation_path, self._validation_table),
            )
            if table is not None
        }
        self.words = declaration.labels or self._labels_of_records()
        if len(self.words) < 2:
            raise DataError(
                f"{self.path}: every label in {self.label} is {self.words[0]}; there is nothing to learn"
            )
        for path, table in self._tables.items():
            self._refuse_other_labels(path, table.labels)
            both = set(table.names.get("user", ())) & set(self._table.names.get("user", ()))
            if table is not self._table and both:
                raise DataError(
                    f"{path}: {counted(len(both), 'user')} of {self.path} are in it too, such as "
                    f"{show(min(both))}; records of one user are on one side"
                )
        shape, words = self._table.inputs.shape[1:], self.words
        vars(self).update(input_shape=shape, classes=len(words), class_names=words)
        self.split_for("record")

    def split_for(self, unit: str) -> None:
        """Split the records where ``unit`` is protected: a client is on one side with all its records."""
        names = self._table.names
        whose = "client" if unit == "client" and self.client else "user"
        if (name := whose if whose in names else "id") in names:
            self._keys = keys_of_names(names[name])
        else:
            self._keys = told_apart(self._table.digests)
        self._unit = "record" if name == "id" else name
        count = len(self._table.labels)
        in_test = np.zeros(count, dtype=bool)
        if self._test_table is None:
            in_test = coin(self.split_seed, "own_table_split", self._keys) < self.test_share
        self._train, self._test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
        trained, tested = (len({self._keys[i] for i in side}) for side in (self._train, self._test))
        if trained < 2 or not (tested or self._test_table):
            raise DataError(
                f"{self.path}: dataset.test_share={self.test_share:g} gives {counted(trained, self._unit)} "
                f"to training and {tested} to test, at least 2 and 1 are needed; choose another share or "
                "dataset.split_seed, or name a file with test records in dataset.test_path"
            )
        tested_records = self._test if self._test_table is None else self._test_table.labels
        validation = round(self.validation_share * len(self._train))
        if self._validation_table is not None:
            validation = len(self._validation_table.labels)
        vars(self).update(
            train_records=len(self._train),
            test_records=len(tested_records),
            validation_records=validation,
        )

    @property
    def declared_records(self) -> int | None:
        """Declared number of training records, or None."""
        return self.records

    @property
    def names_records(self) -> bool:
        """True if a column names the person or the id of a record."""
        return bool(self.user or self.id)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the data for the plan."""
        unused = self._table.unused
        where = "in neither dataset.ranges nor dataset.categories"
        left_out = [f"columns not used, {where}: {in_short(unused)}"] if unused else []
        share = f"{self.test_share:g} of the {self._unit}s"
        drawn = f"test records: about {share}, each drawn by itself, dataset.split_seed={self.split_seed}"
        return (*left_out, *([] if self.test_path else [drawn]))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about the data for the privacy statement."""
        read = [] if self.labels is not None else [LABELS_READ.format(count=len(self.words))]
        split = "Test records are those of dataset.test_path."
        if self._test_table is None:
            split = (
                f"About {self.test_share:g} of the {self._unit}s are test records, each by a coin that "
                f"follows from its key and dataset.split_seed={self.split_seed}. Share and seed are public."
            )
        return (DECLARED, split, *read)

    @property
    def encoding(self) -> str:
        """Description of how each column becomes inputs, in their order."""
        declaration, order = _declaration(self), self._table.order
        words = {name: f" as {'/'.join(known)}" for name, known in declaration.categories}
        ranges = dict.fromkeys(order, declaration.rest) | _by_column(declaration.ranges)
        cut = {
            name: f" cut to {list(ends)}, scaled to [0, 1]" for name, ends in ranges.items() if ends
        }
        return "; ".join(name + (words.get(name) or cut[name]) for name in order)

    def read(self, source: Any, labelled: bool = True) -> Records:
        """Return other records, encoded as those of ``path``.

        Args:
            source: File of the same columns, or a data frame of them.
            labelled: True if they have the column of the label; else all targets are 0.

        Raises:
            DataError: The records are not as declared.
        """
        plain = replace(_declaration(self), user=None, client=None, id=None)
        plain = plain if labelled else replace(plain, label=None)
        is_frame = hasattr(source, "columns")
        path = Path("the data frame" if is_frame else source).expanduser()
        columns = columns_of(source) if is_frame else read_table(path)
        try:
            table = _encoded(path, columns, plain, self._table.order)
        except ArgumentError as error:  # a column is absent
            remedy = "; fedpriv.load(RUN).predict(FILE) needs no label" if labelled else ""
            raise DataError(f"dataset.{error}{remedy}") from None
        if not labelled:
            table = replace(table, labels=np.full(len(table.inputs), self.words[0], dtype=object))
        self._refuse_other_labels(str(path), table.labels)
        return self._records(table)

    def load(self) -> LoadedDataset:
        """Return the records as tensors."""
        ids, owners = None, self._table.names.get("client", self._table.names.get("user"))
        if owners is not None:
            names, ids = np.unique(owners[self._train].astype(str), return_inverse=True)
        test = self._records(self._table, self._test)
        test_owners = None if owners is None else owners[self._test]
        if self._test_table is not None:
            test, test_owners = (
                self._records(self._test_table),
                self._test_table.names.get("client"),
            )
        public = self._validation_table
        return LoadedDataset(
            train=self._records(self._table, self._train),
            test=test,
            client_ids=None if ids is None else ids.astype(np.int64),
            client_names=None if ids is None else names.tolist(),
            keys=[self._keys[i] for i in self._train],
            validation=None if public is None else self._records(public),
            test_owners=None if test_owners is None else test_owners.tolist(),
        )

    def _records(self, table: _Table, indices: Any = ...) -> Records:
        import torch

        position = {word: place for place, word in enumerate(self.words)}
        targets = np.array([position[word] for word in table.labels[indices]], dtype=np.int64)
        return Records(torch.from_numpy(table.inputs[indices]), torch.from_numpy(targets))

    def _labels_of_records(self) -> tuple[str, ...]:
        found = {word for table in self._tables.values() for word in table.labels}
        if len(found) > MOST_LABELS:
            raise ArgumentError(
                "label",
                self.label,
                f"a column with at most {MOST_LABELS} different values",
                f"it has {len(found):,}; if these are classes, list them in dataset.labels",
            )
        try:
            words = tuple(sorted(found, key=float))
            first = float(words[0])
            are_codes = first in (0, 1) and list(map(float, words)) == [
                first + place for place in range(len(words))
            ]
        except ValueError:
            words, are_codes = tuple(sorted(found)), True
        records = sum(len(table.labels) for table in self._tables.values())
        if len(words) > FEW_LABELS and (not are_codes or records < 5 * len(words)):
            raise ArgumentError(
                "label",
                self.label,
                "a column of classes",
                f"it has {len(words)} different values in {records} records, such as {', '.join(words[:3])}; "
                "numbers and names cannot be learnt, only classes: make a column of a few ranges of it; "
                "if the values are classes, list all of them in dataset.labels",
            )
        return words

    def _refuse_other_labels(self, path: str | None, labels: np.ndarray) -> None:
        known = set(self.words)
        for record, word in enumerate(labels):
            if word not in known:
                allowed = in_short(self.words)
                place = place_of(Path(str(path)).expanduser(), record)
                raise DataError(
                    f"{path}, {place}: {self.label} is {show(word) or 'empty'}, which is none of "
                    f"dataset.labels ({allowed})"
                )


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
    names = [str(name) for name, *_ in (*ranges, *categories)]
    for name in names:
        if names.count(name) > 1:
            allowed, hint = "a column that ranges does not name", "a column is a number or a text"
            raise ArgumentError(f"categories.{name}", name, allowed, hint)
    _refuse_names_that_are_inputs(table, names, _by_column(ranges))
    labels = None if table.labels is None else _declared_words("labels", table.labels)
    if labels is not None and len(labels) < 2:
        raise ArgumentError("labels", table.labels, "a list of two labels or more")
    named = (table.user, table.client, table.id)
    return _Declaration(table.label, *named, tuple(ranges), rest, categories, labels)


def _refuse_names_that_are_inputs(
    table: OwnTable, names: Sequence[str], ranges: Mapping[str, object]
) -> None:
    taken: dict[str, str] = {}
    for key in ("label", *_NAMES):
        column = getattr(table, key)
        if column in names:
            hint = f"take it out of dataset.{'ranges' if column in ranges else 'categories'}"
            raise ArgumentError(key, column, "a column that is no input", hint)
        if column in taken:
            raise ArgumentError(key, column, f"another column than dataset.{taken[column]}")
        if column is not None:
            taken[column] = key


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
    if order is not None and declaration.client not in columns:
        declaration = replace(declaration, client=None)  # a file of test records need not say whose
    return _encoded(path, columns, declaration, order)


def _encoded(
    path: Path, columns: Columns, declaration: _Declaration, order: tuple[str, ...] | None
) -> _Table:
    ranges = _by_column(declaration.ranges)
    categories = dict(declaration.categories)
    _refuse_absent(path, declaration, columns)
    named = {key: getattr(declaration, key) for key in _NAMES if getattr(declaration, key)}
    declared_names = {declaration.label, *named.values(), *ranges, *categories}
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
    names = {}
    for key, column in named.items():
        names[key] = texts(path, column, columns[column])
        for record in np.flatnonzero(names[key] == "")[:1]:
            place = place_of(path, record)
            raise DataError(f"{path}, {place}: {column} ({_NAMES[key]}) is missing")
    if "id" in names and len(set(names["id"])) < len(names["id"]):
        double = next(name for name, times in Counter(names["id"]).items() if times > 1)
        raise DataError(
            f"{path}: {named['id']} must name each record (dataset.id), and {show(double)} is in it twice"
        )
    labels = np.zeros(0, dtype=object)
    if declaration.label is not None:
        labels = texts(path, declaration.label, columns[declaration.label])
    for record in np.flatnonzero(labels == "")[:1]:
        raise DataError(
            f"{path}, {place_of(path, record)}: {declaration.label} (the label) is missing"
        )
    return _Table(order, _joined(parts), labels, names, digests(columns), tuple(others))


def _refuse_absent(path: Path, declaration: _Declaration, columns: Columns) -> None:
    named = {key: getattr(declaration, key) for key in ("label", *_NAMES)}
    named |= {f"ranges.{name}": name for name, *_ in declaration.ranges}
    named |= {f"categories.{name}": name for name, _ in declaration.categories}
    for key, name in named.items():
        if name is not None and name not in columns:
            hint = did_you_mean(name, columns)
            if any(c.lstrip("-").replace(".", "", 1).isdigit() for c in columns):
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
