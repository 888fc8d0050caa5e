"""A census extract of the user's own, such as IPUMS-USA, which may not be redistributed.

The file has one record per line: numbers separated by blanks, equally many on every line. The last number is
the label, 0 or 1. Empty lines are skipped.

The split into training and test records belongs to the data set, not to a run. About a fifth of the records
are test records, each by a coin of its own that follows from its line. With a number m of test records, they
are those at floor(i n / m), i = 0 ... m-1, of the n records in the order of the file, counted from 0. Both
keep the class shares of a file that is sorted by class, and depend on no seed of a run.

Source: S. Ruggles et al., IPUMS USA (usa.ipums.org); its terms ask everybody to make an extract of
their own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, DataError, show
from fedpriv.common.fields import declared, field, not_null, text, unchecked
from fedpriv.common.words import counted
from fedpriv.data.base import Dataset
from fedpriv.data.records import DataStatus, LoadedDataset, Records
from fedpriv.data.roles import coin, told_apart

FORMAT = "numbers separated by blanks, one record a line, the last number its label 0 or 1"
OWN_FILE = f"a file of your own: name it with dataset.path=FILE ({FORMAT})"
OWN_RECORDS = f"the file with your records ({FORMAT})"
TEST_SHARE = 0.2
UNSCALED = "columns as they are; dataset.scale (a public divisor for each) brings them to one scale"


@declared
class Ipums(Dataset):
    """Records of two classes from the user's own file, ``path``.

    With ``scale`` None the inputs stay as they are. A list of one divisor per input column gives x / divisor;
    ``{centre: [...], width: [...]}`` gives (x - centre) / width. These numbers are taken as public: choose
    them from the meaning of the columns, not from the records.

    The constructor counts the records and the columns of the first line, so the sizes are known before the
    file is parsed.

    Raises:
        ArgumentError: A setting does not fit the file, or the file cannot be read.
        DataError: The file is too small to split.
    """

    # Defaults of the attributes that the constructor takes from the file.
    input_shape, train_records, notes = (0,), 0, cast("tuple[str, ...]", ())

    name: ClassVar[str] = "ipums"
    classes: ClassVar[int] = 2

    path: str = field(
        not_null(text, OWN_RECORDS), default=None, help="path of the file, which must be given"
    )
    test_records: int = field(
        unchecked("whole number >= 1"),
        default=None,
        help="number of test records, taken evenly over the file; null: about a fifth, each by its own coin",
    )
    scale: Any = field(
        unchecked("list or mapping"),
        default=None,
        help="public constants that scale each input column: a divisor, or centre and width; null: none",
    )
    validation_records: int = field(
        unchecked("whole number >= 1"),
        default=None,
        help="records held out of the training records, if a part of the run reads them; null: none",
    )

    def __attrs_post_init__(self) -> None:
        try:
            lines = read_lines(self.file)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ArgumentError("path", self.path, OWN_RECORDS, reason) from None
        self.columns = self._columns(lines)
        self.input_shape = (self.columns - 1,)
        # The allowed ranges below depend on the number of records in the file.
        most = len(lines) - 2
        wanted: int | None = self.test_records
        self.counts_test, self._keys = wanted is not None, told_apart(line for _, line in lines)
        if wanted is None:
            self._test = np.flatnonzero(coin(0, "test", self._keys) < TEST_SHARE)
            if not 1 <= len(self._test) <= most:
                raise DataError(
                    f"{self.file} has {len(self._test)} of {len(lines)} records to test by their coins; "
                    "give dataset.test_records"
                )
        else:
            checks.whole("test_records", wanted, at_least=1, at_most=most)
            self._test = np.arange(wanted) * len(lines) // wanted
        self.test_records = len(self._test)
        self.train_records = len(lines) - self.test_records
        if self.validation_records is None:
            self.validation_records = 0
        else:
            checks.whole(
                "validation_records",
                self.validation_records,
                at_least=1,
                at_most=self.train_records - 1,
            )
        self._centre, self._width = _scale(self.scale, self.columns - 1)
        self.notes = () if self.scale is not None else (UNSCALED,)

    @property
    def file(self) -> Path:
        """Path of the user's file."""
        return Path(self.path).expanduser()

    def load(self) -> LoadedDataset:
        """Read the file.

        Raises:
            DataError: A line is invalid; the error names the line number.
        """
        import torch

        inputs, labels = self._read()
        records = Records(torch.from_numpy(inputs), torch.from_numpy(labels))
        train = np.setdiff1d(np.arange(len(labels)), self._test)
        return LoadedDataset(
            train=records.subset(train),
            test=records.subset(self._test),
            keys=[self._keys[i] for i in train],
        )

    def present(self) -> DataStatus:
        """Read the file and return its status. No error is raised."""
        note = ""
        try:
            self._read()
        except DataError as error:
            note = str(error)
        return DataStatus(
            name=self.name,
            train_records=self.train_records,
            test_records=self.test_records,
            where=self.path,
            present=True,
            checksums="damaged" if note else "own file",
            note=note,
        )

    @classmethod
    def status(cls, path: str | None) -> DataStatus:
        """Return the row of ``fedpriv data``: the state of ``path``, or how to name a file."""
        note = OWN_FILE
        if path is not None and Path(path).expanduser().is_file():
            try:
                return cls(path=path).present()
            except (ArgumentError, DataError) as error:
                note = str(error)
        return DataStatus(cls.name, None, None, "", False, "not checked", note)

    def _columns(self, lines: list[tuple[int, bytes]]) -> int:
        if len(lines) < 3:
            raise DataError(
                f"{self.file} must have at least 3 records ({FORMAT}), got {len(lines)}"
            )
        number, first = lines[0]
        columns = len(first.split())
        if columns < 2:
            raise DataError(f"{self.file}, line {number} has one column; expected are {FORMAT}")
        return columns

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return scaled inputs float32 [n, d] and labels int64 [n] of all records."""
        try:
            lines = read_lines(self.file)
        except OSError as error:
            raise DataError(f"cannot read {self.file}: {error.strerror or error}") from error
        values = np.empty((len(lines), self.columns))
        for row, (number, line) in enumerate(lines):
            values[row] = self._numbers(number, line.split())
        labels = values[:, -1]
        for row in np.flatnonzero((labels != 0) & (labels != 1))[:1]:
            number, text = lines[row]
            label_text = show(_text(text.split()[-1]))
            raise DataError(
                f"{self.file}, line {number}: the label (last column) must be 0 or 1, got {label_text}"
            )
        if (labels == labels[0]).all():
            raise DataError(f"{self.file}: every label is {labels[0]:g}; there is nothing to learn")
        with np.errstate(over="ignore"):
            inputs = ((values[:, :-1] - self._centre) / self._width).astype(np.float32)
        for row, column in np.argwhere(~np.isfinite(inputs))[:1]:
            number, text = lines[row]
            raise DataError(
                f"{self.file}, line {number}: column {column + 1} is too large for a 32-bit number "
                f"({show(_text(text.split()[column]))}); divide it by dataset.scale"
            )
        return inputs, labels.astype(np.int64)

    def _numbers(self, line: int, fields: list[bytes]) -> list[float]:
        if len(fields) != self.columns:
            raise DataError(
                f"{self.file}, line {line}: {counted(len(fields), 'column')} where the first record "
                f"has {self.columns}"
            )
        return [self._number(line, column, field) for column, field in enumerate(fields, start=1)]

    def _number(self, line: int, column: int, field: bytes) -> float:
        try:
            number = float(field)
        except ValueError:
            number = None
        if number is None or not math.isfinite(number):
            fault = "is not a number" if number is None else "is not finite"
            raise DataError(
                f"{self.file}, line {line}: column {column} {fault} ({show(_text(field))})"
            )
        return number


def read_lines(path: Path) -> list[tuple[int, bytes]]:
    """Return the non-empty lines of a file with their line numbers from 1. May raise OSError."""
    lines = enumerate(path.read_bytes().splitlines(), start=1)
    return [(number, text) for number, text in lines if text.strip()]


def _scale(scale: Any, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and width of each input column, float64 [d]."""
    if scale is None:
        return np.zeros(inputs), np.ones(inputs)
    if not isinstance(scale, dict):
        return np.zeros(inputs), _numbers("scale", scale, inputs, above=0)
    if set(scale) != {"centre", "width"}:
        allowed = "null, a list of divisors or {centre: [...], width: [...]}"
        raise ArgumentError("scale", scale, allowed)
    centre = _numbers("scale.centre", scale["centre"], inputs)
    return centre, _numbers("scale.width", scale["width"], inputs, above=0)


def _numbers(key: str, values: Any, inputs: int, above: float | None = None) -> np.ndarray:
    allowed = f"a list of {inputs} numbers, one per input column"
    numbers = checks.sequence(key, values, allowed)
    if len(numbers) != inputs:
        raise ArgumentError(key, values, allowed)
    return np.array(
        [checks.number(f"{key}[{i}]", value, above=above) for i, value in enumerate(numbers)]
    )


def _text(field: bytes) -> str:
    return field.decode("utf-8", errors="replace")
