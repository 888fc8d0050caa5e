"""Counted events and per-client arrays as a checkpoint holds them.

A run whose noise adapts has thousands of kinds of releases that differ in a number or two. They are stored as
a few forms with a column for each number. A column that never changes is stored as one number. A checkpoint
holds tensors, texts, numbers, lists, tuples and dicts, and no object of a class of fedpriv.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.events import describe_event, parse_event

if TYPE_CHECKING:
    from torch import Tensor

_MULTIPLIER = re.compile(r"(?<=z=)[^,()=]+")
_LEFT_OUT = "#"
_FEW_CLIENTS = 16
_ODD = 0x9E3779B97F4A7C15


def tensor(values: np.ndarray) -> Tensor:
    """Return a copy of an array as a tensor, for a checkpoint."""
    import torch

    return torch.from_numpy(np.array(values))


def array(values: Tensor) -> np.ndarray:
    """Return the array that :func:`tensor` was given."""
    return values.cpu().numpy().copy()


def narrow(values: np.ndarray) -> np.ndarray:
    """Return whole numbers in the smallest type that holds all of them, for a checkpoint."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def of_clients(values: np.ndarray) -> Tensor | dict[str, object]:
    """Return the form in which a checkpoint holds an array with one row for each client [K, …].

    Most clients have spent the same, so the form holds the distinct rows and the index of each client's row.
    The array itself is returned where that saves little: with fewer than 16 clients, or where more than half
    of the rows differ.
    """
    if len(values) < _FEW_CLIENTS:
        return tensor(values)
    if values.dtype == bool and values.ndim == 1:  # two rows at most, and no row to be hashed
        rows = np.unique(values)
        return _form(rows, values.view(np.uint8) if len(rows) > 1 else None, len(values))
    first, row_of_client = _distinct(values)
    if 2 * len(first) > len(values) or not np.array_equal(
        values[first][row_of_client], values, equal_nan=values.dtype.kind == "f"
    ):
        return tensor(values)
    return _form(values[first], row_of_client, len(values))


def of_groups(rows: np.ndarray, row_of_client: np.ndarray) -> Tensor | dict[str, object]:
    """Return :func:`of_clients` of ``rows[row_of_client]``, without an array of all clients.

    Args:
        rows: Rows that clients have [g, …].
        row_of_client: Index of each client's row [K].
    """
    clients = len(row_of_client)
    first, row_of_row = _distinct(rows)
    merged = rows[first][row_of_row]
    if (
        clients < _FEW_CLIENTS
        or 2 * len(first) > clients
        or not np.array_equal(merged, rows, equal_nan=rows.dtype.kind == "f")
    ):
        return tensor(rows[row_of_client])
    return _form(rows[first], row_of_row[row_of_client], clients)


def _form(rows: np.ndarray, row_of_client: np.ndarray | None, clients: int) -> dict[str, object]:
    index = None
    if row_of_client is not None and len(rows) > 1:  # else all clients are alike
        index = tensor(row_of_client.astype(np.uint8 if len(rows) <= 256 else np.int32))
    return {"clients": clients, "rows": tensor(rows), "row_of_client": index}


def groups_of(state: Tensor | StateDict) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows and the index of each client's row of what :func:`of_clients` returned."""
    if isinstance(state, Mapping):
        index = state["row_of_client"]
        of_client = np.zeros(state["clients"], dtype=int) if index is None else array(index)
        return array(state["rows"]), of_client
    return distinct_rows(array(state))


def distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows [g, …] of an array [K, …], and the index of each client's row [K]."""
    first, row_of_client = _distinct(values)
    if not np.array_equal(values[first][row_of_client], values, equal_nan=values.dtype.kind == "f"):
        return values, np.arange(len(values))
    return values[first], row_of_client


def each_client(state: Tensor | StateDict) -> np.ndarray:
    """Return the array that :func:`of_clients` was given. Older checkpoints hold the array itself."""
    if not isinstance(state, Mapping):
        return array(state)
    rows, row_of_client = groups_of(state)
    return rows[row_of_client]


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first row of each hash, and the index of each row's hash [K].

    The hash of a row is a polynomial of its words modulo 2^64. One pass over the rows is faster than sorting
    whole rows. Different rows may have the same hash, which the caller has to check.
    """
    content = np.ascontiguousarray(values).reshape(len(values), -1)
    row_words = content.view(np.uint64) if content.itemsize == 8 else content.astype(np.uint64)
    hashes = np.zeros(len(row_words), dtype=np.uint64)
    for column in row_words.T:  # a polynomial modulo 2^64
        hashes = hashes * np.uint64(_ODD) + column
    _, first, hash_of_row = np.unique(hashes, return_index=True, return_inverse=True)
    return first, hash_of_row.reshape(-1)


def pack(rows: Iterable[tuple[Hashable, Sequence[float]]]) -> dict[str, object]:
    """Group rows of numbers by their form, and return each number as a column, for a checkpoint.

    Args:
        rows: Pairs of a form and its numbers. A form is a plain value; rows of one form have equally many
            numbers.

    Returns:
        A plain value for :func:`unpack`, which gives the rows back in their order.
    """
    forms: dict[Hashable, list[Sequence[float]]] = {}
    form_of_row: list[int] = []
    form_index: dict[Hashable, int] = {}
    for form, numbers in rows:
        form_of_row.append(form_index.setdefault(form, len(form_index)))
        forms.setdefault(form, []).append(numbers)
    return {
        "rows": len(form_of_row),
        "form_of_row": _column(form_of_row),
        "forms": [
            {
                "form": form,
                "rows": len(numbers),
                "columns": [_column(column) for column in zip(*numbers, strict=True)],
            }
            for form, numbers in forms.items()
        ],
    }


def unpack(state: StateDict) -> Iterator[tuple[Hashable, tuple[float, ...]]]:
    """Yield the rows that :func:`pack` was given."""
    forms = []
    for saved_form in state["forms"]:
        columns = [_values(column, saved_form["rows"]) for column in saved_form["columns"]]
        numbers = zip(*columns, strict=True) if columns else iter([()] * saved_form["rows"])
        forms.append((saved_form["form"], numbers))
    for form_index in _values(state["form_of_row"], state["rows"]):
        form, numbers = forms[form_index]
        yield form, next(numbers)


def _column(values: Sequence[float] | np.ndarray) -> Tensor | float | None:
    """Return the numbers as a tensor; one number if all are equal, and None if there are none."""
    if not len(values):
        return None
    whole = isinstance(values[0], int | np.integer)
    numbers = np.array(values, dtype=np.int64 if whole else np.float64)
    return numbers[0].item() if (numbers == numbers[0]).all() else tensor(numbers)


def _values(column: Any, rows: int) -> list[Any]:
    """Return the numbers of a :func:`_column`."""
    return column.tolist() if hasattr(column, "tolist") else [column] * rows


def pack_events(counted: Mapping[dp_event.DpEvent, int]) -> dict[str, object]:
    """Return counted events as text forms, with columns for noise multipliers and counts."""
    rows = []
    for event, count in counted.items():
        text = describe_event(event)
        multipliers = map(float, _MULTIPLIER.findall(text))
        rows.append((_MULTIPLIER.sub(_LEFT_OUT, text), (int(count), *multipliers)))
    return pack(rows)


def unpack_events(state: Mapping[str, object]) -> dict[dp_event.DpEvent, int]:
    """Return the counted events that :func:`pack_events` was given, in the same order."""
    counted = {}
    for form, (count, *multipliers) in unpack(state):
        text = str(form)
        for multiplier in multipliers:
            text = text.replace(_LEFT_OUT, repr(multiplier), 1)
        counted[parse_event(text)] = int(count)
    return counted


CountsOfSome = tuple[np.ndarray, np.ndarray]
"""Clients, ascending [m], and the number of things counted for each of them [m]."""


def pack_counts(counts: Iterable[CountsOfSome | None]) -> dict[str, object]:
    """Return rows of counts of clients, for a checkpoint.

    Args:
        counts: Rows; ``None`` stands for a row that has no counts.
    """
    rows = list(counts)
    present = [row[0] for row in rows if row is not None]
    values = [row[1] for row in rows if row is not None]
    lengths = iter(map(len, present))
    return {
        "rows": len(rows),
        "lengths": _column([-1 if row is None else next(lengths) for row in rows]),
        "clients": tensor(_joined(present).astype(np.int32)),
        "counts": _column(_joined(values)),
    }


def unpack_counts(state: StateDict) -> Iterator[CountsOfSome | None]:
    """Yield the rows that :func:`pack_counts` was given."""
    present, start = array(state["clients"]), 0
    counts = state["counts"]
    counts = array(counts) if hasattr(counts, "numpy") else np.full(len(present), counts or 0)
    for length in _values(state["lengths"], state["rows"]):
        if length < 0:
            yield None
            continue
        end = start + length
        yield present[start:end].astype(np.int64), counts[start:end].astype(np.int64)
        start = end


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
