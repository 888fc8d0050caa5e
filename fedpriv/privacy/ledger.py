"""Ledger of a run: everything that was released, by kind of release.

The ledger stays small: it counts releases per joint query, and clients with the same counts share them. The
absolute noise and sensitivity of each query are kept as ranges. An adaptive clip norm gives every round
another absolute noise, but the same multiplier, hence the same privacy cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.common.errors import FedprivError
from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.alike import CountsOfClients
from fedpriv.privacy.core.columns import pack, pack_counts, unpack, unpack_counts
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.privacy.mechanisms.release import Release
from fedpriv.privacy.mechanisms.rows import joint_of, joint_row, queries_in


@dataclass
class Extent:
    """Smallest and largest value seen.

    Attributes:
        low: Smallest value; ``inf`` if none was seen.
        high: Largest value; ``-inf`` if none was seen.
    """

    low: float = float("inf")
    high: float = float("-inf")


@dataclass
class Entry:
    """All releases of one kind; the ledger knows which clients made them, see :meth:`Ledger.counts`.

    Attributes:
        claimed: Number of samples that the published theorem charges to every client. None means that it
            charges those who released.
        noise_std: Range of the absolute noise, by query name.
        sensitivity: Range of the absolute sensitivity, by query name.
    """

    claimed: int | None = None
    noise_std: dict[str, Extent] = field(default_factory=dict)
    sensitivity: dict[str, Extent] = field(default_factory=dict)


class Ledger:
    """Record of what was released on which sample, with which noise, by which clients.

    All releases of a ledger have one adjacency. ε of a client follows from :meth:`composition` alone.

    Attributes:
        clients: K.
        neighbours: Adjacency, once something was released.

    Example:
        >>> from fedpriv.privacy.core.sampling import WholeData
        >>> from fedpriv.privacy.mechanisms import GaussianQuery
        >>> joint = JointQuery(WholeData("add_or_remove"), (GaussianQuery("gradient_sum", 4.0),))
        >>> ledger = Ledger(clients=3)
        >>> one, noise = {"gradient_sum": np.array([1.0])}, {"gradient_sum": np.array([4.0])}
        >>> ledger.record(Release(joint, np.array([0, 2]), one, noise))
        >>> ledger.samples_of().tolist()
        [1, 0, 1]
    """

    def __init__(self, clients: int):
        self.clients = clients
        self.neighbours: str | None = None
        self._entries: dict[JointQuery, Entry] = {}
        self._counts: CountsOfClients[JointQuery] = CountsOfClients(clients)

    def record(self, release: Release, claimed: int | None = None) -> None:
        """Enter a release.

        Args:
            release: The record of the release.
            claimed: Number of its samples that the published theorem charges to every client, present or not.
                None means that the theorem charges those who released.

        Raises:
            FedprivError: The release holds under another adjacency than the earlier ones.
        """
        joint = release.joint
        if self.neighbours not in (None, joint.sampling.neighbours):
            raise FedprivError(
                f"the ledger holds releases under {self.neighbours} adjacency and cannot take one "
                f"under {joint.sampling.neighbours}"
            )
        self.neighbours = joint.sampling.neighbours
        entry = self._entries.setdefault(joint, Entry())
        if claimed is not None:
            entry.claimed = (entry.claimed or 0) + claimed
        self._counts.add(joint, release.clients, release.count)
        for query in joint.queries:
            include(entry.sensitivity, query.name, release.sensitivity[query.name])
            if not query.protects:
                include(entry.noise_std, query.name, np.zeros(1))
            elif query.name in release.noise_std:  # a bit is flipped, not added to
                include(entry.noise_std, query.name, release.noise_std[query.name])

    def claim(self, joint: JointQuery, samples: int) -> None:
        """Enter samples that the published theorem charges to everyone but that no client answered on.

        Args:
            joint: The queries of one sample.
            samples: Number of samples.
        """
        entry = self._entries.setdefault(joint, Entry())
        entry.claimed = (entry.claimed or 0) + samples

    def __iter__(self) -> Iterator[tuple[JointQuery, Entry]]:
        return iter(self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self, joint: JointQuery) -> np.ndarray:
        """Return the number of samples on which each client answered this joint query, int64 [K]."""
        return self._counts.of_kind(joint)

    def draws(self) -> Iterator[tuple[JointQuery, Entry, np.ndarray, int]]:
        """Iterate over (joint query, entry, clients [m], count), with clients of equal counts together.

        Clients that did not answer a joint query are left out of its clients.
        """
        of_some = {joint: (clients, counts) for joint, clients, counts in self._counts.rows()}
        for joint, entry in self:
            of_all = self._counts.everyone.get(joint, 0)
            clients, counts = of_some.get(joint, (np.zeros(0, dtype=np.int64),) * 2)
            if of_all:
                of_each = np.full(self.clients, of_all)
                of_each[clients] += counts
                clients, counts = np.arange(self.clients), of_each
            for count in np.unique(counts):
                yield joint, entry, clients[counts == count], int(count)

    def composition(self, client: int) -> dict[JointQuery, int]:
        """Return the joint queries that one client answered, and how often."""
        ((counts,), _) = self._counts.groups(np.array([client]))
        return self._in_order(counts)

    def histories(self) -> list[dict[JointQuery, int]]:
        """Return the distinct compositions of the clients that released anything."""
        histories = map(self._in_order, self._counts.distinct())
        joints = list(self._entries)
        return sorted(filter(None, histories), key=lambda h: [h.get(joint, 0) for joint in joints])

    def _in_order(self, counts: dict[JointQuery, int]) -> dict[JointQuery, int]:
        """Return the counts in the order in which joint queries were first answered, without zeros."""
        if len(counts) > 1:
            counts = {joint: counts[joint] for joint in self._entries if joint in counts}
        return {joint: count for joint, count in counts.items() if count}

    def samples_of(self, query: str | None = None) -> np.ndarray:
        """Return the number of samples that each client answered on [K].

        Args:
            query: Name of a query; if given, only samples on which it was answered count.
        """
        return self._counts.of_kinds(
            [
                joint
                for joint in self._entries
                if query is None or any(q.name == query for q in joint.queries)
            ]
        )

    def state_dict(self) -> dict[str, object]:
        of_some = {joint: (clients, counts) for joint, clients, counts in self._counts.rows()}
        everyone = self._counts.everyone
        return {
            "neighbours": self.neighbours,
            "entries": pack(_row_of(joint, entry, everyone.get(joint, 0)) for joint, entry in self),
            "some": pack_counts(of_some.get(joint) for joint in self._entries),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.neighbours = state["neighbours"]
        self._entries, self._counts = {}, CountsOfClients(self.clients)
        rows, everyone = unpack_counts(state["some"]), np.arange(self.clients)
        for (form, numbers), of_some in zip(unpack(state["entries"]), rows, strict=True):
            joint, entry, of_all = _entry_of(form, numbers)
            self._entries[joint] = entry
            if of_all:
                self._counts.add(joint, everyone, of_all)
            if of_some is not None:
                self._counts.add_rows(joint, *of_some)


def include(extents: dict[str, Extent], name: str, values: np.ndarray) -> None:
    """Widen the range of one query by these values.

    Args:
        extents: Ranges by query; changed in place.
        name: Name of the query, which may have no range yet.
        values: Any number of values; none changes nothing.
    """
    if np.size(values):
        extent = extents.setdefault(name, Extent())
        extent.low = min(extent.low, float(np.min(values)))
        extent.high = max(extent.high, float(np.max(values)))


def _row_of(joint: JointQuery, entry: Entry, everyone: int) -> tuple[tuple[Any, ...], list[float]]:
    """Return the form and the numbers of an entry, with the count of what all clients answered."""
    form, numbers = joint_row(joint)
    claimed = entry.claimed is not None
    counts = [everyone, entry.claimed] if claimed else [everyone]
    extents = [
        extents_by_query.get(query.name, Extent())
        for query in joint.queries
        for extents_by_query in (entry.noise_std, entry.sensitivity)
    ]
    ends = [end for extent in extents for end in (extent.low, extent.high)]
    # Entries of one form become rows of one matrix of floats, so counts and ranges come before the query's
    # own.
    return (form, claimed), [*counts, *ends, *numbers]


def _entry_of(form: Any, numbers: Sequence[float]) -> tuple[JointQuery, Entry, int]:
    """Return what :func:`_row_of` was given."""
    (joint_form, claimed), remaining = form, iter(numbers)
    entry, everyone = Entry(), int(next(remaining))
    if claimed:
        entry.claimed = int(next(remaining))
    ends = [next(remaining) for _ in range(4 * queries_in(joint_form))]
    joint = joint_of(joint_form, remaining)
    for i, query in enumerate(joint.queries):
        for extents_by_query, at in ((entry.noise_std, 4 * i), (entry.sensitivity, 4 * i + 2)):
            low, high = ends[at : at + 2]
            if low <= high:  # it was seen
                extents_by_query[query.name] = Extent(low, high)
    return joint, entry, everyone
