"""Reads the columns of a user's table: CSV, Parquet or NumPy's npz.

Messages name the line of a text file, and the record, counted from 1, of any other.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.errors import DataError, show
from fedpriv.common.words import counted, in_short
from fedpriv.data.storage import unreadable

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ".csv, .csv.gz, .parquet or .npz"
_TEXT_ENDINGS = (".csv", ".csv.gz")
Columns = dict[str, np.ndarray]
"""Values of each column by name [n]; an array of npz may have more dimensions. Text of a CSV stays text."""


def read_table(path: Path) -> Columns:
    """Read all columns of a table.

    Args:
        path: The file. Its ending names the format.

    Returns:
        The columns in the order of the file.

    Raises:
        DataError: The file is missing, of another format, damaged or empty, or two columns share a name.
    """
    name = path.name.lower()
    try:
        if not path.is_file():
            reason = "it is not a file" if path.exists() else "there is no such file"
            raise DataError(f"cannot read dataset.path={path}: {reason}")
        if name.endswith(_TEXT_ENDINGS):
            columns = _read_text(path)
        elif name.endswith(".parquet"):
            columns = _read_parquet(path)
        elif name.endswith(".npz"):
            columns = _read_npz(path)
        else:
            raise DataError(f"cannot read dataset.path={path}: its name must end in {FORMATS}")
    except OSError as error:
        raise unreadable(path, error) from None
    lengths = {key: len(values) for key, values in columns.items()}
    if not columns or not max(lengths.values()):
        raise DataError(f"{path} has no records")
    first = next(iter(columns))
    for key, length in lengths.items():
        if length != lengths[first]:
            raise DataError(
                f"{path}: {key} has {counted(length, 'record')}, {first} has {lengths[first]}"
            )
    return columns


def numbers(path: Path, name: str, values: np.ndarray, key: str) -> np.ndarray:
    """Return a column as finite numbers, float64 of the same shape.

    Args:
        path: The file, for messages.
        name: The column.
        values: Numbers, or their text [n].
        key: The key that declares the column a number, for messages.

    Raises:
        DataError: A value is missing, is not a number or is not finite.
    """
    if values.dtype.kind in "biuf":
        result = values.astype(np.float64)
    elif values.dtype.kind in "OUS" and values.ndim == 1:
        import pandas as pd  # imported late: only runs on such a table need it

        result = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
    else:
        raise DataError(
            f"{path}: {name} does not hold numbers, as {key} declares; its type is {values.dtype}"
        )
    for position in np.argwhere(~np.isfinite(result))[:1]:
        text = _text(values[tuple(position)])
        if text in ("", "nan", "NaN", "NA", "None", "null"):
            fault, remedy = "is missing", "fill in the cell or leave the record out"
        elif text.lstrip("+-").lower() in ("inf", "infinity"):
            fault, remedy = f"is not finite ({show(text)})", "mend the cell or leave the record out"
        else:
            fault, remedy = (
                f"is not a number ({show(text)})",
                "mend the cell or leave the record out",
            )
            if key == "dataset.ranges":  # one range for all columns that are not named
                remedy += "; a column of text is declared in dataset.categories"
        raise DataError(
            f"{path}, {place_of(path, int(position[0]))}: {name} {fault}, and {key} declares a number; "
            f"{remedy}"
        )
    return result


def place_of(path: Path, record: int) -> str:
    """Return where a record stands, for messages.

    Args:
        path: The file.
        record: Index of the record, from 0.

    Returns:
        ``line 3`` of a text file, counted from 1 with header and blank lines; ``record 2`` of another file.
    """
    name = path.name.lower()
    if not name.endswith(_TEXT_ENDINGS):
        return f"record {record + 1}"
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        seen, first_line = -1, 1  # the header is row -1
        try:
            for row in rows:
                is_blank = len(row) < 2 and not "".join(row).strip()
                if not is_blank and seen == record:
                    return f"line {first_line}"
                seen, first_line = seen + (not is_blank), rows.line_num + 1
        except csv.Error:  # a cell longer than the reader takes
            pass
    return f"record {record + 1}"


def digests(columns: Columns) -> tuple[bytes, ...]:
    """Return a digest of each record: of its values as text, or of the bytes of an array with a shape.

    Args:
        columns: Values of each column, in the order in which they are digested.
    """
    parts: list[list[bytes]] = []
    for values in columns.values():
        if values.ndim == 1:
            parts.append(
                [_text(value).encode("utf-8", "surrogatepass") for value in values.tolist()]
            )
        else:
            parts.append([np.ascontiguousarray(value).tobytes() for value in values])
    records = zip(*parts, strict=True)
    return tuple(hashlib.blake2b(b"\x1f".join(r), digest_size=16).digest() for r in records)


def texts(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """Return a column as texts [n].

    Spaces at both ends are left out, whole numbers have no decimal point, a missing value is ''.

    Raises:
        DataError: The array has more than one dimension.
    """
    if values.ndim != 1:
        raise DataError(
            f"{path}: {name} must have one value per record, its shape is {values.shape}"
        )
    return np.array([_text(value) for value in values.tolist()], dtype=object)


def one_hot(path: Path, name: str, words: np.ndarray, known: Sequence[str]) -> np.ndarray:
    """Return a column of texts as float32 [n, len(known)], each row with a single 1.

    Raises:
        DataError: A text is none of the ``known``.
    """
    position = {word: place for place, word in enumerate(known)}
    result = np.zeros((len(words), len(known)), dtype=np.float32)
    for record, word in enumerate(words):
        place = position.get(word)
        if place is None:
            raise DataError(
                f"{path}, {place_of(path, record)}: {name} is {show(word) or 'empty'}, which is none of "
                f"dataset.categories.{name} ({in_short(tuple(known))})"
            )
        result[record, place] = 1
    return result


def text_of(value: object) -> str:
    """Return a declared value as the text that it has in a column."""
    return _text(value)


def _text(value: Any) -> str:
    if value is None or value != value:  # nan differs from itself
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", str(value).strip())


def _read_text(path: Path) -> Columns:
    import pandas as pd  # imported late: only runs on such a table need it

    settings: dict[str, Any] = {
        "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "skipinitialspace": True,
    }  # fmt: skip
    try:
        header = pd.read_csv(path, header=None, nrows=1, **settings).iloc[0].fillna("").tolist()
        names = [str(name).strip() for name in header]
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if sum(name.count(mark) for name in names) >= len(names):
                more = ', decimal=","' if mark == ";" else ""
                raise DataError(
                    f"{path}: its columns are separated by {word}; write it with commas and decimal points: "
                    f'pandas.read_csv("{path}", sep="{mark}"{more}).to_csv("new.csv", index=False)'
                )
        _refuse_bad_names(path, names)
        with warnings.catch_warnings():
            # Rows that are all longer than the header are only warned of.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, header=0, names=names, index_col=False, **settings)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise DataError(f"{path} is not a table: records and header differ in length") from None
        raise DataError(
            f"{path}, line {found[2]}: {found[3]} fields where the header has {found[1]}; quote fields "
            "that hold a comma"
        ) from None
    except (UnicodeDecodeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a table in UTF-8: {error}") from None
    return columns_of(frame)


def _read_parquet(path: Path) -> Columns:
    import pandas as pd  # imported late: only runs on such a table need it

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise DataError(
            f"cannot read {path}: Parquet needs a package; pip install pyarrow, or write a .csv"
        ) from None
    except ValueError as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"{path} is not a Parquet file: {show(str(error))}") from None
    _refuse_bad_names(path, [str(name) for name in frame.columns])
    return columns_of(frame)


def _read_npz(path: Path) -> Columns:
    if not zipfile.is_zipfile(path):
        raise DataError(f"cannot read {path}: it is not a file that numpy.savez wrote")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            columns = {name: np.asarray(arrays[name]) for name in arrays.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else show(str(error))
        raise DataError(f"cannot read {path}: {reason}") from None
    for name, values in columns.items():
        if not values.ndim:
            raise DataError(f"{path}: {name} is a single value, not one for each record")
    return columns


def columns_of(frame: pd.DataFrame) -> Columns:
    """Return the columns as arrays: numbers and dates as they are, others as objects with None if missing."""
    columns = {}
    for name, series in frame.items():
        if getattr(series.dtype, "kind", "O") not in "biufM" or not isinstance(
            series.dtype, np.dtype
        ):
            series = series.astype(object).where(series.notna(), None)
        columns[str(name)] = series.to_numpy()
    return columns


def _refuse_bad_names(path: Path, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if not name:
            remedy = (
                "give it one" if place else "to_csv(FILE, index=False) leaves out pandas' index"
            )
            raise DataError(f"{path}: column {place + 1} has no name in the header; {remedy}")
        if name in names[:place]:
            raise DataError(f"{path} has two columns named {name}; rename one")
