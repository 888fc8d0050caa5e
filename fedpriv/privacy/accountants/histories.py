"""How often each client made each kind of draw: exactly where it made few kinds, else on the grid of
:mod:`fedpriv.privacy.core.grid`.

Both are kept as draws are added, so that a round costs the same however many came before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.core.columns import pack_counts, pack_events, unpack_counts, unpack_events
from fedpriv.privacy.core.grid import FEW, on_grid, weaker_event

Counts = dict[dp_event.DpEvent, int]

weaker = lru_cache(maxsize=16384)(weaker_event)
"""The event on the grid: asked for in every round."""


class _ReleaseCounts:
    """Draws of each kind: of all clients, and of some [K]."""

    def __init__(self, clients: int):
        self.clients = clients
        self.everyone: Counts = {}
        self.some: dict[dp_event.DpEvent, np.ndarray] = {}

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        if len(clients) == self.clients:
            self.everyone[event] = self.everyone.get(event, 0) + count
        else:
            own = self.some.setdefault(event, np.zeros(self.clients, dtype=np.int64))
            own[clients] += count

    def groups(self, members: np.ndarray) -> tuple[list[Counts], np.ndarray]:
        """The distinct histories of ``members`` [m], not to be changed, and which of them each has [m]."""
        if not self.some:
            return [self.everyone], np.zeros(len(members), dtype=np.int64)
        table = np.stack([own[members] for own in self.some.values()], axis=1)  # [m, events]
        rows, group_of = np.unique(table, axis=0, return_inverse=True)
        histories = []
        for row in rows:
            own = dict(self.everyone)
            for event, count in zip(self.some, row, strict=True):
                if count:
                    own[event] = own.get(event, 0) + int(count)
            histories.append(own)
        return histories, group_of.reshape(-1)

    def of_each(self) -> dict[dp_event.DpEvent, np.ndarray]:
        """How often each client [K] made each kind of draw."""
        kinds = dict.fromkeys([*self.everyone, *self.some])
        nobody = np.zeros(self.clients, dtype=np.int64)
        return {kind: self.some.get(kind, nobody) + self.everyone.get(kind, 0) for kind in kinds}


class Histories:
    """What each client [K] drew so far."""

    def __init__(self, clients: int):
        self.clients = clients
        self._exact, self._gridded = _ReleaseCounts(clients), _ReleaseCounts(clients)
        self._kinds: set[dp_event.DpEvent] = set()
        self._kinds_of = np.zeros(clients, dtype=np.int64)
        self._rates: set[float | None] = set()

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        """``count`` draws of ``event`` by each of ``clients`` [m]."""
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
        """How many kinds of draws there are."""
        return len(self._kinds)

    def kinds_with(self, event: dp_event.DpEvent) -> int:
        """How many there are with ``event``."""
        return len(self._kinds) + (event not in self._kinds)

    def groups(self) -> tuple[list[Counts], np.ndarray]:
        """The distinct histories as they are accounted for, not to be changed, and which of them each client
        has [K]."""
        few = self._kinds_of <= FEW
        if (
            len(self._rates) > FEW
        ):  # sample rates are rounded too, which depends on all of a history
            histories, group_of = self._exact.groups(np.arange(self.clients))
            return [on_grid(history) for history in histories], group_of
        found: list[Counts] = []
        group_of = np.zeros(self.clients, dtype=np.int64)
        for counts, members in ((self._exact, few), (self._gridded, ~few)):
            if members.any():
                histories, own = counts.groups(np.flatnonzero(members))
                group_of[members] = own + len(found)
                found += histories
        return found, group_of

    def same_draws(self, other: Histories) -> bool:
        """Return whether every client made the same draws in both."""
        ours, others = self._exact.of_each(), other._exact.of_each()
        return ours.keys() == others.keys() and all(
            np.array_equal(counts, others[kind]) for kind, counts in ours.items()
        )

    def state_dict(self) -> dict[str, object]:
        return {
            "everyone": pack_events(self._exact.everyone),
            "some": pack_events(dict.fromkeys(self._exact.some, 1)),
            "counts": pack_counts(self._exact.some.values()),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        Histories.__init__(self, self.clients)
        everyone = np.arange(self.clients)
        for event, count in unpack_events(saved["everyone"]).items():
            self.add(event, everyone, count)
        counts = unpack_counts(saved["counts"], self.clients)
        for event, own in zip(unpack_events(saved["some"]), counts, strict=True):
            assert own is not None
            self._add_each(event, own)

    def _add_each(self, event: dp_event.DpEvent, counts: np.ndarray) -> None:
        """``counts`` [K] draws of ``event``."""
        self._note_kind(event, np.flatnonzero(counts))
        nobody = np.zeros(0, dtype=np.int64)
        for kept, kind in ((self._exact, event), (self._gridded, weaker(event))):
            kept.add(kind, nobody, 0)
            kept.some[kind] += counts
