"""Data sets of the user's own as rows: each run tests that a row is encoded by itself.

    rows           ← dataset.read()
    inputs, labels ← dataset.encode(rows)

A record that depends on other records, by a mean over all of them for instance, is protected by no ε. So
some rows are encoded again, alone and beside another row that is absent, replaced or extreme.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedpriv.common.errors import ConfigError, DataError
from fedpriv.data.records import LoadedDataset, Records

if TYPE_CHECKING:
    import torch

_ALONE, _TOGETHER = 20, 200  # rows that are encoded again
# Rounding depends on how many rows there are: by how much of a number, and of its row's largest
_TOLERANCE, _OF_LARGEST = 1e-4, 1e-6
_HUGE = 1e30  # end of a number without a declared range


class IndexedRows(Protocol):
    """Anything with a length and an integer index: a list, an array, a torch data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


def from_torch(dataset: Any) -> IndexedRows:
    """Return a torch ``Dataset`` as the rows of :meth:`read`: (input, label) as its ``transform`` makes them.

    Raises:
        DataError: The data set has no length or no index, as an ``IterableDataset`` has none.
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(f"{type(dataset).__name__} has no length or no index; rows need both")
    rows: IndexedRows = dataset
    return rows


def load_rows(dataset: Any) -> LoadedDataset:
    """Read and encode the rows of a data set: the first ``train_records`` train, the others are test records.

    Args:
        dataset: The data set, with ``read`` and ``encode``.

    Raises:
        DataError: What ``read`` or ``encode`` return are no rows, or no inputs and labels of them.
        ConfigError: A row is encoded otherwise alone, or beside other rows.
    """
    rows = dataset.read()
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise DataError(f"{dataset.name}: read must return rows with a length and an integer index")
    unused = _copy(dataset, rows)
    every = [rows[index] for index in range(len(rows))]
    whole = _encoded(dataset, every)
    for how, some, places in _variations(rows, dataset.ranges):
        fresh = _copy(unused, rows)  # what a first call fits is fitted anew
        try:
            with np.errstate(all="ignore"):
                found = _encoded(fresh, some)
        except Exception:
            if how == _EXTREME:  # a row out of range may be refused
                continue
            raise
        at = range(len(some) - len(places), len(some))
        if not all(_same(a[places], b[at]) for a, b in zip(whole, found, strict=True)):
            raise ConfigError(
                f"dataset: {type(dataset).__name__}.encode gives a row other numbers {how} than among all "
                "rows; it must be a function of each row by itself. Declare ranges in the place of "
                "statistics; random transforms belong into algorithm.random_crop and random_flip; pad to a "
                "declared length"
            )
    inputs, targets, *users = whole
    train = dataset.train_records
    return LoadedDataset(
        train=Records(inputs[:train], targets[:train]),
        test=Records(inputs[train:], targets[train:]),
        client_ids=users[0][:train].numpy() if users else None,
    )


def _copy(dataset: Any, rows: IndexedRows) -> Any:
    try:
        return copy.deepcopy(dataset, {id(rows): rows})
    except Exception as error:
        raise ConfigError(
            f"dataset: {type(dataset).__name__} cannot be copied ({error}); keep open files out of its "
            "attributes"
        ) from None


_EXTREME = "beside an extreme row"


def _variations(rows: IndexedRows, ranges: Any) -> Iterator[tuple[str, list[Any], list[int]]]:
    """Yield (how they lie, rows, numbers of the last of them among all rows)."""
    alone, places = (
        np.unique(np.linspace(0, len(rows) - 1, number).astype(int)).tolist()
        for number in (_ALONE, min(_TOGETHER, (len(rows) + 1) // 2))
    )
    chosen = [rows[place] for place in places]
    for place in alone:
        yield "alone", [rows[place]], [place]
    yield "among few rows", chosen, places
    rest = sorted(set(range(len(rows))) - set(places))[:2] or places[:1]
    for other in rest:
        yield "beside another row", [rows[other], *chosen], places
    for end in (0, 1):
        yield _EXTREME, [_at_end(rows[rest[0]], ranges, end), *chosen], places


def _at_end(value: Any, ranges: Any, end: int) -> Any:
    """Return a row with its numbers at the lower or upper end of their declared range, or of their type."""
    if isinstance(value, Mapping):
        named = ranges if isinstance(ranges, Mapping) else dict.fromkeys(value, ranges)
        return {key: _at_end(item, named.get(key), end) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)([_at_end(item, ranges, end) for item in value])
    kind = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    if not kind.startswith(("int", "uint", "float")):
        return value
    limits = (-_HUGE, _HUGE)
    if isinstance(ranges, Sequence) and len(ranges) == 2:
        limits = tuple(ranges)
    elif "int" in kind:
        whole = np.iinfo("int64" if kind == "int" else kind)
        limits = (whole.min, whole.max)
    if hasattr(value, "numpy"):  # a tensor
        return value.new_full(value.shape, limits[end])
    filled = np.full_like(value, limits[end])
    return filled if hasattr(value, "shape") else filled.item()


def _encoded(dataset: Any, rows: list[Any]) -> list[torch.Tensor]:
    """Return the inputs, the labels and, where ``encode`` returns them, the users of some rows."""
    import torch

    answer = dataset.encode(rows)
    if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
        raise DataError(
            f"{dataset.name}: encode must return (inputs, labels) or (inputs, labels, users)"
        )
    parts = [torch.as_tensor(part) for part in answer]
    if any(part.dim() == 0 or len(part) != len(rows) for part in parts):
        raise DataError(
            f"{dataset.name}: encode must return an input and a label of each of {len(rows)} rows"
        )
    inputs = parts[0].float() if parts[0].is_floating_point() else parts[0]
    return [inputs, *(part.long() for part in parts[1:])]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether rows [n, …] are equal, or floats up to rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return bool((one == other).all())
    one, other = one.flatten(1).double(), other.flatten(1).double()
    if not bool((one.isfinite() == other.isfinite()).all()):
        return False
    one, other = one.nan_to_num(0.0, 0.0, 0.0), other.nan_to_num(0.0, 0.0, 0.0)
    largest = one.abs().amax(1, keepdim=True)
    return bool(((one - other).abs() <= _TOLERANCE * one.abs() + _OF_LARGEST * largest).all())
