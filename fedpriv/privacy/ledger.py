"""The ledger: everything a run releases, one entry per draw.

It stays small: draws are counted per (distinct draw, client), and the absolute noise and
sensitivity of each query are kept as the range they moved through (an adaptive clip norm gives
every round its own absolute noise, but the same multiplier, hence the same price).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.mechanism import Draw, RandomizedBit


@dataclass
class Extent:
    """Smallest and largest absolute value seen."""

    low: float = float("inf")
    high: float = float("-inf")

    def include(self, values: np.ndarray) -> None:
        self.low = min(self.low, float(np.min(values)))
        self.high = max(self.high, float(np.max(values)))


@dataclass
class Entry:
    """All draws of one kind: who made them, how often, and the absolute noise they got."""

    claimed: int | None = None
    """How often the published theorem charges it to every client; ``None``: to those who made it."""
    everyone: int = 0
    some: np.ndarray | None = None  # [K], only for draws that not every client made
    noise_std: dict[str, Extent] = field(default_factory=dict)
    sensitivity: dict[str, Extent] = field(default_factory=dict)

    def copy(self) -> Entry:
        """An entry of its own (copy.deepcopy is 20 times slower on thousands of them)."""
        return Entry(
            self.claimed,
            self.everyone,
            None if self.some is None else self.some.copy(),
            {name: Extent(e.low, e.high) for name, e in self.noise_std.items()},
            {name: Extent(e.low, e.high) for name, e in self.sensitivity.items()},
        )

    def counts(self, clients: int) -> np.ndarray:
        """How often each client made this draw [K]."""
        base = np.zeros(clients, dtype=np.int64) if self.some is None else self.some
        return base + self.everyone


class Ledger:
    """What was released on which draw, how noised, by whom. One neighbouring relation per ledger."""

    def __init__(self, clients: int):
        self.clients = clients
        self.neighbours: str | None = None
        self._entries: dict[Draw, Entry] = {}

    def record(
        self,
        draw: Draw,
        clients: np.ndarray,
        sensitivities: Mapping[str, np.ndarray],
        count: int = 1,
        claimed: int | None = None,
    ) -> None:
        """Enter ``count`` draws by each of ``clients`` [m].

        ``claimed``: how many of them the published theorem charges to every client, present or not.

        ``sensitivities[query]`` [m] is the absolute L2 sensitivity (add/remove) each client's answer
        had; the absolute noise is that times the query's multiplier.
        """
        if self.neighbours not in (None, draw.sampling.neighbours):
            raise FedprivError(
                f"the ledger holds draws under {self.neighbours} neighbours and cannot take one "
                f"under {draw.sampling.neighbours}"
            )
        self.neighbours = draw.sampling.neighbours
        entry = self._entries.setdefault(draw, Entry())
        if claimed is not None:
            entry.claimed = (entry.claimed or 0) + claimed
        if len(clients) == self.clients:
            entry.everyone += count
        else:
            if entry.some is None:
                entry.some = np.zeros(self.clients, dtype=np.int64)
            entry.some[clients] += count
        for query in draw.queries:
            values = np.asarray(sensitivities[query.name], dtype=float)
            if values.size:
                entry.sensitivity.setdefault(query.name, Extent()).include(values)
                bounded = np.where(np.isfinite(values), values, 0.0)
                if isinstance(query, RandomizedBit):  # flipped, not added to
                    continue
                noise = bounded * query.noise_multiplier
                entry.noise_std.setdefault(query.name, Extent()).include(noise)

    def __iter__(self) -> Iterator[tuple[Draw, Entry]]:
        return iter(self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)

    def composition(self, client: int) -> dict[Draw, int]:
        """The draws of one client and how often it made each."""
        counted = {}
        for draw, entry in self._entries.items():
            count = int(entry.counts(self.clients)[client])
            if count:
                counted[draw] = count
        return counted

    def histories(self) -> list[dict[Draw, int]]:
        """The distinct histories of the clients that made a draw: each draw and how often."""
        if not self._entries:
            return []
        counts = np.stack([entry.counts(self.clients) for entry in self._entries.values()], axis=1)
        rows = np.unique(counts[counts.any(axis=1)], axis=0)
        return [
            {draw: int(n) for draw, n in zip(self._entries, row, strict=True) if n} for row in rows
        ]

    def draws_of(self, query: str | None = None) -> np.ndarray:
        """How many draws each client made [K]; only those that answer ``query``, if one is named."""
        total = np.zeros(self.clients, dtype=np.int64)
        for draw, entry in self._entries.items():
            if query is None or any(q.name == query for q in draw.queries):
                total += entry.counts(self.clients)
        return total

    def state_dict(self) -> dict[str, Any]:
        return {"neighbours": self.neighbours, "entries": _copies(self._entries)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.neighbours = state["neighbours"]
        self._entries = _copies(state["entries"])


def _copies(entries: Mapping[Draw, Entry]) -> dict[Draw, Entry]:
    """A state is a snapshot: what is recorded later must not reach it."""
    return {draw: entry.copy() for draw, entry in entries.items()}
