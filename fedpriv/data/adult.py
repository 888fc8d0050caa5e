"""UCI Adult (census income), read from ``adult/adult.data`` and ``adult/adult.test``.

A record becomes 105 numbers: six numeric columns, then the eight categorical ones one-hot over the
lists that ``adult.names`` publishes, all in the order of the file. Missing values (``?``) are all
zeros in their column's part. The target is 1 for an income above 50K.

The numeric columns are standardised as (x - centre) / width, the long-tailed ones after
x -> log(1 + x). The constants are round numbers that anybody can choose without the records, so they
cost no privacy: age 40, the middle of a working life; a working week of 40 hours; code 9 (high-school
graduate) of the sixteen published codes of education; e^12, about 160,000, for the census weight
(a survey of somewhat over 100,000 adults stands for about 190 million, in hundredths of a person); and
widths that bring the possible values to the order of one.

Source: B. Becker, R. Kohavi, Adult, UCI Machine Learning Repository (1996), CC BY 4.0; the lists are
those of ``adult.names`` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from fedpriv.common.errors import DataError, show
from fedpriv.common.fields import boolean, declared, field, same_as
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.data.storage import StoredFile
from fedpriv.data.stored import StoredFiles

SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
MISSING = "?"


@dataclass(frozen=True)
class Numeric:
    """A column of numbers; ``logarithm``: standardise log(1 + x) instead of x."""

    name: str
    centre: float
    width: float
    logarithm: bool = False

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """float64 [n] of the same shape."""
        return ((np.log1p(values) if self.logarithm else values) - self.centre) / self.width


@dataclass(frozen=True)
class Categorical:
    """A column of words, and all words it may hold."""

    name: str
    words: tuple[str, ...]


Column = TypeVar("Column", Numeric, Categorical)

COLUMNS: tuple[Numeric | Categorical, ...] = (
    Numeric("age", 40, 15),
    Categorical(
        "workclass",
        ("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov",
         "Without-pay", "Never-worked"),
    ),
    Numeric("fnlwgt", 12, 1, logarithm=True),
    Categorical(
        "education",
        ("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc",
         "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool"),
    ),
    Numeric("education-num", 9, 3),
    Categorical(
        "marital-status",
        ("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed",
         "Married-spouse-absent", "Married-AF-spouse"),
    ),
    Categorical(
        "occupation",
        ("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial",
         "Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical",
         "Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv",
         "Armed-Forces"),
    ),
    Categorical(
        "relationship",
        ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    ),
    Categorical("race", ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")),
    Categorical("sex", ("Female", "Male")),
    Numeric("capital-gain", 0, 5, logarithm=True),
    Numeric("capital-loss", 0, 5, logarithm=True),
    Numeric("hours-per-week", 40, 10),
    Categorical(
        "native-country",
        ("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany",
         "Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran",
         "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal",
         "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti",
         "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
         "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands"),
    ),
)  # fmt: skip
INCOME = Categorical("income", ("<=50K", ">50K"))
NUMERIC = tuple(column for column in COLUMNS if isinstance(column, Numeric))
CATEGORICAL = tuple(column for column in COLUMNS if isinstance(column, Categorical))
INPUTS = len(NUMERIC) + sum(len(column.words) for column in CATEGORICAL)


@declared
class Adult(StoredFiles):
    """UCI Adult: 32,561 + 16,281 people, whether each earns more than 50K; 105 inputs, two classes.

    Without records that have a missing value, which many publications leave out, 30,162 + 15,060 remain.
    """

    name = "adult"
    train_records = 32_561
    test_records = 16_281
    input_shape = (INPUTS,)
    classes = 2
    sites = (SITE,)
    contents = "adult/adult.data and adult/adult.test"
    files: ClassVar = (
        StoredFile("adult/adult.data", "5d7c39d7b8804f071cdd1f2a7c460872"),
        StoredFile("adult/adult.test", "35238206dfdf7f1fe215bbb874adecdc"),
    )
    complete_records: ClassVar[tuple[int, int]] = (30_162, 15_060)

    path: str | None = same_as(StoredFiles, "path")
    drop_missing: bool = field(
        boolean,
        default=False,
        help="true: without records that have a missing value (30,162 and 15,060 remain)",
    )
    validation_records: int = same_as(StoredFiles, "validation_records")
    download_if_absent: bool = same_as(StoredFiles, "download_if_absent")

    def __attrs_post_init__(self) -> None:
        if self.drop_missing:
            train_records, test_records = self.complete_records
            vars(self).update(train_records=train_records, test_records=test_records)

    @property
    def _train_records(self) -> int:
        return self.complete_records[0] if self.drop_missing else self.train_records

    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        train, test = (
            self._records(content, folder / file.path)
            for content, file in zip(contents, self.files, strict=True)
        )
        return LoadedDataset(train=train, test=test)

    def _records(self, content: bytes, path: Path) -> Records:
        import torch

        inputs, targets = parse_adult(content, path, drop_missing=self.drop_missing)
        return Records(torch.from_numpy(inputs), torch.from_numpy(targets))


def parse_adult(
    content: bytes, path: Path, *, drop_missing: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs float32 [n, 105] and targets int64 [n] of a file's records, in its order.

    Empty lines and remarks (``|...``) are passed over. Raises DataError, naming ``path`` and the
    line, for a record that is not one of Adult.
    """
    numbers, words, targets = [], [], []
    for line, text in enumerate(content.decode("utf-8", errors="replace").split("\n"), start=1):
        if not text.strip() or text.startswith("|"):
            continue
        fields = [field.strip() for field in text.split(",")]
        if len(fields) != len(COLUMNS) + 1:
            expected = f"{len(COLUMNS) + 1} fields are expected, got {len(fields)}"
            raise DataError(f"{path}, line {line}: {expected}")
        if drop_missing and MISSING in fields:
            continue
        try:
            numbers.append([_number(c, f) for c, f in _of(Numeric, fields)])
            words.append([_position(c, f) for c, f in _of(Categorical, fields)])
            targets.append(_label(fields[-1]))
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}") from None
    return _inputs(numbers, words), np.array(targets, dtype=np.int64)


def _of(kind: type[Column], fields: list[str]) -> list[tuple[Column, str]]:
    return [(c, f) for c, f in zip(COLUMNS, fields, strict=False) if isinstance(c, kind)]


def _number(column: Numeric, field: str) -> float:
    if not (field.isascii() and field.isdigit()):
        raise ValueError(f"{column.name} must be a whole number >= 0, got {show(field)}")
    return float(field)


def _position(column: Categorical, field: str) -> int:
    """Where a word stands in the published list; -1 for a missing value."""
    if field == MISSING:
        return -1
    if field not in column.words:
        raise ValueError(f"{column.name} {show(field)} is not one of the published categories")
    return column.words.index(field)


def _label(field: str) -> int:
    """1 for more than 50K; the labels of adult.test end in a full stop."""
    word = field.removesuffix(".")
    if word not in INCOME.words:
        raise ValueError(f"the label must be one of {', '.join(INCOME.words)}, got {show(field)}")
    return INCOME.words.index(word)


def _inputs(numbers: list[list[float]], words: list[list[int]]) -> np.ndarray:
    """float32 [n, 105] of the numeric values and the positions of the words, one list a record."""
    values = np.array(numbers, dtype=np.float64).reshape(-1, len(NUMERIC))
    inputs = np.zeros((len(values), INPUTS), dtype=np.float32)
    for place, column in enumerate(NUMERIC):
        inputs[:, place] = column.standardise(values[:, place])
    start, positions = len(NUMERIC), np.array(words, dtype=np.int64).reshape(-1, len(CATEGORICAL))
    for place, category in enumerate(CATEGORICAL):
        known = np.flatnonzero(positions[:, place] >= 0)
        inputs[known, start + positions[known, place]] = 1
        start += len(category.words)
    return inputs
