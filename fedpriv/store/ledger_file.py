"""``ledger.csv``: every distinct draw in both views, which clients made it, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import csv_text
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.names import PUBLISHED
from fedpriv.privacy.ledger import Extent, Ledger
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.store.saved import saved_records, unreadable
from fedpriv.store.tables import parse_ranges, ranges

COLUMNS = (
    "event_sound",
    "neighbours_sound",
    "event_published",
    "neighbours_published",
    "queries",
    "noise_std",
    "sensitivity",
    "draws_per_client",
    "clients",
    "claimed_of_everyone",
)


def ledger_text(ledger: Ledger, claim: Claim | None) -> str:
    """Return the text of ``ledger.csv``.

    A row stands for one distinct draw and one number of times. Noise and sensitivity are ranges ``low..high``
    over clients and rounds.

    Args:
        ledger: The releases of a run.
        claim: The theorem that gives the published view; None: the columns of that view are empty.
    """
    rows: list[tuple[object, ...]] = [COLUMNS]
    for joint, entry, clients, count in ledger.draws():
        published = ("", "")
        if claim is not None:
            published = (describe_event(claim.event(joint)), claim.neighbours)
        rows.append(
            (
                describe_event(joint.event()),
                joint.sampling.neighbours,
                *published,
                " ".join(query.describe() for query in joint.queries),
                _extents(entry.noise_std),
                _extents(entry.sensitivity),
                count,
                ranges(clients),
                entry.claimed,
            )
        )
    return csv_text(rows)


@dataclass(frozen=True)
class StoredLedger:
    """One view of a ledger file.

    Attributes:
        neighbours: The adjacency of all draws.
        of_client: Number of times that each client made each draw, by client and event.
    """

    neighbours: str
    of_client: dict[int, dict[dp_event.DpEvent, int]]

    @property
    def histories(self) -> tuple[tuple[tuple[dp_event.DpEvent, int], ...], ...]:
        """The distinct histories of the clients that took part."""
        return tuple(dict.fromkeys(tuple(counts.items()) for counts in self.of_client.values()))


def read_ledger(path: Path, view: str) -> StoredLedger:
    """Read how often each client made each draw.

    In the published view, draws that the theorem charges to every client are counted for each client that the
    file names, present in them or not.

    Args:
        path: A ``ledger.csv``.
        view: ``sound`` or ``published``.

    Raises:
        ConfigError: The file cannot be read, has no entries, or has no such view.
    """
    rows = saved_records(path)
    if rows and view == PUBLISHED and not any(row.get("event_published") for row in rows):
        raise ConfigError(f"{path} has no published view: its algorithm has no published claim")
    counts: dict[int, dict[dp_event.DpEvent, int]] = {}
    claimed: dict[tuple[str, str], tuple[dp_event.DpEvent, int]] = {}  # of every client, by draw
    relations = set()
    for number, row in enumerate(rows, start=2):
        try:
            draws = _read_row(row, view)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise unreadable(path, f"line {number} is not an entry of a ledger") from None
        relations.add(draws.neighbours)
        if draws.of_everyone:
            claimed[row["event_sound"], row["queries"]] = draws.event, draws.count
        for client in draws.clients:
            client_counts = counts.setdefault(client, {})
            if not draws.of_everyone:
                _add(client_counts, draws.event, draws.count)
    if not counts:
        raise ConfigError(f"{path} has no entries: nothing was released")
    if len(relations) > 1:
        raise unreadable(path, f"it mixes the relations {', '.join(sorted(relations))}")
    # The theorem charges these draws to every client, so they are added once all clients are known.
    for client_counts in counts.values():
        for event, count in claimed.values():
            _add(client_counts, event, count)
    return StoredLedger(relations.pop(), counts)


@dataclass(frozen=True)
class _Draws:
    """A row of a ledger file in one view.

    Attributes:
        event: The event that each draw is charged as.
        count: Number of draws by each of ``clients``; with ``of_everyone``, by every client.
        clients: The clients that made the draw.
        neighbours: The adjacency.
        of_everyone: True if the theorem charges every client, present or not.
    """

    event: dp_event.DpEvent
    count: int
    clients: list[int]
    neighbours: str
    of_everyone: bool


def _read_row(row: dict[str, str], view: str) -> _Draws:
    """Read a row. Raise KeyError, TypeError, AttributeError or ValueError for anything else."""
    event, count = parse_event(row[f"event_{view}"]), int(row["draws_per_client"])
    clients = parse_ranges(row["clients"])
    neighbours = row.get(f"neighbours_{view}") or row["neighbours"]
    if view == PUBLISHED and row.get("claimed_of_everyone"):
        return _Draws(event, int(row["claimed_of_everyone"]), clients, neighbours, True)
    return _Draws(event, count, clients, neighbours, False)


def _add(counts: dict[dp_event.DpEvent, int], event: dp_event.DpEvent, count: int) -> None:
    if count:
        counts[event] = counts.get(event, 0) + count


def _extents(extents: Mapping[str, Extent]) -> str:
    return " ".join(f"{name}={e.low:.6g}..{e.high:.6g}" for name, e in extents.items())
