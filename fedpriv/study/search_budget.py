"""What the trials of a search cost together, and whether one more may start.

The trials read the same data, so their releases compose, those of the losers too: the ledgers are added up
client by client. Two cases:

- **fixed**: no searched key changes what a trial releases. Every trial has the same events, known beforehand,
  and any accountant may compose them. A trial that ended early (it diverged, or failed) is charged in full:
  that it ended followed from what was released, and composition of events fixed in advance knows no such end.
- **adaptive**: σ, q or the number of rounds follow from what earlier trials released. Then a privacy filter
  guards the budget (Feldman and Zrnic 2021, theorem 4.3): its Rényi order is fixed in advance, a trial starts
  only if the sum with all it may release stays within the budget, and the budget is what may be claimed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.privacy.accountants import Accountant, RunningTotal
from fedpriv.privacy.accountants.base import Composition
from fedpriv.privacy.accountants.search import most_steps
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.store.stored_run import StoredRun

_ROUNDING = 1.0 + 1e-9  # of a sum that was planned to end at the limit
EPSILON = "hydra.sweeper.epsilon"


class SearchLedger:
    """Every release of every trial, client by client. One adjacency."""

    def __init__(self, neighbours: str):
        self.neighbours = neighbours
        self._everyone: Counter[DpEvent] = Counter()
        self._own: dict[int, Counter[DpEvent]] = {}

    def add_to_everyone(self, released: Composition) -> None:
        """Charge every client for it."""
        self._everyone.update(released)

    def with_everyone(self, released: Composition) -> SearchLedger:
        """Another one, with this charged to every client."""
        other = SearchLedger(self.neighbours)
        other._everyone = self._everyone + Counter(released)
        other._own = {client: Counter(own) for client, own in self._own.items()}
        return other

    def add(self, clients: Mapping[int, Composition]) -> None:
        """Charge each of these clients for its own."""
        for client, released in clients.items():
            self._own.setdefault(client, Counter()).update(released)

    def histories(self) -> list[dict[DpEvent, int]]:
        """The distinct compositions of clients; nothing known of single ones, what all are charged."""
        found = {frozenset((self._everyone + own).items()) for own in self._own.values()}
        found = found or {frozenset(self._everyone.items())}
        return [dict(history) for history in sorted(found, key=len, reverse=True)]


def read_trial(
    run: StoredRun, neighbours: str, planned: Composition
) -> dict[int, dict[DpEvent, int]]:
    """What the clients released in a trial, by its ledger. Raises FedprivError where that is not a ledger, or
    more than was planned, which no budget has looked at."""
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
                f"search: {run.files.ledger} has more than the plan of its trial said"
            )
    return ledger.of_client


class SearchBudget:
    """ε and δ that all trials share, fixed before the first."""

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
        """``first``: what the first trial may release; the costliest of it chooses the order of a filter."""
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
        """ε of one client: by the filter if there is one."""
        if not history:
            return 0.0
        if not self.adaptive:
            return self.accountant.epsilon_of(history, self.delta, self.neighbours)
        total = self._filter()
        for released, count in history.items():
            total.add(released, np.zeros(1, dtype=int), count)
        return total.worst(self.delta)

    def spent(self, ledger: SearchLedger) -> float:
        """ε of the client that is worst off."""
        return max(self.epsilon_of(history) for history in ledger.histories())

    def would_exceed(self, ledger: SearchLedger, planned: Composition) -> bool:
        """Whether a trial that may release ``planned`` of every client might cost more than is left."""
        after = (dict(Counter(history) + Counter(planned)) for history in ledger.histories())
        return any(self.epsilon_of(history) > self.limit * _ROUNDING for history in after)

    def guaranteed(self, ledger: SearchLedger) -> float:
        """What may be claimed: the budget where a filter guards it, else what the ledger comes to."""
        spent = self.spent(ledger)
        if not self.adaptive:
            return spent
        return self.limit if spent <= self.limit * _ROUNDING else float("inf")

    def trade_off(self, ledger: SearchLedger) -> TradeOff:
        """How well an attack can do that sees every trial; by the filter if there is one."""
        if not self.adaptive:
            found = [np.zeros_like(EPSILONS)]
            for history in filter(None, ledger.histories()):
                found.append(self.accountant.deltas_of(history, EPSILONS, self.neighbours))
            return trade_off(np.max(found, axis=0))
        if math.isinf(self.guaranteed(ledger)):
            return trade_off(np.ones_like(EPSILONS))
        return trade_off(self._filter().deltas_within(EPSILONS, self.limit, self.delta))

    def _filter(self) -> RunningTotal:
        """Of one client, with nothing spent yet."""
        event = max(self.first, key=lambda e: self.first[e])
        total = self.accountant.filter(1, self.neighbours, event, self.limit, self.delta)
        assert total is not None  # an accountant without a filter is refused
        return total

    def refuse_too_small(self, planned: Composition) -> None:
        """Raise ConfigError where not one trial fits."""
        if self.would_exceed(SearchLedger(self.neighbours), planned):
            needed = self.epsilon_of(planned)
            raise ConfigError(
                EPSILON, self.limit, f">= {needed:.4g}, the cost of a single trial as planned"
            )

    def trials_allowed(self, planned: Composition, at_most: int) -> int:
        """How many trials fit, up to ``at_most``, if all release this."""

        def after(trials: int) -> float:
            return self.epsilon_of({event: trials * count for event, count in planned.items()})

        return most_steps(after, self.limit * _ROUNDING, at_most, at_most)

    def describe(self) -> str:
        """How trials are composed, in words."""
        if not self.adaptive:
            return (
                f"{self.accountant.describe()}; all trials have the same events, fixed in advance"
            )
        return (
            f"{self.accountant.describe()}; a filter with one order fixed in advance, as searched keys "
            "change what a trial releases"
        )
