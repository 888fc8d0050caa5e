"""Ledger of a run: everything that was released, by kind of release.

The ledger stays small: it counts releases per joint query, and clients with the same counts share them. The
absolute noise and sensitivity of each query are kept as ranges. An adaptive clip norm gives every round
another absolute noise, but the same multiplier, hence the same privacy cost.

A checkpoint holds joint queries as rows: a sampling or a query is its class and its fields, whose values are
numbers and texts. Classes of the user's own are found again by name, among the classes that the run's code
defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.errors import ConfigError, FedprivError, show
from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.client_groups import ClientGroups, objects
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.privacy.mechanisms.query import Query
from fedpriv.privacy.mechanisms.release import Release

if TYPE_CHECKING:
    from fedpriv.privacy.accountants import RunningTotal
    from fedpriv.privacy.mechanisms.claims import Claim


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
        self._counts = ClientGroups(clients, objects([{}]))  # joint query → samples

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
        if release.count and len(release.clients):
            self._count(joint, release.clients, release.count)
        for query in joint.queries:
            include(entry.sensitivity, query.name, release.sensitivity[query.name])
            if not query.protects:
                include(entry.noise_std, query.name, np.zeros(1))
            elif query.name in release.noise_std:  # a bit is flipped, not added to
                include(entry.noise_std, query.name, release.noise_std[query.name])

    def _count(self, joint: JointQuery, clients: np.ndarray, count: int) -> None:
        self._counts.charge(
            joint,
            clients,
            count,
            lambda histories: objects({**h, joint: h.get(joint, 0) + count} for h in histories),
        )

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
        return self._spread(lambda history: history.get(joint, 0))

    def _spread(self, number_of: Callable[[dict[JointQuery, int]], int]) -> np.ndarray:
        numbers = np.array([number_of(history) for history in self._counts.distinct])
        return self._counts.spread(numbers)

    def draws(self) -> Iterator[tuple[JointQuery, Entry, np.ndarray, int]]:
        """Iterate over (joint query, entry, clients [m], count), with clients of equal counts together.

        Clients that did not answer a joint query are left out of its clients.
        """
        members: dict[JointQuery, dict[int, list[np.ndarray]]] = {}
        for history, clients in zip(self._counts.distinct, self._counts.members(), strict=True):
            for joint, count in history.items():
                members.setdefault(joint, {}).setdefault(count, []).append(clients)
        for joint, entry in self:
            for count, groups in sorted(members.get(joint, {}).items()):
                yield joint, entry, np.sort(np.concatenate(groups)), count

    def composition(self, client: int) -> dict[JointQuery, int]:
        """Return the joint queries that one client answered, and how often."""
        return self._in_order(self._counts.values[self._counts.group_of[client]])

    def histories(self) -> list[dict[JointQuery, int]]:
        """Return the distinct compositions of the clients that released anything."""
        histories = map(self._in_order, self._counts.distinct)
        joints = list(self._entries)
        return sorted(filter(None, histories), key=lambda h: [h.get(joint, 0) for joint in joints])

    def _in_order(self, history: dict[JointQuery, int]) -> dict[JointQuery, int]:
        """Return the counts in the order in which joint queries were first answered."""
        if len(history) < 2:
            return dict(history)
        return {joint: history[joint] for joint in self._entries if joint in history}

    def samples_of(self, query: str | None = None) -> np.ndarray:
        """Return the number of samples that each client answered on [K].

        Args:
            query: Name of a query; if given, only samples on which it was answered count.
        """
        return self._spread(
            lambda history: sum(
                count for joint, count in history.items() if query is None or query in joint.names
            )
        )

    def state_dict(self) -> dict[str, object]:
        entries = []
        for joint, entry in self:
            extents = [
                {name: (extent.low, extent.high) for name, extent in by_query.items()}
                for by_query in (entry.noise_std, entry.sensitivity)
            ]
            entries.append((joint_row(joint), entry.claimed, extents))
        place = {joint: i for i, joint in enumerate(self._entries)}
        return {
            "neighbours": self.neighbours,
            "entries": entries,
            "counts": self._counts.state_dict(
                lambda histories: [[(place[j], n) for j, n in h.items()] for h in histories]
            ),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.neighbours = state["neighbours"]
        self._entries = {
            joint_of(row): Entry(
                claimed, *({name: Extent(*ends) for name, ends in e.items()} for e in extents)
            )
            for row, claimed, extents in state["entries"]
        }
        joints = list(self._entries)
        self._counts.load_state_dict(
            state["counts"],
            lambda histories: objects({joints[i]: n for i, n in h} for h in histories),
        )


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


def recount(
    name: str,
    total: RunningTotal,
    new: Callable[[], RunningTotal],
    ledger: Ledger,
    delta: float,
    claim: Claim | None = None,
) -> str:
    """Compare a running total with the ledger's total, and replace it if the ledger's is larger.

    A larger running total stays, because its ε is the safe one. For a theorem this is no difference: it says
    nothing about releases before the run.

    Args:
        name: Name of the ε that the total gives, for the message.
        total: Total that was charged during the run.
        new: Function that makes an empty total of the same kind.
        ledger: The releases of the run.
        delta: δ.
        claim: Theorem whose events are charged; None means the events of the releases.

    Returns:
        The difference in words; empty if there is none.
    """
    recounted = new()
    for joint, entry, clients, count in ledger.draws():
        if claim is None:
            recounted.add(joint.event(), clients, count)
        elif entry.claimed is None and claim.covers(joint):
            recounted.add(claim.event(joint), clients, count)
    for joint, entry in ledger:
        if claim is not None and entry.claimed:
            recounted.add(claim.event(joint), np.arange(ledger.clients), entry.claimed)
    if total.agrees_with(recounted, delta):
        return ""
    stated, epsilon = total.worst(delta), recounted.worst(delta)
    if epsilon >= stated:
        total.load_state_dict(recounted.state_dict())
    elif claim is not None:
        return ""
    return f"{name} epsilon {epsilon:.4f} by the ledger, {stated:.4f} by the running total"


Row = list[tuple[str, dict[str, Any]]]
"""Class and fields of the sampling, and of each query."""


def joint_row(joint: JointQuery) -> Row:
    """Return the row of a joint query.

    Raises:
        ConfigError: A field is not plain, so a checkpoint cannot hold it.
    """
    row = []
    for part in (joint.sampling, *joint.queries):
        kind: Any = type(part)
        names = _names(kind) or vars(part)
        row.append((_name(kind), {name: _plain(part, name, getattr(part, name)) for name in names}))
    return row


def joint_of(row: Row) -> JointQuery:
    """Return the joint query that :func:`joint_row` was given.

    Raises:
        ConfigError: The run's code does not define a class of the row.
    """
    sampling, *queries = row
    return JointQuery(_made(Sampling, *sampling), tuple(_made(Query, *query) for query in queries))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; none for another class."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _plain(part: object, name: str, value: Any) -> Any:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, tuple):
        return tuple(_plain(part, name, item) for item in value)
    raise ConfigError(
        f"{type(part).__name__}.{name} must be a number, a text or a tuple of them, because a checkpoint "
        f"holds nothing else, got {show(value)}"
    )


def _made(base: type, name: str, values: dict[str, Any]) -> Any:
    kind = _known(base).get(name)
    if kind is None:
        raise ConfigError(
            f"resume: the checkpoint holds releases of {name}, which the code of this run does not define"
        )
    # Around the constructor, whose arguments need not be the attributes.
    part: Any = object.__new__(kind)
    for attribute, value in values.items():
        object.__setattr__(part, attribute, value)
    return part


def _known(base: type) -> dict[str, type]:
    classes, pending = {}, [base]
    while pending:
        kind = pending.pop()
        classes[_name(kind)] = kind
        pending += kind.__subclasses__()
    return classes
