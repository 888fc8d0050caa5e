"""Number of draws of each kind that each client made.

Counts are exact for clients that made few kinds of draws, and on the grid of :mod:`fedpriv.privacy.core.grid`
for the others. Both are updated as draws are added, so that a round costs the same however many came before.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.columns import pack_counts, pack_events, unpack_counts, unpack_events
from fedpriv.privacy.core.grid import FEW, on_grid, weaker_event

Counts = dict[dp_event.DpEvent, int]

weaker = lru_cache(maxsize=16384)(weaker_event)
"""The event on the grid; cached, because every round asks for it."""


class _ReleaseCounts:
    """Number of draws of each kind, split into draws of all clients and draws of some clients [K].

    Most draws are those of all clients, for which one number replaces an array.
    """

    def __init__(self, clients: int):
        self.clients = clients
        self.everyone: Counts = {}
        self.some: dict[dp_event.DpEvent, np.ndarray] = {}

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        if len(clients) == self.clients:
            self.everyone[event] = self.everyone.get(event, 0) + count
        else:
            event_counts = self.some.setdefault(event, np.zeros(self.clients, dtype=np.int64))
            event_counts[clients] += count

    def groups(self, members: np.ndarray) -> tuple[list[Counts], np.ndarray]:
        """Return the distinct histories of ``members`` [m], and the index of each member's history [m].

        The histories must not be changed.
        """
        if not self.some:
            return [self.everyone], np.zeros(len(members), dtype=np.int64)
        table = np.stack(
            [history[members] for history in self.some.values()], axis=1
        )  # [m, events]
        rows, group_of = np.unique(table, axis=0, return_inverse=True)
        histories = []
        for row in rows:
            history = dict(self.everyone)
            for event, count in zip(self.some, row, strict=True):
                if count:
                    history[event] = history.get(event, 0) + int(count)
            histories.append(history)
        return histories, group_of.reshape(-1)

    def of_each(self) -> dict[dp_event.DpEvent, np.ndarray]:
        """Return how often each client [K] made each kind of draw."""
        kinds = dict.fromkeys([*self.everyone, *self.some])
        nobody = np.zeros(self.clients, dtype=np.int64)
        return {kind: self.some.get(kind, nobody) + self.everyone.get(kind, 0) for kind in kinds}


class Histories:
    """The draws of each client [K] so far."""

    def __init__(self, clients: int):
        self.clients = clients
        self._exact, self._gridded = _ReleaseCounts(clients), _ReleaseCounts(clients)
        self._kinds: set[dp_event.DpEvent] = set()
        self._kinds_of = np.zeros(clients, dtype=np.int64)
        self._rates: set[float | None] = set()

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        """Add ``count`` draws of ``event`` to each of ``clients`` [m]."""
        self._note_kind(event, clients)
        self._exact.add(event, clients, count)
        self._gridded.add(weaker(event), clients, count)

    def _note_kind(self, event: dp_event.DpEvent, clients: np.ndarray) -> None:
        self._kinds.add(event)
        self._rates.add(getattr(event, "sampling_probability", None))
        if event not in self._exact.everyone:
            before = self._exact.some.get(event)
            self._kinds_of[clients] += 1 if before is None else before[clients] == 0

    @property
    def kinds(self) -> int:
        """Number of distinct events."""
        return len(self._kinds)

    def kinds_with(self, event: dp_event.DpEvent) -> int:
        """Return how many distinct events there would be with ``event``."""
        return len(self._kinds) + (event not in self._kinds)

    def groups(self) -> tuple[list[Counts], np.ndarray]:
        """Return the distinct histories, and the index of each client's history [K].

        Histories of many kinds of draws are on the grid. They must not be changed.
        """
        few_kinds = self._kinds_of <= FEW
        if len(self._rates) > FEW:
            # Sample rates are rounded as well, and this depends on the whole history of a client.
            histories, group_of = self._exact.groups(np.arange(self.clients))
            return [on_grid(history) for history in histories], group_of
        distinct: list[Counts] = []
        group_of = np.zeros(self.clients, dtype=np.int64)
        for counts, members in ((self._exact, few_kinds), (self._gridded, ~few_kinds)):
            if members.any():
                histories, group = counts.groups(np.flatnonzero(members))
                group_of[members] = group + len(distinct)
                distinct += histories
        return distinct, group_of

    def same_draws(self, other: Histories) -> bool:
        """Return whether every client made the same draws in both."""
        counts_here, counts_there = self._exact.of_each(), other._exact.of_each()
        return counts_here.keys() == counts_there.keys() and all(
            np.array_equal(counts, counts_there[kind]) for kind, counts in counts_here.items()
        )

    def state_dict(self) -> dict[str, object]:
        return {
            "everyone": pack_events(self._exact.everyone),
            "some": pack_events(dict.fromkeys(self._exact.some, 1)),
            "counts": pack_counts(self._exact.some.values()),
        }

    def load_state_dict(self, state: StateDict) -> None:
        Histories.__init__(self, self.clients)
        everyone = np.arange(self.clients)
        for event, count in unpack_events(state["everyone"]).items():
            self.add(event, everyone, count)
        counts = unpack_counts(state["counts"], self.clients)
        for event, event_counts in zip(unpack_events(state["some"]), counts, strict=True):
            assert event_counts is not None
            self._add_each(event, event_counts)

    def _add_each(self, event: dp_event.DpEvent, counts: np.ndarray) -> None:
        """Add ``counts`` [K] draws of ``event``, one number for each client."""
        self._note_kind(event, np.flatnonzero(counts))
        nobody = np.zeros(0, dtype=np.int64)
        for release_counts, kind in ((self._exact, event), (self._gridded, weaker(event))):
            release_counts.add(kind, nobody, 0)
            release_counts.some[kind] += counts
