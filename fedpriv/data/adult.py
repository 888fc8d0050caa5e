"""UCI Adult (census income), read from ``adult/adult.data`` and ``adult/adult.test``.

A record becomes 105 numbers: first the six numeric columns, then the eight categorical columns one-hot over
the lists that ``adult.names`` publishes, all in the order of the file. A missing value (``?``) is all zeros
in the part of its column. The target is 1 for an income above 50K.

The numeric columns are standardised as (x - centre) / width, the long-tailed ones after x -> log(1 + x). The
constants cost no privacy, because anybody can choose them without the records:

- age: centre 40, the middle of a working life; hours per week: centre 40;
- education: centre 9 (high-school graduate) of the sixteen published codes;
- census weight: centre e^12, about 160,000, because somewhat over 100,000 adults of the survey stand for
  about 190 million, in hundredths of a person;
- widths bring the possible values to the order of one.

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
    """A numeric column and the public constants that standardise its values.

    Attributes:
        name: Name of the column.
        centre: Value that becomes 0.
        width: Divisor after the centre is subtracted.
        logarithm: True to standardise log(1 + x) instead of x.
    """

    name: str
    centre: float
    width: float
    logarithm: bool = False

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """Return the standardised values, float64 [n]."""
        return ((np.log1p(values) if self.logarithm else values) - self.centre) / self.width


@dataclass(frozen=True)
class Categorical:
    """A categorical column and all values that it may hold."""

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
    """UCI Adult: 32,561 + 16,281 people with 105 inputs each, in two classes of income.

    Class 1 is an income above 50K. Many publications leave out records with a missing value; 30,162 + 15,060
    records then remain.
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
        help="true: leave out records with a missing value (30,162 and 15,060 remain)",
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
    """Parse a file of UCI Adult. Empty lines and remarks (``|...``) are skipped.

    Args:
        content: Bytes of the file.
        path: File, for messages.
        drop_missing: True to leave out records with a missing value.

    Returns:
        Inputs float32 [n, 105] and targets int64 [n], in the order of the file.

    Raises:
        DataError: A line is not a record of Adult; the error names the file and the line.
    """
    numbers, categories, targets = [], [], []
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
            categories.append([_position(c, f) for c, f in _of(Categorical, fields)])
            targets.append(_label(fields[-1]))
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}") from None
    return _inputs(numbers, categories), np.array(targets, dtype=np.int64)


def _of(kind: type[Column], fields: list[str]) -> list[tuple[Column, str]]:
    return [(c, f) for c, f in zip(COLUMNS, fields, strict=False) if isinstance(c, kind)]


def _number(column: Numeric, field: str) -> float:
    if not (field.isascii() and field.isdigit()):
        raise ValueError(f"{column.name} must be a whole number >= 0, got {show(field)}")
    return float(field)


def _position(column: Categorical, field: str) -> int:
    """Return the index of a category in the published list; -1 for a missing value."""
    if field == MISSING:
        return -1
    if field not in column.words:
        raise ValueError(f"{column.name} {show(field)} is not one of the published categories")
    return column.words.index(field)


def _label(field: str) -> int:
    """Return 1 for an income above 50K, else 0. The labels of adult.test end in a full stop."""
    income = field.removesuffix(".")
    if income not in INCOME.words:
        raise ValueError(f"the label must be one of {', '.join(INCOME.words)}, got {show(field)}")
    return INCOME.words.index(income)


def _inputs(numbers: list[list[float]], words: list[list[int]]) -> np.ndarray:
    """Return the inputs, float32 [n, 105], from numeric values and category indices, one list per record."""
    values = np.array(numbers, dtype=np.float64).reshape(-1, len(NUMERIC))
    inputs = np.zeros((len(values), INPUTS), dtype=np.float32)
    for index, column in enumerate(NUMERIC):
        inputs[:, index] = column.standardise(values[:, index])
    start, positions = len(NUMERIC), np.array(words, dtype=np.int64).reshape(-1, len(CATEGORICAL))
    for index, category in enumerate(CATEGORICAL):
        known = np.flatnonzero(positions[:, index] >= 0)
        inputs[known, start + positions[known, index]] = 1
        start += len(category.words)
    return inputs
