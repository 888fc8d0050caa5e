"""What accounting leaves in a checkpoint: plain values, with the numbers of many alike in columns.

A run whose noise moves has thousands of kinds of releases that differ in a number or two. They are stored as
a few forms and a column for each number; a column that never changes is one number. Nothing here is an object
of a class of ours: a checkpoint holds tensors, texts, numbers, lists, tuples and dicts.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.core.events import describe_event, parse_event

if TYPE_CHECKING:
    from torch import Tensor

_MULTIPLIER = re.compile(r"(?<=z=)[^,()=]+")
_LEFT_OUT = "#"
_FEW_CLIENTS = 16
_ODD = 0x9E3779B97F4A7C15


def tensor(values: np.ndarray) -> Tensor:
    """A copy of an array, for a checkpoint."""
    import torch

    return torch.from_numpy(np.array(values))


def array(values: Tensor) -> np.ndarray:
    """The array that :func:`tensor` was given."""
    return values.cpu().numpy().copy()


def of_clients(values: np.ndarray) -> Tensor | dict[str, object]:
    """What a checkpoint holds of an array with a row for each client [K, …].

    Most clients have spent the same: it holds the rows that differ, and which of them each client has.
    """
    if len(values) < _FEW_CLIENTS:
        return tensor(values)
    first, which = _distinct(values)
    if 2 * len(first) > len(values) or not np.array_equal(
        values[first][which], values, equal_nan=values.dtype.kind == "f"
    ):
        return tensor(values)
    index = which.astype(np.uint8 if len(first) <= 256 else np.int32)
    same = len(first) == 1
    return {
        "clients": len(values),
        "rows": tensor(values[first]),
        "row_of_client": None if same else tensor(index),
    }


def each_client(state: Tensor | Mapping[str, object]) -> np.ndarray:
    """The array that :func:`of_clients` was given; older checkpoints hold it whole."""
    if not isinstance(state, Mapping):
        return array(state)
    saved: Mapping[str, Any] = state
    rows, which = array(saved["rows"]), saved["row_of_client"]
    index = np.zeros(saved["clients"], dtype=int) if which is None else array(which)
    return rows[index]


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where each different row is first, which of them each row is [K]), by a sum of the rows' bytes: in a
    single pass, where sorting whole rows takes many. Different rows may have the same sum."""
    content = np.ascontiguousarray(values).reshape(len(values), -1)
    words = content.view(np.uint64) if content.itemsize == 8 else content.astype(np.uint64)
    sums = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:  # a polynomial modulo 2^64
        sums = sums * np.uint64(_ODD) + column
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    return first, which.reshape(-1)


def pack(rows: Iterable[tuple[Hashable, Sequence[float]]]) -> dict[str, object]:
    """(form, numbers) of every row, in order. A form is plain and says how many numbers its rows have."""
    forms: dict[Hashable, list[Sequence[float]]] = {}
    which: list[int] = []
    known: dict[Hashable, int] = {}
    for form, numbers in rows:
        which.append(known.setdefault(form, len(known)))
        forms.setdefault(form, []).append(numbers)
    return {
        "rows": len(which),
        "form_of_row": _column(which),
        "forms": [
            {
                "form": form,
                "rows": len(numbers),
                "columns": [_column(column) for column in zip(*numbers, strict=True)],
            }
            for form, numbers in forms.items()
        ],
    }


def unpack(state: Mapping[str, object]) -> Iterator[tuple[Hashable, tuple[float, ...]]]:
    """The rows that :func:`pack` was given."""
    forms, saved = [], cast("Mapping[str, Any]", state)
    for kind in saved["forms"]:
        columns = [_values(column, kind["rows"]) for column in kind["columns"]]
        numbers = zip(*columns, strict=True) if columns else iter([()] * kind["rows"])
        forms.append((kind["form"], numbers))
    for which in _values(saved["form_of_row"], saved["rows"]):
        form, numbers = forms[which]
        yield form, next(numbers)


def _column(values: Sequence[float]) -> Tensor | float | None:
    """All of them, or the one number that they all are."""
    if not values:
        return None
    found = np.array(values, dtype=np.int64 if isinstance(values[0], int) else np.float64)
    return found[0].item() if (found == found[0]).all() else tensor(found)


def _values(column: Any, rows: int) -> list[Any]:
    """Return the numbers of a :func:`_column`."""
    return column.tolist() if hasattr(column, "tolist") else [column] * rows


def pack_events(counted: Mapping[dp_event.DpEvent, int]) -> dict[str, object]:
    """Events, as text without their noise multipliers, and how often each."""
    return pack(_row_of_event(event, count) for event, count in counted.items())


def _row_of_event(event: dp_event.DpEvent, count: int) -> tuple[str, Sequence[float]]:
    text = describe_event(event)
    multipliers = map(float, _MULTIPLIER.findall(text))
    return _MULTIPLIER.sub(_LEFT_OUT, text), (int(count), *multipliers)


def unpack_events(state: Mapping[str, object]) -> dict[dp_event.DpEvent, int]:
    """What :func:`pack_events` was given, in the same order."""
    return {
        _event(str(form), multipliers): int(count) for form, (count, *multipliers) in unpack(state)
    }


def _event(form: str, multipliers: Iterable[float]) -> dp_event.DpEvent:
    left = iter(multipliers)
    return parse_event(re.sub(_LEFT_OUT, lambda _: repr(next(left)), form))


def pack_counts(counts: Iterable[np.ndarray | None]) -> dict[str, object]:
    """Counts of every client [K] for each of many rows, most of them 0; ``None`` stays ``None``."""
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


def unpack_counts(state: Mapping[str, object], clients: int) -> Iterator[np.ndarray | None]:
    """What :func:`pack_counts` was given."""
    saved: Mapping[str, Any] = state
    who, start = array(saved["clients"]), 0
    counts = np.array(_values(saved["counts"], len(who)), dtype=np.int64)
    for length in _values(saved["lengths"], saved["rows"]):
        if length < 0:
            yield None
            continue
        row = np.zeros(clients, dtype=np.int64)
        row[who[start : start + length]] = counts[start : start + length]
        start += length
        yield row


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
