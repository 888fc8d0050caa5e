"""A running total for accountants that account for a whole composition at once (PLD, PRV).

One ε takes milliseconds to a second, so the total asks for few of them. Clients with the same history share
one ε. The question "does one more draw fit?" is answered from an allowance: the number of further draws that
are known to fit. The allowance is computed again only when it is used up, or when the event changes.

With few distinct events everything is exact. With many, the composition on the grid of
:mod:`fedpriv.privacy.core.grid` decides. It costs at least as much as the real one, and ``epsilon`` is never
above the ε that the decision was based on.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import UnsupportedEventError

from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants.base import Accountant, Composition, Compositions, RunningTotal
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.search import MANY_STEPS
from fedpriv.privacy.core.client_groups import ClientGroups, objects
from fedpriv.privacy.core.events import described_counts, parse_counts
from fedpriv.privacy.core.grid import FEW, gridded, on_grid, weaker_event
from fedpriv.privacy.core.rdp import without_noise
from fedpriv.privacy.core.trade_off import profile_of

# An allowance looks ahead by this many draws plus twice as many as were already served. Where σ soon differs
# again, looking further ahead is wasted.
_AHEAD = 4
_EPSILONS_KEPT = 256
_MANY_KINDS = 100  # kinds of draws from which on one ε takes a second or more
_LONG = 30  # kinds of draws on the grid beyond which a forecast is only a bound
_SHOWN = 16  # largest number of histories whose quick bounds are computed while a run goes on

_RDP = RdpAccountant()

Counts = dict[dp_event.DpEvent, int]
weaker = lru_cache(maxsize=16384)(weaker_event)
"""The event on the grid; cached, because every round asks for it."""


class CompositionAccountant(Accountant):
    """Base class of accountants whose running total counts draws and accounts for the counts as a whole."""

    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return ε; with more than 200 distinct events, ε of the composition rounded to the grid.

        Raises:
            UnsupportedEventError: The accountant does not support an event under ``neighbours``.
        """
        counted = on_grid(composition)
        if not counted:
            return 0.0
        for event in counted:
            if reason := self.supports(event, neighbours):
                raise UnsupportedEventError(reason)
        if any(without_noise(event) for event in counted):
            return math.inf
        return self._epsilon_of(counted, delta, neighbours)

    def forecast(self, parts: Compositions, delta: float, neighbours: str) -> tuple[float, bool]:
        """Return ε of all parts, or the quick bound where there are many kinds of draws.

        Many kinds of draws are put on the grid while they are counted, so that few are held in memory.
        """
        total: Counts = {}
        many = False
        for part in parts:
            for event, count in part.items():
                kind = weaker(event) if many else event
                total[kind] = total.get(kind, 0) + count
                if not many and len(total) > FEW:
                    total, many = gridded(total), True
        many = len(gridded(total)) > _LONG
        bound = self.bound(total, delta, neighbours) if many else math.inf
        if math.isfinite(bound):
            return bound, True
        return self.epsilon_of(total, delta, neighbours), False

    def deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        counted = on_grid(composition)
        if not counted:
            return np.zeros_like(epsilons)
        if any(without_noise(event) for event in counted):
            return np.ones_like(epsilons)
        return self._deltas_of(counted, epsilons, neighbours)

    def _deltas_of(self, composition: Counts, epsilons: np.ndarray, neighbours: str) -> np.ndarray:
        """Return δ of a composition that is not empty, of few events, all with noise and supported."""
        return profile_of(lambda d: self.epsilon_of(composition, d, neighbours), epsilons)

    def quick_deltas(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        """Return quickly an upper bound on :meth:`deltas_of`, from RDP; 1 where RDP knows nothing."""
        if any(_RDP.supports(event, neighbours) for event in composition):
            return np.ones_like(epsilons)
        return _RDP.deltas_of(composition, epsilons, neighbours)

    @abstractmethod
    def _epsilon_of(self, composition: Counts, delta: float, neighbours: str) -> float:
        """Return ε of a composition that is not empty, of few events, all with noise and supported."""

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return quickly an upper bound on :meth:`epsilon_of`; ``inf`` where none is known."""
        return math.inf

    def running(self, clients: int, neighbours: str) -> CompositionTotal:
        return CompositionTotal(self, clients, neighbours)

    def _guess(self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str) -> int:
        """Return RDP's number of steps, which is immediate and somewhat too small."""
        if _RDP.supports(event, neighbours):
            return 1
        return _RDP.steps_allowed(event, epsilon, delta, neighbours)


@dataclass(frozen=True)
class History:
    """Draws of the clients of one group, and what is known about one further event.

    Attributes:
        draws: Number of draws of each event.
        limit: Event, ε and δ of the allowance; None without an allowance.
        left: Number of further draws of that event that are known to fit.
        largest: Whether no more than ``left`` draws fit.
        served: Number of draws since the allowance was found.
    """

    draws: Counts
    limit: tuple[dp_event.DpEvent, float, float] | None = None
    left: int = 0
    largest: bool = False
    served: int = 0

    def kind(self, event: dp_event.DpEvent) -> dp_event.DpEvent:
        """Return the event as it is accounted for beside these draws: on the grid if there are many kinds."""
        few = len(self.draws) + (event not in self.draws) <= FEW
        return event if few else weaker(event)

    def with_draws(self, event: dp_event.DpEvent, count: int) -> History:
        """Return the history after ``count`` draws of ``event``."""
        draws = {**self.draws, event: self.draws.get(event, 0) + count}
        if self.limit is None or self.limit[0] != self.kind(event):
            return History(draws)
        return replace(self, draws=draws, left=self.left - count, served=self.served + count)


class CompositionTotal(RunningTotal):
    """Number of draws per event and client, accounted for by ``accountant.epsilon_of``.

    Attributes:
        accountant: The accountant whose ``epsilon_of`` accounts for the counts.
        neighbours: The neighbouring relation.
        patience: With more distinct histories than this, the accountant's quick bound stands for ε; None:
            never.
    """

    immediate = False
    patience: int | None = None

    accountant: CompositionAccountant

    def __init__(self, accountant: CompositionAccountant, clients: int, neighbours: str):
        self.accountant, self.neighbours = accountant, neighbours
        self._groups = ClientGroups(clients, objects([History({})]))
        self._kinds: set[dp_event.DpEvent] = set()
        self._known_epsilons: dict[tuple[frozenset, float], float] = {}
        self._tightness = 1.0  # ρ of the last ε ÷ ρ of its quick bound

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if not count or not len(clients):
            return
        self._kinds.add(event)
        self._groups.charge(
            event,
            clients,
            count,
            lambda histories: objects(history.with_draws(event, count) for history in histories),
        )

    def _histories(self) -> list[Counts]:
        """Return the distinct draws of clients, of many kinds of draws on the grid."""
        return [on_grid(history.draws) for history in self._groups.distinct]

    @property
    def slow(self) -> bool:
        """True if there are so many kinds of draws that one ε takes a second or more.

        The answer depends on the draws alone, so that a resumed run answers alike.
        """
        return len(self._kinds) > _MANY_KINDS

    def bound(self, delta: float) -> float:
        histories = self._histories()
        if len(histories) > _SHOWN:
            return math.inf
        return max(self._bound(history, delta) for history in histories)

    def share_of(self, epsilon: float, delta: float) -> float | None:
        """Return an estimate of the share of the budget that the worst client has spent.

        The estimate treats ε as that of a zCDP mechanism, whose ρ adds up. It takes ρ from the quick bound,
        and corrects it by the ratio of the last ε to its own quick bound.
        """
        bound = self.bound(delta)
        if math.isinf(bound):
            return None
        return min(1.0, self._tightness * _rho(bound, delta) / _rho(epsilon, delta))

    def epsilon(self, delta: float) -> np.ndarray:
        histories = self._histories()
        epsilon_of = self._epsilon_of if self._few(largest(histories)) else self._bound
        return self._groups.spread(np.array([epsilon_of(draws, delta) for draws in histories]))

    def worst(self, delta: float) -> float:
        """Return ε of the worst client, computing as few ε as the quick bounds allow."""
        histories = largest(self._histories())
        if not self._few(histories):
            return max(self._bound(history, delta) for history in histories)
        worst = 0.0
        bounds = [self._bound(history, delta) for history in histories]
        # Histories are taken from the largest bound down. A bound is never below its ε, so the
        # search may stop at the first bound that the worst ε so far has reached.
        for i in np.argsort(bounds)[::-1]:
            if bounds[i] <= worst:  # neither this history nor a later one costs more
                break
            worst = max(worst, self._epsilon_of(histories[i], delta))
        if 0 < max(bounds) < math.inf:
            self._tightness = min(1.0, _rho(worst, delta) / _rho(max(bounds), delta))
        return worst

    def _few(self, histories: list[Counts]) -> bool:
        return self.patience is None or len(histories) <= self.patience

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        histories = largest(self._histories())
        accountant = self.accountant
        deltas_of = accountant.deltas_of if self._few(histories) else accountant.quick_deltas
        return np.max(
            [deltas_of(history, epsilons, self.neighbours) for history in histories], axis=0
        )

    @property
    def bounded(self) -> bool:
        """True if there are so many histories that the quick bound stands for ε."""
        return not self._few(largest(self._histories()))

    def _bound(self, history: Counts, delta: float) -> float:
        return self.accountant.bound(history, delta, self.neighbours) if history else 0.0

    def _epsilon_of(self, history: Counts, delta: float) -> float:
        key = (frozenset(history.items()), delta)
        if key not in self._known_epsilons:
            if len(self._known_epsilons) >= _EPSILONS_KEPT:
                self._known_epsilons.clear()
            self._known_epsilons[key] = self.accountant.epsilon_of(history, delta, self.neighbours)
        return self._known_epsilons[key]

    def would_exceed(
        self,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        clients: np.ndarray | None = None,
    ) -> np.ndarray:
        groups = self._groups
        asked = (
            np.arange(len(groups.sizes)) if clients is None else np.unique(groups.group_of[clients])
        )
        exceeds = np.zeros(len(groups.sizes), dtype=bool)
        for group in asked[groups.sizes[asked] > 0].tolist():
            history = groups.values[group]
            limit = (history.kind(event), epsilon, delta)
            if history.limit != limit:
                history = replace(history, limit=limit, left=0, largest=False, served=0)
            if history.left < count and not history.largest:
                history = self._allowed(history, event, count)
            groups.values[group] = history
            exceeds[group] = history.left < count
        return exceeds[groups.group_of if clients is None else groups.group_of[clients]]

    def _allowed(self, history: History, event: dp_event.DpEvent, count: int) -> History:
        """Return the history with the number of further draws that fit, of ``count`` or a few more."""
        assert history.limit is not None
        (_, epsilon, delta), draws = history.limit, history.draws
        only_event = set(draws) <= {event}
        at_most = MANY_STEPS if only_event else max(count, _AHEAD + 2 * history.served)
        if not only_event:  # far from the budget a quick bound decides
            counts = {**draws, event: draws.get(event, 0) + at_most}
            if self.accountant.bound(counts, delta, self.neighbours) <= epsilon:
                return replace(history, left=at_most, largest=False)
        left = self.accountant.further_steps(
            draws, event, epsilon, delta, self.neighbours, at_most=at_most
        )
        return replace(history, left=left, largest=left < at_most)

    def agrees_with(self, other: Self, delta: float) -> bool:
        pairs = zip(*self._groups.pairs(other._groups), strict=True)
        return all(mine.draws == its.draws for mine, its in pairs)

    def state_dict(self) -> dict[str, object]:
        return {
            "kinds": described_counts(dict.fromkeys(self._kinds, 1)),
            "groups": self._groups.state_dict(
                lambda histories: [described_counts(h.draws) for h in histories]
            ),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._known_epsilons = {}
        self._kinds = set(parse_counts(state["kinds"]))
        self._groups.load_state_dict(
            state["groups"],
            lambda histories: objects(History(parse_counts(draws)) for draws in histories),
        )


def _rho(epsilon: float, delta: float) -> float:
    """Return ρ of the zCDP mechanism whose ε at δ is ``epsilon``: ε = ρ + 2 (ρ log(1/δ))^(1/2).

    The conversion is proposition 1.3 of Bun & Steinke 2016, solved for ρ.
    """
    log = -math.log(delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def largest(histories: list[Counts]) -> list[Counts]:
    """Return the histories that no other history contains. The worst client is among them."""
    largest_histories: list[Counts] = []
    for history in sorted(histories, key=lambda history: -sum(history.values())):
        contained = (
            all(larger.get(event, 0) >= count for event, count in history.items())
            for larger in largest_histories
        )
        if not any(contained):
            largest_histories.append(history)
    return largest_histories
