"""The record indices of all clients in one array, which is quick and small for a million clients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np

_BLOCK = 2**21
"""Records that enter a digest at a time, which bounds the memory for it."""


@dataclass(eq=False, repr=False)
class ClientRecords(Sequence[np.ndarray]):
    """Record indices of each client: client k has ``indices[offsets[k] : offsets[k + 1]]``.

    It reads like a list of arrays: ``clients[k]``, ``len(clients)``, ``for records in clients``. These arrays
    are views. What concerns all clients works on ``indices`` and ``sizes`` instead of a loop.

    Attributes:
        indices: Record indices of client 0, then those of client 1, …, int64 [n].
        offsets: Place in ``indices`` where the records of each client begin, and n, int64 [K + 1].

    Example:
        >>> clients = ClientRecords.of([np.array([0, 3]), np.array([1])])
        >>> len(clients), clients[0].tolist(), clients.sizes.tolist()
        (2, [0, 3], [2, 1])
        >>> ClientRecords.by_owner(np.array([1, 0, -1, 1]), clients=2)[1].tolist()
        [0, 3]
    """

    indices: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, clients: Iterable[np.ndarray]) -> ClientRecords:
        """Return the clients of a list of arrays, one a client. What is one already is returned as it is.

        Raises:
            TypeError: The arrays do not hold whole numbers.
        """
        if isinstance(clients, ClientRecords):
            return clients
        arrays = [np.asarray(indices) for indices in clients]
        # An empty list becomes an array of floats.
        if any(len(array) and array.dtype.kind not in "iu" for array in arrays):
            raise TypeError("record indices must be whole numbers")
        sizes = np.array([len(array) for array in arrays], dtype=np.int64)
        empty = np.zeros(0, dtype=np.int64)
        indices = np.concatenate(
            [empty, *(array for array in arrays if len(array))], dtype=np.int64, casting="same_kind"
        )
        return cls(indices, _offsets(sizes))

    @classmethod
    def by_owner(
        cls, owners: np.ndarray, clients: int, indices: np.ndarray | None = None
    ) -> ClientRecords:
        """Return the clients to whom records belong. The indices of each client ascend.

        Args:
            owners: Client of each record, int64 [n]; -1 for a record that no client has.
            clients: Number of clients K.
            indices: Index of each record [n]; None: 0, …, n - 1.
        """
        owners = np.asarray(owners, dtype=np.int64)
        if indices is None:
            indices = np.flatnonzero(owners >= 0)
            owners = owners[indices]
        elif (owners < 0).any():
            indices, owners = indices[owners >= 0], owners[owners >= 0]
        sizes = np.bincount(owners, minlength=clients)
        # One number for (client, record): numbers are sorted many times faster than pairs.
        indices = np.asarray(indices, dtype=np.int64)
        base = int(indices.max(initial=0)) + 1
        keys = owners * base
        keys += indices
        keys.sort()
        keys %= base
        return cls(keys, _offsets(sizes))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> list[np.ndarray]: ...
    def __getitem__(self, client: Any) -> Any:
        if isinstance(client, slice):
            return [self[k] for k in range(*client.indices(len(self)))]
        count = len(self)
        if not -count <= client < count:
            raise IndexError(f"client {client} of {count}")
        k = client % count
        return self.indices[self.offsets[k] : self.offsets[k + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        bounds = self.offsets.tolist()
        for start, end in pairwise(bounds):
            yield self.indices[start:end]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} clients, {len(self.indices)} records)"

    @property
    def sizes(self) -> np.ndarray:
        """Number of records of each client, int64 [K]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """Client of each entry of ``indices``, int64 [n]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def together(self, clients: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the indices of the records of some clients, one client after the other [m].

        Args:
            clients: Numbers of the clients [c].
        """
        clients = np.asarray(clients, dtype=np.int64)
        sizes = self.sizes[clients]
        ends = np.cumsum(sizes)
        first = np.repeat(self.offsets[clients] - (ends - sizes), sizes)
        return self.indices[first + np.arange(len(first))]

    def where(self, kept: np.ndarray) -> ClientRecords:
        """Return the same clients with some of their records.

        Args:
            kept: Mask of the entries of ``indices`` that stay [n] (bool).
        """
        before = np.concatenate([[0], np.cumsum(kept)])
        return ClientRecords(self.indices[kept], before[self.offsets])

    def with_records(self, owners: np.ndarray, indices: np.ndarray) -> ClientRecords:
        """Return the same clients with further records, after those that they have.

        Args:
            owners: Client of each further record [m].
            indices: Index of each further record [m].
        """
        added = np.bincount(owners, minlength=len(self))
        longer = np.insert(self.indices, self.offsets[owners + 1], indices)
        return ClientRecords(longer, self.offsets + _offsets(added))

    def with_clients(self, others: ClientRecords) -> ClientRecords:
        """Return these clients, followed by others."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + others.offsets[1:]])
        return ClientRecords(np.concatenate([self.indices, others.indices]), offsets)

    def with_client(self, client: int, records: np.ndarray) -> ClientRecords:
        """Return the same clients, of which one has other records.

        Args:
            client: Number of the client.
            records: Indices of its records [m].
        """
        start, end = self.offsets[client], self.offsets[client + 1]
        offsets = self.offsets.copy()
        offsets[client + 1 :] += len(records) - (end - start)
        parts = [self.indices[:start], records, self.indices[end:]]
        return ClientRecords(np.concatenate(parts), offsets)

    def add_to(self, digest: hashlib._Hash) -> None:
        """Update a digest with the number of records of each client, a new line, and their indices (int64).

        The bytes are those of a loop over the clients. They are put together for many clients at once.
        """
        first, clients = 0, len(self)
        while first < clients:
            limit = self.offsets[first] + _BLOCK
            end = int(np.searchsorted(self.offsets, limit, side="right")) - 1
            end = min(max(end, first + 1), first + _BLOCK)  # a client has no record, or very many
            sizes = np.diff(self.offsets[first : end + 1])
            lines = [f"{size}\n" for size in sizes.tolist()]
            lengths = np.stack([[len(line) for line in lines], 8 * sizes], axis=1)
            of_lines = np.repeat(np.tile([True, False], len(sizes)), lengths.reshape(-1))
            content = np.empty(len(of_lines), dtype=np.uint8)
            content[of_lines] = np.frombuffer("".join(lines).encode(), dtype=np.uint8)
            block = np.ascontiguousarray(self.indices[self.offsets[first] : self.offsets[end]])
            content[~of_lines] = block.view(np.uint8)
            digest.update(content.data)
            first = end


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
