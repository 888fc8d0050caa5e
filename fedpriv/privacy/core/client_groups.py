"""A value for each client, kept once for all clients that were charged alike.

A client has one group number. Charging all clients changes the value of each group. Charging some of them
moves these to the groups that have their new values. So the cost of a charge follows from the number of
groups.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.saved import StateDict

if TYPE_CHECKING:
    from torch import Tensor

_MODULUS = 1 << 64
_FEW = 64  # so many empty groups are not worth their removal


def tensor(values: np.ndarray) -> Tensor:
    """Return a copy of an array as a tensor, for a checkpoint."""
    import torch

    return torch.from_numpy(np.array(values))


def objects(values: Iterable[object]) -> np.ndarray:
    """Return any objects as an array of one dimension."""
    found = list(values)
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array


@functools.lru_cache(maxsize=16384)
def _number(kind: Hashable) -> int:
    digest = hashlib.blake2b(repr(kind).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class ClientGroups:
    """Groups of clients with equal charges, and the value of each group.

    A group is known by the sum of one 64-bit number for each charge that not all clients had. Two histories
    have the same sum with a probability of 2^-64.

    Attributes:
        group_of: Number of each client's group [K].
        sizes: Number of clients of each group; 0 for a group that all clients have left.
        values: Value of each group [g, …].

    Example:
        >>> groups = ClientGroups(1_000_000, np.zeros(1))
        >>> groups.charge("a release", np.array([3, 7]), 2, lambda values: values + 1.0)
        >>> groups.distinct.tolist(), groups.spread(groups.distinct, np.array([2, 3])).tolist()
        ([0.0, 1.0], [0.0, 1.0])
    """

    def __init__(self, clients: int, values: np.ndarray):
        """Put all of the K clients into one group.

        Args:
            clients: K.
            values: Value of the one group [1, …].
        """
        self.clients = clients
        self.group_of = np.zeros(clients, dtype=np.int32)
        self.sizes = np.array([clients])
        self.values = values
        self._keys = [0]
        self._known = {0: 0}

    def charge(
        self,
        kind: Hashable,
        clients: np.ndarray,
        count: int,
        function: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Charge some clients.

        Args:
            kind: The charge. Its ``repr`` tells it from other charges.
            clients: The clients, each once [m]; K of them are all clients.
            count: How often they are charged.
            function: Returns the values after the charge [g, …] of values before it [g, …].
        """
        if len(clients) == self.clients:
            self.values = function(self.values)
            return
        if not len(clients):
            return
        groups, place, leaving = np.unique(
            self.group_of[clients], return_inverse=True, return_counts=True
        )
        parents, targets = [], []
        for group in groups.tolist():
            key = (self._keys[group] + count * _number(kind)) % _MODULUS
            if key not in self._known:
                self._known[key] = len(self._keys)
                self._keys.append(key)
                parents.append(group)
            targets.append(self._known[key])
        if parents:
            self.values = np.concatenate([self.values, function(self.values[parents])])
            self.sizes = np.concatenate([self.sizes, np.zeros(len(parents), dtype=np.int64)])
        self.sizes[groups] -= leaving
        np.add.at(self.sizes, targets, leaving)
        self.group_of[clients] = np.array(targets, dtype=np.int32)[place.reshape(-1)]
        if np.count_nonzero(self.sizes == 0) > _FEW + len(self.sizes) // 2:
            self._drop_empty()

    def _drop_empty(self) -> None:
        used = np.flatnonzero(self.sizes)
        self.group_of = self.index().astype(np.int32)
        self.values, self.sizes = self.values[used], self.sizes[used]
        self._keys = [self._keys[group] for group in used.tolist()]
        self._known = {key: group for group, key in enumerate(self._keys)}

    @property
    def distinct(self) -> np.ndarray:
        """The values that clients have [g, …]."""
        return self.values[np.flatnonzero(self.sizes)]

    def index(self, clients: np.ndarray | None = None) -> np.ndarray:
        """Return the place in :attr:`distinct` of the value of each of ``clients`` [m]; None: of all [K]."""
        place = np.cumsum(self.sizes > 0) - 1
        return place[self.group_of if clients is None else self.group_of[clients]]

    def spread(self, values: np.ndarray, clients: np.ndarray | None = None) -> np.ndarray:
        """Return the value of each of ``clients`` [m] from one for each of the distinct values [g]."""
        return values[self.index(clients)]

    def pairs(self, other: ClientGroups) -> tuple[np.ndarray, np.ndarray]:
        """Return the values here and there of every client, equal pairs of groups once: two arrays [p, …]."""
        groups = len(other.sizes)
        pair = np.unique(self.group_of.astype(np.int64) * groups + other.group_of)
        return self.values[pair // groups], other.values[pair % groups]

    def members(self) -> Iterator[np.ndarray]:
        """Yield the clients of each of the distinct values, ascending."""
        order = np.argsort(self.group_of, kind="stable")
        ends = np.cumsum(self.sizes)
        for end, size in zip(ends.tolist(), self.sizes.tolist(), strict=True):
            if size:
                yield order[end - size : end]

    def state_dict(self, saved: Callable[[np.ndarray], object]) -> dict[str, object]:
        """Return the state for a checkpoint.

        Args:
            saved: Returns values [g, …] as a checkpoint holds them.
        """
        self._drop_empty()
        small = next(
            kind for kind in (np.int8, np.int16, np.int32) if len(self.sizes) <= np.iinfo(kind).max
        )
        return {
            "group_of": tensor(self.group_of.astype(small)),
            "keys": list(self._keys),
            "values": saved(self.values),
        }

    def load_state_dict(self, state: StateDict, values: Callable[[Any], np.ndarray]) -> None:
        """Restore the state that :meth:`state_dict` returned; ``values`` is the inverse of ``saved``."""
        self.group_of = state["group_of"].cpu().numpy().astype(np.int32)
        self._keys = list(state["keys"])
        self._known = {key: group for group, key in enumerate(self._keys)}
        self.values = values(state["values"])
        self.sizes = np.bincount(self.group_of, minlength=len(self._keys))
