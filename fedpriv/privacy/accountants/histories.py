"""Number of draws of each kind that each client made.

Counts are exact for clients that made few kinds of draws, and on the grid of :mod:`fedpriv.privacy.core.grid`
for the others. Both are updated as draws are added, so that a round costs the same however many came before.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.alike import CountsOfClients
from fedpriv.privacy.core.columns import pack_counts, pack_events, unpack_counts, unpack_events
from fedpriv.privacy.core.grid import FEW, on_grid, weaker_event

Counts = dict[dp_event.DpEvent, int]

weaker = lru_cache(maxsize=16384)(weaker_event)
"""The event on the grid; cached, because every round asks for it."""


class Histories:
    """The draws of each client so far. Clients with the same draws share one history."""

    def __init__(self, clients: int):
        self.clients = clients
        self._exact: CountsOfClients[dp_event.DpEvent] = CountsOfClients(clients)
        self._gridded: CountsOfClients[dp_event.DpEvent] = CountsOfClients(clients)
        self._kinds: set[dp_event.DpEvent] = set()
        self._rates: set[float | None] = set()

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        """Add ``count`` draws of ``event`` to each of ``clients`` [m]."""
        self._note_kind(event)
        self._exact.add(event, clients, count)
        self._gridded.add(weaker(event), clients, count)

    def _note_kind(self, event: dp_event.DpEvent) -> None:
        self._kinds.add(event)
        self._rates.add(getattr(event, "sampling_probability", None))

    @property
    def kinds(self) -> int:
        """Number of distinct events."""
        return len(self._kinds)

    def kinds_with(self, event: dp_event.DpEvent) -> int:
        """Return how many distinct events there would be with ``event``."""
        return len(self._kinds) + (event not in self._kinds)

    def distinct(self) -> list[Counts]:
        """Return the distinct histories, of many kinds of draws on the grid. They must not be changed."""
        if self.kinds <= FEW:
            return self._exact.distinct()
        return self.groups()[0]

    def groups(self, clients: np.ndarray | None = None) -> tuple[list[Counts], np.ndarray]:
        """Return the distinct histories, and the index of each client's history.

        Histories of many kinds of draws are on the grid. They must not be changed.

        Args:
            clients: The clients that matter [m]; None: all of them.

        Returns:
            The histories of these clients, and an index int64 [m].
        """
        if self.kinds <= FEW:
            return self._exact.groups(clients)
        if len(self._rates) > FEW:
            # Sample rates are rounded as well, and this depends on the whole history of a client.
            histories, group_of = self._exact.groups(clients)
            return [on_grid(history) for history in histories], group_of
        kinds, index = self._exact.kinds_of_groups()
        if (kinds > FEW).all():
            return self._gridded.groups(clients)
        everyone = np.arange(self.clients) if clients is None else clients
        has_few = (kinds <= FEW)[index[everyone]]
        distinct: list[Counts] = []
        group_of = np.zeros(len(everyone), dtype=np.int64)
        for counts, members in ((self._exact, has_few), (self._gridded, ~has_few)):
            if members.any():
                histories, group = counts.groups(everyone[members])
                group_of[members] = group + len(distinct)
                distinct += histories
        return distinct, group_of

    def same_draws(self, other: Histories) -> bool:
        """Return whether every client made the same draws in both."""
        return self._exact.same_as(other._exact)

    def state_dict(self) -> dict[str, object]:
        return {
            "everyone": pack_events(self._exact.everyone),
            "some": pack_events(dict.fromkeys(self._exact.kinds, 1)),
            "counts": pack_counts((clients, counts) for _, clients, counts in self._exact.rows()),
        }

    def load_state_dict(self, state: StateDict) -> None:
        Histories.__init__(self, self.clients)
        everyone = np.arange(self.clients)
        for event, count in unpack_events(state["everyone"]).items():
            self.add(event, everyone, count)
        rows = unpack_counts(state["counts"])
        for event, row in zip(unpack_events(state["some"]), rows, strict=True):
            assert row is not None
            self._note_kind(event)
            self._exact.add_rows(event, *row)
            self._gridded.add_rows(weaker(event), *row)
