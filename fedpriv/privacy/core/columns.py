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


def of_clients(values: np.ndarray) -> Tensor | dict[str, object]:
    """Return the form in which a checkpoint holds an array with one row for each client [K, …].

    Most clients have spent the same, so the form holds the distinct rows and the index of each client's row.
    The array itself is returned where that saves little: with fewer than 16 clients, or where more than half
    of the rows differ.
    """
    if len(values) < _FEW_CLIENTS:
        return tensor(values)
    first, row_of_client = _distinct(values)
    if 2 * len(first) > len(values) or not np.array_equal(
        values[first][row_of_client], values, equal_nan=values.dtype.kind == "f"
    ):
        return tensor(values)
    index = row_of_client.astype(np.uint8 if len(first) <= 256 else np.int32)
    all_alike = len(first) == 1
    return {
        "clients": len(values),
        "rows": tensor(values[first]),
        "row_of_client": None if all_alike else tensor(index),
    }


def each_client(state: Tensor | StateDict) -> np.ndarray:
    """Return the array that :func:`of_clients` was given. Older checkpoints hold the array itself."""
    if not isinstance(state, Mapping):
        return array(state)
    rows, row_of_client = array(state["rows"]), state["row_of_client"]
    index = np.zeros(state["clients"], dtype=int) if row_of_client is None else array(row_of_client)
    return rows[index]


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


def _column(values: Sequence[float]) -> Tensor | float | None:
    """Return the numbers as a tensor; one number if all are equal, and None if there are none."""
    if not values:
        return None
    numbers = np.array(values, dtype=np.int64 if isinstance(values[0], int) else np.float64)
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


def pack_counts(counts: Iterable[np.ndarray | None]) -> dict[str, object]:
    """Return the counts of every client in many rows, without the zeros, for a checkpoint.

    Args:
        counts: Rows of counts [K], mostly zeros; ``None`` stands for a row that has no counts.
    """
    rows = list(counts)
    present = [np.flatnonzero(row) for row in rows if row is not None]
    values = [row[row != 0] for row in rows if row is not None]
    lengths = iter(map(len, present))
    return {
        "rows": len(rows),
        "lengths": _column([-1 if row is None else next(lengths) for row in rows]),
        "clients": tensor(_joined(present).astype(np.int32)),
        "counts": _column(_joined(values).tolist()),
    }


def unpack_counts(state: StateDict, clients: int) -> Iterator[np.ndarray | None]:
    """Yield the rows that :func:`pack_counts` was given."""
    present, start = array(state["clients"]), 0
    counts = np.array(_values(state["counts"], len(present)), dtype=np.int64)
    for length in _values(state["lengths"], state["rows"]):
        if length < 0:
            yield None
            continue
        row = np.zeros(clients, dtype=np.int64)
        row[present[start : start + length]] = counts[start : start + length]
        start += length
        yield row


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
