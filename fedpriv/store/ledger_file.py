"""``ledger.csv``: every distinct draw in both views, which clients made it, and how often.

While a run goes, :class:`RunLedger` writes the file. It has a row for each round before the round releases
anything, so that the cost of a run that is killed is known.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.files import csv_text, saying_where, write_text
from fedpriv.common.notices import notice
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.names import PUBLISHED
from fedpriv.privacy.ledger import Extent, Ledger
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.store.saved import saved_records, saved_text, unreadable
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


_GROWING = (*COLUMNS, "round", "digest")
"""Columns while the run goes."""


class RunLedger:
    """The writer of ``ledger.csv``, from before the first round to the end of a run.

    The rows of the last checkpoint come first, as :func:`ledger_text` has them. Each round after it adds rows
    before anything of the round is computed: the event, and which clients pay. These are all clients where
    the cohort is secret. The round's last row ends with a digest of what was released, and is completed
    before anybody reads that.

    After a crash the rounds after the checkpoint are run again. A round that releases the same as before
    counts once. Where it does not, a simulation says so and charges both, and a published run ends.

    Args:
        path: The file.
        budget: Ledger and totals of the run.
        published: Whether the run is published. Then each row is synced to disk, too.
        done: Number of rounds in the checkpoint that the run goes on from; None for a new run.

    Raises:
        ConfigError: The file of a run that goes on cannot be read.
    """

    def __init__(self, path: Path, budget: Budget, *, published: bool, done: int | None):
        self._path, self._budget, self._published = path, budget, published
        self._number, self._rows, self._is_written = 0, "", False
        self._clients: tuple[np.ndarray | None, str] = None, ""
        # Rows of rounds after the checkpoint, by round and attempt. Rows without a digest do not count:
        # nobody read what the round released.
        self._earlier: dict[int, list[str]] = {}
        if done is None or not path.exists():
            return
        rows = ""
        for line in saved_text(path).splitlines(True):
            cells = next(csv.reader([line]))
            if len(cells) == len(_GROWING) and cells[-2].isdigit() and int(cells[-2]) > done:
                rows += line
                if cells[-1] and line.endswith("\n"):
                    self._earlier.setdefault(int(cells[-2]), []).append(rows)
                    rows = ""

    def open(self, number: int, charges: Iterable[tuple[JointQuery, int, np.ndarray]]) -> None:
        """Write what a round will be charged for.

        Args:
            number: 1, 2, …; 0 for what is released before the first round.
            charges: (joint query, number of samples, clients) of each release.
        """
        rows = []
        for joint, samples, clients in charges:
            # These are the same million in every round of a secret cohort.
            if clients is not self._clients[0]:
                self._clients = clients, ranges(clients)
            event, neighbours, queries = _cells(joint)
            who = self._clients[1]
            rows.append((event, neighbours, "", "", queries, "", "", samples, who, "", number, ""))
        self._number, self._rows = number, csv_text(rows)[:-1]
        earlier = self._earlier.get(number, ())
        self._is_written = any(attempt.startswith(self._rows) for attempt in earlier)
        if not self._is_written:
            self._append(self._rows)

    def close(self, digest: str) -> None:
        """Write the digest of what the open round released, before anybody reads that.

        Raises:
            ReleaseError: The round of a published run was run before and released something else.
        """
        if not self._rows:  # nobody pays
            return
        attempt, earlier = f"{self._rows}{digest}\n", self._earlier.pop(self._number, [])
        if attempt in earlier:
            earlier.remove(attempt)
            self._charge(earlier)
            return
        if earlier:
            again = f"round {self._number} was run before and released something else"
            why = "on another processor, or by a part of your own that does not save its state"
            if self._published:
                raise ReleaseError(
                    f"{again}, {why}; the noise was the same, so both together would give it away: nothing "
                    "of this round is saved; go on where the run was begun, or start anew"
                )
            notice(f"warning: {again}, {why}: both are charged")
        self._append(attempt if self._is_written else f"{digest}\n")
        if earlier:
            self._charge(earlier)
            self.charge_rest()  # rounds that follow another release do not come again

    def charge_rest(self) -> None:
        """Charge the earlier attempts at rounds that are not run again."""
        for attempts in self._earlier.values():
            self._charge(attempts)
        self._earlier.clear()

    def _charge(self, attempts: Iterable[str]) -> None:
        for row in csv.DictReader("".join(attempts).splitlines(), _GROWING):
            clients = np.array(parse_ranges(row["clients"]))
            # Of correlated noise the first round was charged for all, with the noise that they share.
            count = max(1, int(row["draws_per_client"]))
            self._budget.charge_earlier(row["event_sound"], clients, count)

    def save(self, growing: bool = True) -> None:
        """Write the file anew, with the rounds so far in as few rows as the end of the run has.

        Args:
            growing: Whether rounds follow.
        """
        text = ledger_text(self._budget.ledger, self._budget.claim)
        if growing or self._earlier:
            text = text.replace(",".join(COLUMNS), ",".join(_GROWING), 1)
        attempts = (attempt for attempts in self._earlier.values() for attempt in attempts)
        write_text(self._path, text + "".join(attempts))

    def _append(self, text: str) -> None:
        with saying_where(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if self._published:
                os.fsync(file.fileno())


@lru_cache(maxsize=4096)  # the same in most rounds
def _cells(joint: JointQuery) -> tuple[str, str, str]:
    """Return event, adjacency and queries, as the ledger shows them."""
    queries = " ".join(query.describe() for query in joint.queries)
    return describe_event(joint.event()), joint.sampling.neighbours, queries


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
        event, neighbours, queries = _cells(joint)
        rows.append(
            (
                event,
                neighbours,
                *published,
                queries,
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
    if rows and "digest" not in rows[-1] and _is_torn(path):
        rows.pop()
    if rows and view == PUBLISHED and not all(row.get("event_published") for row in rows):
        raise ConfigError(
            f"{path} has no published view: its algorithm has no published claim, or the run has not ended"
        )
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


def _is_torn(path: Path) -> bool:
    """Return whether the process died while it wrote the last row, before the round of that row began."""
    text = saved_text(path)
    return text.startswith(",".join(_GROWING)) and not text.endswith("\n")


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
