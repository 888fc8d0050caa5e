"""Values of many clients, of whom most have the same: clients with equal values are one group.

A million clients that were charged alike are one group with one row of numbers. Charging all of them changes
one row. Charging some of them moves these to groups of their own, or to groups that have their new values
already. So the cost of a round follows from the number of distinct values and of charged clients.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.columns import distinct_rows, groups_of, of_groups

if TYPE_CHECKING:
    from torch import Tensor

Kind = TypeVar("Kind", bound=Hashable)

_MODULUS = 1 << 128


class ClientGroups:
    """A partition of the clients into numbered groups, which begins with all clients in group 0.

    Each group has a key, which stands for the values of its clients.

    Attributes:
        group_of: Group of each client, int32 [K].
        sizes: Number of clients in each group, by its number; 0 where the number is free.
    """

    def __init__(self, clients: int, key: Hashable):
        self.group_of = np.zeros(clients, dtype=np.int32)
        self.sizes = np.array([clients], dtype=np.int64)
        self._key_of: dict[int, Hashable] = {0: key}
        self._known: dict[Hashable, int] = {key: 0}
        self._free: list[int] = []

    @property
    def used(self) -> np.ndarray:
        """Numbers of the groups that have clients, ascending."""
        return np.flatnonzero(self.sizes)

    def places(self, clients: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the groups of ``clients`` [m], ascending, and the place of each client's group among them.

        Args:
            clients: The clients; None: all of them.
        """
        used = self.used
        if len(used) == 1:
            count = len(self.group_of) if clients is None else len(clients)
            return used, np.zeros(count, dtype=np.int64)
        group_of = self.group_of if clients is None else self.group_of[clients]
        if clients is not None:
            used = np.flatnonzero(np.bincount(group_of, minlength=len(self.sizes)))
        place = np.zeros(len(self.sizes), dtype=np.int64)
        place[used] = np.arange(len(used))
        return used, place[group_of]

    def rename(self, keys: dict[int, Hashable]) -> None:
        """Give all groups new keys, after the values of all clients have changed.

        Args:
            keys: The key of each group that has clients. Two groups may have one key: they stay apart.
        """
        self._key_of = keys
        self._known = {key: group for group, key in keys.items()}

    def move(
        self, clients: np.ndarray, keys_of: Callable[[np.ndarray, np.ndarray], Sequence[Hashable]]
    ) -> np.ndarray:
        """Move clients to the groups that have their new values.

        A group that changes as a whole keeps its number, unless there is a group with these values already.

        Args:
            clients: The clients [m], each once.
            keys_of: Function of the groups [g] that the clients are in, and of whether all clients of the
                group are among them [g]. It returns the key of the new values of each group.

        Returns:
            The number of the group into which the clients of each group [g] moved.
        """
        members = self.group_of[clients]
        counts = np.bincount(members, minlength=len(self.sizes))
        groups = np.flatnonzero(counts)
        counts = counts[groups]
        whole = counts == self.sizes[groups]
        keys = keys_of(groups, whole)
        for group in groups[whole].tolist():
            key = self._key_of.pop(group)
            if self._known.get(key) == group:
                del self._known[key]
        targets = np.empty(len(groups), dtype=np.int64)
        for i, key in enumerate(keys):
            if key not in self._known:
                group = int(groups[i]) if whole[i] else self._free_number()
                self._known[key], self._key_of[group] = group, key
            targets[i] = self._known[key]
        self.sizes[groups] -= counts
        np.add.at(self.sizes, targets, counts)
        self._free += groups[self.sizes[groups] == 0].tolist()
        table = np.zeros(len(self.sizes), dtype=np.int32)
        table[groups] = targets
        self.group_of[clients] = table[members]
        return targets

    def _free_number(self) -> int:
        if not self._free:
            count = len(self.sizes)  # numbers double, so that they seldom have to be added
            self.sizes = np.concatenate([self.sizes, np.zeros(count, dtype=np.int64)])
            self._free = list(range(2 * count - 1, count - 1, -1))
        return self._free.pop()


class AlikeRows:
    """An array with a row for each client, of which equal rows are kept once.

    Args:
        clients: Number of clients K.
        row: The row that all of them have at first [n].

    Example:
        >>> rows = AlikeRows(1_000_000, np.zeros(1))
        >>> rows.change(np.array([3, 7]), lambda some: some + 0.5)
        >>> len(rows.distinct), rows.spread(rows.distinct[:, 0], np.array([2, 3])).tolist()
        (2, [0.0, 0.5])
    """

    def __init__(self, clients: int, row: np.ndarray):
        self.clients = clients
        self._rows = np.array(row)[None]
        self._groups = ClientGroups(clients, _key(self._rows[0]))
        self._keys_outdated = False

    @property
    def distinct(self) -> np.ndarray:
        """The rows that clients have, each at least once [g, n]."""
        return self._rows[self._groups.used]

    def index(self, clients: np.ndarray | None = None) -> np.ndarray:
        """Return the place in :attr:`distinct` of the row of each of ``clients`` [m]; None: of all [K]."""
        used = self._groups.used
        place = np.zeros(len(self._groups.sizes), dtype=np.int64)
        place[used] = np.arange(len(used))
        group_of = self._groups.group_of
        return place[group_of if clients is None else group_of[clients]]

    def spread(self, values: np.ndarray, clients: np.ndarray | None = None) -> np.ndarray:
        """Return the value of each of ``clients`` [m] from one for each of the distinct rows [g]."""
        if len(values) == 1:
            return np.repeat(values, self.clients if clients is None else len(clients))
        return values[self.index(clients)]

    def change(
        self, clients: np.ndarray | None, function: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Replace the rows of ``clients`` by what ``function`` makes of them.

        Args:
            clients: The clients, each of them once [m]; K of them, or None, means all of them.
            function: Returns the new rows [g, n] of rows [g, n], each by itself.
        """
        if clients is None or len(clients) == self.clients:
            used = self._groups.used
            self._rows[used] = function(self._rows[used])
            self._keys_outdated = True
            return
        if not len(clients):
            return
        if self._keys_outdated:
            used = self._groups.used.tolist()
            self._groups.rename({group: _key(self._rows[group]) for group in used})
            self._keys_outdated = False
        changed = np.zeros((0, *self._rows.shape[1:]))

        def keys_of(groups: np.ndarray, whole: np.ndarray) -> list[Hashable]:
            nonlocal changed
            changed = function(self._rows[groups])
            return [_key(row) for row in changed]

        targets = self._groups.move(clients, keys_of)
        if (missing := len(self._groups.sizes) - len(self._rows)) > 0:
            more = np.zeros((missing, *self._rows.shape[1:]), dtype=self._rows.dtype)
            self._rows = np.concatenate([self._rows, more])
        self._rows[targets] = changed

    def pairs(self, other: AlikeRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows here and there of every client, equal pairs once: two arrays [p, n]."""
        here, there = self.distinct, other.distinct
        if len(here) == 1 or len(there) == 1:
            count = max(len(here), len(there))
            return np.broadcast_to(here, (count, *here.shape[1:])), np.broadcast_to(
                there, (count, *there.shape[1:])
            )
        pair = np.unique(self.index().astype(np.int64) * len(there) + other.index())
        return here[pair // len(there)], there[pair % len(there)]

    def state(self) -> Tensor | dict[str, object]:
        """Return the form in which a checkpoint holds the rows, that of ``columns.of_clients``."""
        return of_groups(self.distinct, self.index())

    def load(self, state: Tensor | StateDict) -> None:
        """Restore what :meth:`state` returned, also from a checkpoint with a row for each client."""
        self._take(*groups_of(state))

    def load_rows(self, values: np.ndarray) -> None:
        """Take the rows of all clients [K, n]."""
        self._take(*distinct_rows(values))

    def _take(self, rows: np.ndarray, group_of: np.ndarray) -> None:
        self._rows = rows
        self._groups = ClientGroups(self.clients, None)
        self._groups.group_of = group_of.astype(np.int32)
        self._groups.sizes = np.bincount(group_of, minlength=len(self._rows))
        self._keys_outdated = True


class CountsOfClients(Generic[Kind]):
    """Numbers of things of several kinds for each client. Most things are counted for all clients at once.

    Attributes:
        clients: Number of clients K.
        everyone: Number of things of each kind that were counted for all clients.
        kinds: Kinds of things that were counted for some clients only, in the order in which they came.
    """

    def __init__(self, clients: int):
        self.clients = clients
        self.everyone: dict[Kind, int] = {}
        self.kinds: dict[Kind, int] = {}
        self._groups = ClientGroups(clients, 0)
        self._counts: dict[int, dict[Kind, int]] = {0: {}}
        self._keys: dict[int, int] = {0: 0}

    def add(self, kind: Kind, clients: np.ndarray, count: int) -> None:
        """Count ``count`` things of a kind for each of ``clients`` [m]; as many as K means all of them."""
        if len(clients) == self.clients:
            self.everyone[kind] = self.everyone.get(kind, 0) + count
            return
        number = self.kinds.setdefault(kind, len(self.kinds))
        if not len(clients) or not count:
            return
        counts: list[dict[Kind, int]] = []

        def keys_of(groups: np.ndarray, whole: np.ndarray) -> list[int]:
            for group, leaves in zip(groups.tolist(), whole.tolist(), strict=True):
                before = self._counts.pop(group) if leaves else dict(self._counts[group])
                old, key = before.get(kind, 0), self._keys[group]
                before[kind] = old + count
                counts.append(before)
                # The key is a sum of one hash for each kind and count, so a long history is not read again.
                keys.append((key - _hash(number, old) + _hash(number, old + count)) % _MODULUS)
            return keys

        keys: list[int] = []
        targets = self._groups.move(clients, keys_of).tolist()
        for target, of_group, key in zip(targets, counts, keys, strict=True):
            self._counts[target], self._keys[target] = of_group, key

    def add_rows(self, kind: Kind, clients: np.ndarray, counts: np.ndarray) -> None:
        """Count things of a kind, another number of them for each of ``clients`` [m]."""
        self.kinds.setdefault(kind, len(self.kinds))
        for count in np.unique(counts).tolist():
            same = clients[counts == count]
            if len(same) == self.clients:  # told apart from what was counted for everyone
                self.add(kind, same[:1], count)
                same = same[1:]
            self.add(kind, same, count)

    def distinct(self) -> list[dict[Kind, int]]:
        """Return the distinct counts that clients have.

        Kinds that were counted for everyone come first, then the others, in the order in which they came.
        """
        return [self._total(group) for group in self._groups.used.tolist()]

    def groups(self, clients: np.ndarray | None = None) -> tuple[list[dict[Kind, int]], np.ndarray]:
        """Return the distinct counts, and the place of those of each client among them.

        Args:
            clients: The clients that matter [m]; None: all of them.

        Returns:
            The counts of each group that has such a client, and an index int64 [m].
        """
        used, index = self._groups.places(clients)
        return [self._total(group) for group in used.tolist()], index

    def kinds_of_groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of kinds that the clients of each group have, and each client's group [K]."""
        kinds = np.zeros(len(self._groups.sizes), dtype=np.int64)
        for group in self._groups.used.tolist():
            further = sum(kind not in self.everyone for kind in self._counts[group])
            kinds[group] = len(self.everyone) + further
        used, index = self._groups.places(None)
        return kinds[used], index

    def same_as(self, other: CountsOfClients[Kind]) -> bool:
        """Return whether the counts of every client are the same in both."""
        if {*self.everyone, *self.kinds} != {*other.everyone, *other.kinds}:
            return False
        (here, of_here), (there, of_there) = self.groups(), other.groups()
        pairs = np.unique(of_here * len(there) + of_there).tolist()
        return all(here[pair // len(there)] == there[pair % len(there)] for pair in pairs)

    def _total(self, group: int) -> dict[Kind, int]:
        total, some = dict(self.everyone), self._counts[group]
        for kind in sorted(some, key=self.kinds.__getitem__):
            total[kind] = total.get(kind, 0) + some[kind]
        return total

    def of_kind(self, kind: Kind) -> np.ndarray:
        """Return the number of things of a kind of each client, int64 [K]."""
        return self.of_kinds([kind])

    def of_kinds(self, kinds: Collection[Kind]) -> np.ndarray:
        """Return the number of things of these kinds together of each client, int64 [K]."""
        numbers = self._numbers(kinds)
        used, index = self._groups.places(None)
        return numbers[used][index]

    def _numbers(self, kinds: Collection[Kind]) -> np.ndarray:
        """Return the number of things of these kinds that a client of each group has, by group number."""
        numbers = np.zeros(len(self._groups.sizes), dtype=np.int64)
        some = [kind for kind in kinds if kind in self.kinds]
        for group in self._groups.used.tolist() if some else ():
            counts = self._counts[group]
            numbers[group] = sum(counts.get(kind, 0) for kind in some)
        return numbers + sum(self.everyone.get(kind, 0) for kind in kinds)

    def rows(self) -> Iterator[tuple[Kind, np.ndarray, np.ndarray]]:
        """Yield each of :attr:`kinds`, the clients of whom some were counted, ascending, and how many."""
        groups_of_kind: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in self.kinds}
        for group in self._groups.used.tolist():
            for kind, count in self._counts[group].items():
                groups_of_kind[kind].append((group, count))
        # Clients sorted by group: those of one group lie next to each other.
        order = np.argsort(self._groups.group_of, kind="stable")
        ends = np.cumsum(self._groups.sizes)
        for kind, pairs in groups_of_kind.items():
            members = [order[ends[g] - self._groups.sizes[g] : ends[g]] for g, _ in pairs]
            clients = np.concatenate(members) if members else np.zeros(0, dtype=np.int64)
            counts = np.repeat([count for _, count in pairs], list(map(len, members)))
            ascending = np.argsort(clients, kind="stable")
            yield kind, clients[ascending], counts[ascending].astype(np.int64)


def _key(row: np.ndarray) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def _hash(kind: int, count: int) -> int:
    if not count:
        return 0
    digest = hashlib.blake2b(struct.pack("<qq", kind, count), digest_size=16).digest()
    return int.from_bytes(digest, "little")
