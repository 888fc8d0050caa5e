"""Privacy cost of all trials of a search together.

All trials read the same data, so their releases compose. Trials that lose are charged like the best one.
The ledgers of the trials are added up client by client. There are two cases:

- **fixed**: no searched key changes what a trial releases. Every trial has the same events, known beforehand,
  and any accountant may compose these events. A trial that ended early (it diverged, or failed) is charged in
  full: the early end followed from released values, and composition of events that are fixed in advance does
  not allow for such an end.
- **adaptive**: σ, q or the number of rounds follow from what earlier trials released. Then a privacy filter
  guards the budget (Feldman and Zrnic 2021). The Rényi order of the filter is fixed in advance,
  a trial starts only if the sum with all that the trial may release stays within the budget, and the budget
  is the ε that may be claimed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.words import digits_up
from fedpriv.privacy.accountants import Accountant, RunningTotal
from fedpriv.privacy.accountants.base import Composition
from fedpriv.privacy.accountants.search import most_steps
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.store.stored_run import StoredRun

# A sum that was planned to end exactly at the limit may end above it by rounding.
_ROUNDING = 1.0 + 1e-9
EPSILON = "hydra.sweeper.epsilon"


class SearchLedger:
    """Releases of all trials, client by client, under one adjacency.

    Args:
        neighbours: Name of the adjacency relation.

    Attributes:
        neighbours: Name of the adjacency relation.
    """

    def __init__(self, neighbours: str):
        self.neighbours = neighbours
        self._everyone: Counter[DpEvent] = Counter()
        self._of_client: dict[int, Counter[DpEvent]] = {}

    def add_to_everyone(self, released: Composition) -> None:
        """Charge every client for ``released``."""
        self._everyone.update(released)

    def with_everyone(self, released: Composition) -> SearchLedger:
        """Return a copy in which every client is charged for ``released`` as well."""
        copy = SearchLedger(self.neighbours)
        copy._everyone = self._everyone + Counter(released)
        copy._of_client = {client: Counter(events) for client, events in self._of_client.items()}
        return copy

    def add(self, clients: Mapping[int, Composition]) -> None:
        """Charge each client for the releases given under its number."""
        for client, released in clients.items():
            self._of_client.setdefault(client, Counter()).update(released)

    def histories(self) -> list[dict[DpEvent, int]]:
        """Return the distinct compositions of clients.

        Where no release is known of a single client, the result is the one composition that everyone is
        charged for.
        """
        distinct = {
            frozenset((self._everyone + events).items()) for events in self._of_client.values()
        }
        # Before the first ledger is read, no client is known by its number.
        distinct = distinct or {frozenset(self._everyone.items())}
        return [dict(history) for history in sorted(distinct, key=len, reverse=True)]


def read_trial(
    run: StoredRun, neighbours: str, planned: Composition
) -> dict[int, dict[DpEvent, int]]:
    """Read the releases of each client in a trial from the trial's ledger.

    Args:
        run: The finished trial.
        neighbours: Adjacency of the search.
        planned: Releases that the budget was asked for before the trial began.

    Returns:
        Client number → events and how often the client released each.

    Raises:
        FedprivError: The ledger cannot be read, has another adjacency, or has more releases than planned. The
            budget has not seen releases beyond the plan.
    """
    try:
        ledger = run.ledger(SOUND)
    except ConfigError as error:
        raise FedprivError(f"search: {error}") from None
    if ledger.neighbours != neighbours:
        raise FedprivError(
            f"search: {run.files.ledger} has {ledger.neighbours} adjacency, the search {neighbours}"
        )
    for released in ledger.of_client.values():
        if any(count > planned.get(event, 0) for event, count in released.items()):
            raise FedprivError(
                f"search: {run.files.ledger} has more than the plan of its trial allows"
            )
    return ledger.of_client


class SearchBudget:
    """ε and δ that all trials share, fixed before the first trial.

    Args:
        epsilon: ε of the whole search.
        delta: δ of the whole search.
        neighbours: Adjacency under which all trials are counted.
        accountant: Composes the releases of the trials.
        first: Events that the first trial may release at most. The most frequent of these events chooses the
            Rényi order of a filter.
        adaptive: True where trials release different things, so that a filter has to guard the budget.

    Raises:
        ConfigError: The accountant cannot compose the events, or has no filter where one is needed.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        neighbours: str,
        accountant: Accountant,
        first: Composition,
        adaptive: bool,
    ):
        self.limit, self.delta, self.neighbours = epsilon, delta, neighbours
        self.accountant, self.adaptive, self.first = accountant, adaptive, dict(first)
        for event in first:
            if reason := accountant.supports(event, neighbours):
                raise ConfigError(f"accountant: {reason}")
        if adaptive and not accountant.has_filter:
            raise ConfigError(
                "accountant",
                accountant.name,
                "rdp (or gdp, zcdp for Gaussians without sampling) where searched keys change noise, "
                "sampling or rounds",
                "what a trial releases then follows from earlier trials, and the accountant has no filter",
            )

    def epsilon_of(self, history: Composition) -> float:
        """Return ε of one client's releases; an adaptive search asks its filter."""
        if not history:
            return 0.0
        if not self.adaptive:
            return self.accountant.epsilon_of(history, self.delta, self.neighbours)
        total = self._filter()
        for released, count in history.items():
            total.add(released, np.zeros(1, dtype=int), count)
        return total.worst(self.delta)

    def spent(self, ledger: SearchLedger) -> float:
        """Return ε of the client with the largest cost; in an adaptive search, the value of its filter."""
        return max(self.epsilon_of(history) for history in ledger.histories())

    def would_exceed(self, ledger: SearchLedger, planned: Composition) -> bool:
        """Return whether a trial in which every client may release ``planned`` might exceed the budget."""
        after = (dict(Counter(history) + Counter(planned)) for history in ledger.histories())
        return any(self.epsilon_of(history) > self.limit * _ROUNDING for history in after)

    def guaranteed(self, ledger: SearchLedger) -> float:
        """Return the ε that may be claimed.

        A filter guarantees the whole budget, not the sum so far. Without a filter, the ε of the ledger is
        the claim.
        """
        spent = self.spent(ledger)
        if not self.adaptive:
            return spent
        return self.limit if spent <= self.limit * _ROUNDING else float("inf")

    def trade_off(self, ledger: SearchLedger) -> TradeOff:
        """Return the trade-off curve of an attack that sees every trial."""
        if not self.adaptive:
            deltas = [np.zeros_like(EPSILONS)]
            for history in filter(None, ledger.histories()):
                deltas.append(self.accountant.deltas_of(history, EPSILONS, self.neighbours))
            return trade_off(np.max(deltas, axis=0))
        if math.isinf(self.guaranteed(ledger)):
            return trade_off(np.ones_like(EPSILONS))
        return trade_off(self._filter().deltas_within(EPSILONS, self.limit, self.delta))

    def _filter(self) -> RunningTotal:
        """Return the filter of one client that has spent nothing yet."""
        event = max(self.first, key=lambda e: self.first[e])
        total = self.accountant.filter(1, self.neighbours, event, self.limit, self.delta)
        assert total is not None  # the constructor refuses an accountant without a filter
        return total

    def refuse_too_small(self, planned: Composition) -> None:
        """Raise ConfigError where the budget does not allow a single trial."""
        if self.would_exceed(SearchLedger(self.neighbours), planned):
            needed = self.epsilon_of(planned)
            raise ConfigError(
                EPSILON,
                self.limit,
                f">= {digits_up(needed)}, the cost of a single trial as planned",
            )

    def trials_allowed(self, planned: Composition, at_most: int) -> int:
        """Return how many trials that all release ``planned`` the budget allows, up to ``at_most``.

        The count begins with an empty ledger, so trials that were made already are among them.
        """

        def after(trials: int) -> float:
            return self.epsilon_of({event: trials * count for event, count in planned.items()})

        return most_steps(after, self.limit * _ROUNDING, at_most, at_most)

    def describe(self) -> str:
        """Describe in a line how trials are composed."""
        if not self.adaptive:
            return (
                f"{self.accountant.describe()}; all trials have the same events, fixed in advance"
            )
        return (
            f"{self.accountant.describe()}; a filter with one order fixed in advance, as searched keys "
            "change what a trial releases"
        )
