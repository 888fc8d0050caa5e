"""A running total for accountants that can only account for a whole composition (PLD, PRV).

That takes milliseconds to a second, so an epsilon is asked for seldom: clients with the same history
share one, and "does one more draw fit?" is answered from an allowance, the number of further draws
known to fit, which is computed again only when it is used up or the events change.

With few distinct events all is exact. With many, what decides is the composition on the grid of
:mod:`fedpriv.privacy.core.grid`, which costs at least as much; ``epsilon`` is never above what was decided.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import UnsupportedEventError

from fedpriv.privacy.accountants.base import Accountant, Composition, Compositions, RunningTotal
from fedpriv.privacy.accountants.histories import Counts, Histories, weaker
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.search import MANY_STEPS
from fedpriv.privacy.core.columns import each_client, of_clients
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.grid import FEW, gridded, on_grid
from fedpriv.privacy.core.rdp import without_noise
from fedpriv.privacy.core.trade_off import profile_of

# an allowance is for so many draws, and twice as many as were served: when σ soon differs again,
# looking further ahead is wasted
_AHEAD = 4
_EPSILONS_KEPT = 256
_MANY_KINDS = 100  # of draws: an epsilon then takes a second or more
_LONG = 30  # kinds on the grid: a forecast is then a bound
_SHOWN = 16  # histories whose quick bound is worth its time while a run goes on

_UNKNOWN, _AT_LEAST, _EXACTLY = 0, 1, 2
_PER_CLIENT = ("_for", "_left", "_known", "_served")


class CompositionAccountant(Accountant):
    """An accountant whose running total keeps counts and accounts for them as a whole."""

    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
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
        """On the grid, where there are many kinds of draws, there are few of them to hold."""
        total: Counts = {}
        many = False
        for part in parts:
            for event, count in part.items():
                kind = weaker(event) if many else event
                total[kind] = total.get(kind, 0) + count
                if not many and len(total) > FEW:
                    total, many = gridded(total), True
        bound = self.bound(total, delta, neighbours) if len(total) > _LONG else math.inf
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
        """δ of a composition that is not empty, of few events, all with noise and supported."""
        return profile_of(lambda d: self.epsilon_of(composition, d, neighbours), epsilons)

    def quick_deltas(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        """What :meth:`deltas_of` does not exceed by much, at once: by RDP; 1 where RDP knows nothing."""
        if any(_RDP.supports(event, neighbours) for event in composition):
            return np.ones_like(epsilons)
        return _RDP.deltas_of(composition, epsilons, neighbours)

    @abstractmethod
    def _epsilon_of(self, composition: Counts, delta: float, neighbours: str) -> float:
        """ε of a composition that is not empty, of few events, all with noise and supported."""

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        """A number :meth:`epsilon_of` does not exceed, at once; ``inf`` where none is known."""
        return math.inf

    def running(self, clients: int, neighbours: str) -> CompositionTotal:
        return CompositionTotal(self, clients, neighbours)

    def _guess(self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str) -> int:
        """RDP's answer, which is immediate and somewhat too small."""
        rdp = RdpAccountant()
        if rdp.supports(event, neighbours):
            return 1
        return rdp.steps_allowed(event, epsilon, delta, neighbours)


_RDP = RdpAccountant()


class CompositionTotal(RunningTotal):
    """Counts per event and client, accounted for by ``accountant.epsilon_of``."""

    immediate = False
    patience: int | None = None
    """With more distinct histories than this, clients are accounted for by the accountant's quick bound."""

    accountant: CompositionAccountant

    def __init__(self, accountant: CompositionAccountant, clients: int, neighbours: str):
        self.accountant, self.neighbours = accountant, neighbours
        self._histories = Histories(clients)
        self._known_epsilons: dict[tuple[frozenset, float], float] = {}
        self._tightness = 1.0  # ρ of the last ε ÷ ρ of its quick bound
        # the allowance: so many more draws of one event (or one no weaker) fit this (ε, δ)
        self._limit: tuple[float, float] | None = None
        self._ids: dict[tuple[dp_event.DpEvent, bool], int] = {}  # (event, exactly)
        self._for = np.full(clients, -1, dtype=np.int64)  # the id of what the allowance is for
        self._left = np.zeros(clients, dtype=np.int64)
        self._known = np.zeros(clients, dtype=np.int8)  # _UNKNOWN, _AT_LEAST, _EXACTLY
        self._served = np.zeros(clients, dtype=np.int64)

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if not count or not len(clients):
            return
        self._histories.add(event, clients, count)
        # an exact allowance is for that event only; one on the grid for all it rounds to, and for what costs
        # less, of which there may then be more than it says
        alike = [self._ids.get((event, True), -2), self._ids.get((weaker(event), False), -2)]
        aims = self._for[clients]
        covered, cheaper = np.isin(aims, [*alike, *self._covering(event)]), ~np.isin(aims, alike)
        self._left[clients] -= count
        self._served[clients] += count
        self._known[clients[cheaper]] = np.minimum(self._known[clients[cheaper]], _AT_LEAST)
        self._known[clients[~covered]] = _UNKNOWN

    @property
    def slow(self) -> bool:
        """Whether the noise moved much: by the draws alone, so that a resumed run answers alike."""
        return self._histories.kinds > _MANY_KINDS

    def bound(self, delta: float) -> float:
        histories = self._histories.groups()[0]
        if len(histories) > _SHOWN:
            return math.inf
        return max(self._bound(history, delta) for history in histories)

    def share_of(self, epsilon: float, delta: float) -> float | None:
        """An estimate: as if ε were that of a zCDP mechanism, whose ρ adds up; from the quick bound, and from
        how far it was above the last ε that was computed."""
        bound = self.bound(delta)
        if math.isinf(bound):
            return None
        return min(1.0, self._tightness * _rho(bound, delta) / _rho(epsilon, delta))

    def epsilon(self, delta: float) -> np.ndarray:
        histories, group_of = self._histories.groups()
        epsilon_of = self._epsilon_of if self._few(largest(histories)) else self._bound
        return np.array([epsilon_of(history, delta) for history in histories])[group_of]

    def worst(self, delta: float) -> float:
        """ε of the worst client."""
        kept = largest(self._histories.groups()[0])
        if not self._few(kept):
            return max(self._bound(history, delta) for history in kept)
        worst = 0.0
        bounds = [self._bound(history, delta) for history in kept]
        for i in np.argsort(bounds)[::-1]:
            if bounds[i] <= worst:  # it and all that follow cost no more
                break
            worst = max(worst, self._epsilon_of(kept[i], delta))
        if 0 < max(bounds) < math.inf:
            self._tightness = min(1.0, _rho(worst, delta) / _rho(max(bounds), delta))
        return worst

    def _few(self, histories: list[Counts]) -> bool:
        return self.patience is None or len(histories) <= self.patience

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        kept = largest(self._histories.groups()[0])
        few, by = self._few(kept), self.accountant
        deltas_of = by.deltas_of if few else by.quick_deltas
        return np.max([deltas_of(own, epsilons, self.neighbours) for own in kept], axis=0)

    @property
    def bounded(self) -> bool:
        """Whether there are too many histories to account for, so that the quick bound is what is told."""
        return not self._few(largest(self._histories.groups()[0]))

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
        clients = np.arange(self._histories.clients) if clients is None else clients
        aim = self._aim_at(event, epsilon, delta, clients)
        enough = (self._left[clients] >= count) & (self._known[clients] != _UNKNOWN)
        exact = (self._known[clients] == _EXACTLY) & (self._for[clients] == aim)
        unclear = clients[~enough & ~exact]
        if len(unclear):
            histories, group_of = self._histories.groups()
            for group, other in {*zip(group_of[unclear], self._for[unclear], strict=True)}:
                alike = (group_of[unclear] == group) & (self._for[unclear] == other)
                self._allow(histories[group], unclear[alike], event, aim, count)
        return self._left[clients] < count

    def _allow(
        self,
        history: Counts,
        members: np.ndarray,
        event: dp_event.DpEvent,
        aim: int,
        count: int,
    ) -> None:
        """Find the allowance of clients with one history and one aim: if it is for an event that costs more
        than ``event``, and not enough for that one, make it one for ``event``."""
        assert self._limit is not None
        epsilon, delta = self._limit
        if (other := int(self._for[members[0]])) != aim:
            costly = next(kind for (kind, _), own in self._ids.items() if own == other)
            served = int(self._served[members].max())
            left, exact = self._further(history, costly, count, epsilon, delta, served)
            if left < count:
                self._for[members], self._served[members], other = aim, 0, aim
        if other == aim:
            served = int(self._served[members].max())
            left, exact = self._further(history, event, count, epsilon, delta, served)
        self._left[members] = left
        self._known[members] = _EXACTLY if exact else _AT_LEAST

    def _aim_at(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, clients: np.ndarray
    ) -> int:
        """Make the allowance one for ``event``, or leave it one for what costs at least as much; what was
        known for another is forgotten. Returns the id of ``event``."""
        if self._limit != (epsilon, delta):
            self._limit = (epsilon, delta)
            self._known[:] = _UNKNOWN
        few = self._few_with(event)
        aim = (event if few else weaker(event), few)
        if aim not in self._ids:  # what no client's allowance is for is never asked about again
            used = set(self._for.tolist())
            self._ids = {other: own for other, own in self._ids.items() if own in used}
            self._ids[aim] = 1 + max(used)
        identity = self._ids[aim]
        kept = [identity] if few else [identity, *self._covering(event)]
        other = clients[~np.isin(self._for[clients], kept)]
        self._for[other], self._known[other], self._served[other] = identity, _UNKNOWN, 0
        return identity

    def _covering(self, event: dp_event.DpEvent) -> list[int]:
        """The ids of what is on the grid and costs at least as much as ``event``."""
        return [
            own
            for (other, exactly), own in self._ids.items()
            if not exactly and _costs_more(other, weaker(event))
        ]

    def _few_with(self, event: dp_event.DpEvent) -> bool:
        return self._histories.kinds_with(event) <= FEW

    def _further(
        self,
        history: Counts,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        served: int,
    ) -> tuple[int, bool]:
        """(how many more draws fit, whether that is all there is)."""
        few = self._few_with(event)
        alone = few and set(history) <= {event}
        at_most = MANY_STEPS if alone else max(count, _AHEAD + 2 * served)
        base, charged = (history, event) if few else (gridded(history), weaker(event))
        if not alone:  # far from the budget a quick bound says enough
            counts = dict(base)
            counts[charged] = counts.get(charged, 0) + at_most
            if self.accountant.bound(counts, delta, self.neighbours) <= epsilon:
                return at_most, False
        left = self.accountant.further_steps(
            base, charged, epsilon, delta, self.neighbours, at_most=at_most
        )
        return left, left < at_most

    def agrees_with(self, other: Self, delta: float) -> bool:
        return self._histories.same_draws(other._histories)

    def state_dict(self) -> dict[str, object]:
        return {
            "histories": self._histories.state_dict(),
            "limit": self._limit,
            "ids": [
                (describe_event(event), exactly, identity)
                for (event, exactly), identity in self._ids.items()
            ],
            **{name: of_clients(getattr(self, name)) for name in _PER_CLIENT},
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self._histories.load_state_dict(saved["histories"])
        self._known_epsilons = {}
        self._limit = saved["limit"]
        self._ids = {(parse_event(text), exactly): own for text, exactly, own in saved["ids"]}
        for name in _PER_CLIENT:
            setattr(self, name, each_client(saved[name]))


def _rho(epsilon: float, delta: float) -> float:
    """ρ of zCDP whose ε at δ this is: ε = ρ + 2 (ρ log(1/δ))^(1/2)."""
    log = -math.log(delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def largest(histories: list[Counts]) -> list[Counts]:
    """The histories that no other one contains: one of the others cannot be the worst."""
    kept: list[Counts] = []
    for history in sorted(histories, key=lambda history: -sum(history.values())):
        if not any(_contains(other, history) for other in kept):
            kept.append(history)
    return kept


def _costs_more(costly: dp_event.DpEvent, event: dp_event.DpEvent) -> bool:
    """Whether both are Gaussians on the same kind of lot, the first with no more noise."""
    if type(costly) is not type(event):
        return False
    if isinstance(event, dp_event.GaussianDpEvent):
        return costly.noise_multiplier <= event.noise_multiplier
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        same = costly.sampling_probability == event.sampling_probability
        return same and _costs_more(costly.event, event.event)
    return costly == event


def _contains(larger: Counts, smaller: Counts) -> bool:
    return all(larger.get(event, 0) >= count for event, count in smaller.items())
