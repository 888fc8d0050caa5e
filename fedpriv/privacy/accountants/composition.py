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
from collections.abc import Callable
from typing import Self

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import UnsupportedEventError

from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants.base import Accountant, Composition, Compositions, RunningTotal
from fedpriv.privacy.accountants.histories import Counts, Histories, weaker
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.search import MANY_STEPS
from fedpriv.privacy.core.alike import AlikeRows
from fedpriv.privacy.core.columns import each_client, of_groups
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.grid import FEW, gridded, on_grid
from fedpriv.privacy.core.rdp import without_noise
from fedpriv.privacy.core.trade_off import profile_of

# An allowance looks ahead by this many draws plus twice as many as were already served. Where σ soon differs
# again, looking further ahead is wasted.
_AHEAD = 4
_EPSILONS_KEPT = 256
_MANY_KINDS = 100  # kinds of draws from which on one ε takes a second or more
_LONG = 30  # kinds of draws on the grid beyond which a forecast is only a bound
_SHOWN = 16  # largest number of histories whose quick bounds are computed while a run goes on

# How well the allowance of a client is known.
_UNKNOWN, _AT_LEAST, _EXACTLY = 0, 1, 2
_RDP = RdpAccountant()
# Columns of an allowance: id of its event, draws left, how well it is known, draws since the event was set.
_FOR, _LEFT, _KNOWN, _SERVED = range(4)
_COLUMNS = {"_for": np.int64, "_left": np.int64, "_known": np.int8, "_served": np.int64}
"""Names and types of these columns in checkpoints."""


class CompositionAccountant(Accountant):
    """Base class of accountants whose running total counts draws and accounts for the counts as a whole."""

    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return ε; with more than 24 distinct events, ε of the composition rounded to the grid.

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
        self._histories = Histories(clients)
        self._known_epsilons: dict[tuple[frozenset, float], float] = {}
        self._tightness = 1.0  # ρ of the last ε ÷ ρ of its quick bound
        # The allowance of a client: this many more draws of one event, or of a cheaper one, fit within the
        # budget (ε, δ) = _limit.
        self._limit: tuple[float, float] | None = None
        self._ids: dict[tuple[dp_event.DpEvent, bool], int] = {}  # (event, not on the grid) → id
        self._allowances = AlikeRows(clients, np.array([-1, 0, _UNKNOWN, 0]))

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if not count or not len(clients):
            return
        self._histories.add(event, clients, count)
        # An exact allowance covers its event only. An allowance on the grid covers every event that rounds to
        # its event, and cheaper events. After a cheaper draw more may be left than the allowance says.
        same_ids = [self._ids.get((event, True), -2), self._ids.get((weaker(event), False), -2)]
        covering_ids = [*same_ids, *self._covering(event)]

        def charged(allowances: np.ndarray) -> np.ndarray:
            covered = np.isin(allowances[:, _FOR], covering_ids)
            cheaper = ~np.isin(allowances[:, _FOR], same_ids)
            allowances[:, _LEFT] -= count
            allowances[:, _SERVED] += count
            allowances[cheaper, _KNOWN] = np.minimum(allowances[cheaper, _KNOWN], _AT_LEAST)
            allowances[~covered, _KNOWN] = _UNKNOWN
            return allowances

        self._allowances.change(clients, charged)

    @property
    def slow(self) -> bool:
        """True if there are so many kinds of draws that one ε takes a second or more.

        The answer depends on the draws alone, so that a resumed run answers alike.
        """
        return self._histories.kinds > _MANY_KINDS

    def bound(self, delta: float) -> float:
        histories = self._histories.distinct()
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
        histories, group_of = self._histories.groups()
        epsilon_of = self._epsilon_of if self._few(largest(histories)) else self._bound
        return np.array([epsilon_of(history, delta) for history in histories])[group_of]

    def worst(self, delta: float) -> float:
        """Return ε of the worst client, computing as few ε as the quick bounds allow."""
        histories = largest(self._histories.distinct())
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
        histories = largest(self._histories.distinct())
        accountant = self.accountant
        deltas_of = accountant.deltas_of if self._few(histories) else accountant.quick_deltas
        return np.max(
            [deltas_of(history, epsilons, self.neighbours) for history in histories], axis=0
        )

    @property
    def bounded(self) -> bool:
        """True if there are so many histories that the quick bound stands for ε."""
        return not self._few(largest(self._histories.distinct()))

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
        aim = self._aim_at(event, epsilon, delta, clients)
        allowances = self._allowances.distinct
        sufficient = (allowances[:, _LEFT] >= count) & (allowances[:, _KNOWN] != _UNKNOWN)
        exact = (allowances[:, _KNOWN] == _EXACTLY) & (allowances[:, _FOR] == aim)
        unresolved_rows = ~sufficient & ~exact
        if unresolved_rows.any():
            everyone = np.arange(self._histories.clients) if clients is None else clients
            index = self._allowances.index(everyone)
            unresolved = everyone[unresolved_rows[index]]
            index = index[unresolved_rows[index]]
            histories, group_of = self._histories.groups(unresolved)
            # Clients that share one history and one allowed event are looked at together.
            ids, id_of_row = np.unique(allowances[:, _FOR], return_inverse=True)
            pair_of = group_of * len(ids) + id_of_row[index]
            for pair in np.unique(pair_of).tolist():
                same = pair_of == pair
                served = int(allowances[np.unique(index[same]), _SERVED].max())
                allowed_event, history = int(ids[pair % len(ids)]), histories[pair // len(ids)]
                allowance = self._allow(
                    history, allowed_event, served, event, aim, count, (epsilon, delta)
                )
                self._allowances.change(unresolved[same], allowance)
        exceeds = self._allowances.distinct[:, _LEFT] < count
        return self._allowances.spread(exceeds, clients)

    def _allow(
        self,
        history: Counts,
        event_id: int,
        served: int,
        event: dp_event.DpEvent,
        aim: int,
        count: int,
        budget: tuple[float, float],
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Find the allowance of clients that share one history and one allowed event.

        If their allowance is for an event that costs more than ``event``, that one is extended first. Where
        this is not enough for ``count`` draws, the allowance becomes one for ``event``.

        Args:
            history: Their draws.
            event_id: Id of their allowed event.
            served: Largest number of draws since that event was set.
            event: Event of the further draws.
            aim: Its id.
            count: Number of further draws.
            budget: ε and δ.

        Returns:
            Function that writes the allowance into their rows.
        """
        moved = False
        if event_id != aim:
            costly_event = next(
                kind for (kind, _), known_id in self._ids.items() if known_id == event_id
            )
            allowed, exact = self._further(history, costly_event, count, *budget, served)
            moved = allowed < count
        if event_id == aim or moved:
            allowed, exact = self._further(history, event, count, *budget, 0 if moved else served)

        def written(allowances: np.ndarray) -> np.ndarray:
            if moved:
                allowances[:, _FOR], allowances[:, _SERVED] = aim, 0
            allowances[:, _LEFT] = allowed
            allowances[:, _KNOWN] = _EXACTLY if exact else _AT_LEAST
            return allowances

        return written

    def _aim_at(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, clients: np.ndarray | None
    ) -> int:
        """Make the allowances of ``clients`` apply to ``event`` and return the id of ``event``.

        An allowance for an event that costs at least as much is kept. An allowance for any other event is
        forgotten.
        """
        if self._limit != (epsilon, delta):
            self._limit = (epsilon, delta)
            self._allowances.change(None, _unknown)
        exact = self._histories.kinds_with(event) <= FEW
        aim = (event if exact else weaker(event), exact)
        if aim not in self._ids:  # ids that no allowance uses are never looked up again
            used = set(self._allowances.distinct[:, _FOR].tolist())
            self._ids = {
                known: known_id for known, known_id in self._ids.items() if known_id in used
            }
            self._ids[aim] = 1 + max(used)
        event_id = self._ids[aim]
        usable_ids = [event_id] if exact else [event_id, *self._covering(event)]

        def usable(allowances: np.ndarray) -> np.ndarray:
            outdated = ~np.isin(allowances[:, _FOR], usable_ids)
            for column, value in ((_FOR, event_id), (_KNOWN, _UNKNOWN), (_SERVED, 0)):
                allowances[outdated, column] = value
            return allowances

        if not np.isin(self._allowances.distinct[:, _FOR], usable_ids).all():
            self._allowances.change(clients, usable)
        return event_id

    def _covering(self, event: dp_event.DpEvent) -> list[int]:
        """Return the ids of the events on the grid that cost at least as much as ``event``."""
        return [
            event_id
            for (known_event, exactly), event_id in self._ids.items()
            if not exactly and _costs_more(known_event, weaker(event))
        ]

    def _further(
        self,
        history: Counts,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        served: int,
    ) -> tuple[int, bool]:
        """Return how many more draws of ``event`` fit, and whether that number is the largest."""
        exact = self._histories.kinds_with(event) <= FEW
        only_event = exact and set(history) <= {event}
        at_most = MANY_STEPS if only_event else max(count, _AHEAD + 2 * served)
        base, charged = (history, event) if exact else (gridded(history), weaker(event))
        if not only_event:  # far from the budget a quick bound decides
            counts = dict(base)
            counts[charged] = counts.get(charged, 0) + at_most
            if self.accountant.bound(counts, delta, self.neighbours) <= epsilon:
                return at_most, False
        allowed = self.accountant.further_steps(
            base, charged, epsilon, delta, self.neighbours, at_most=at_most
        )
        return allowed, allowed < at_most

    def agrees_with(self, other: Self, delta: float) -> bool:
        return self._histories.same_draws(other._histories)

    def state_dict(self) -> dict[str, object]:
        return {
            "histories": self._histories.state_dict(),
            "limit": self._limit,
            "ids": [
                (describe_event(event), exactly, event_id)
                for (event, exactly), event_id in self._ids.items()
            ],
            **self._state_of_allowances(),
        }

    def _state_of_allowances(self) -> dict[str, object]:
        rows, index = self._allowances.distinct, self._allowances.index()
        return {
            name: of_groups(rows[:, column].astype(kind), index)
            for column, (name, kind) in enumerate(_COLUMNS.items())
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._histories.load_state_dict(state["histories"])
        self._known_epsilons = {}
        self._limit = state["limit"]
        self._ids = {
            (parse_event(text), exactly): event_id for text, exactly, event_id in state["ids"]
        }
        of_clients = [each_client(state[name]).astype(np.int64) for name in _COLUMNS]
        self._allowances.load_rows(np.stack(of_clients, axis=1))


def _unknown(allowances: np.ndarray) -> np.ndarray:
    allowances[:, _KNOWN] = _UNKNOWN
    return allowances


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


def _costs_more(costly: dp_event.DpEvent, event: dp_event.DpEvent) -> bool:
    """Return whether ``costly`` costs at least as much as ``event``.

    Only Gaussians on the same kind of lot are compared: the first must have no more noise than the second.
    """
    if type(costly) is not type(event):
        return False
    if isinstance(event, dp_event.GaussianDpEvent):
        return costly.noise_multiplier <= event.noise_multiplier
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        same = costly.sampling_probability == event.sampling_probability
        return same and _costs_more(costly.event, event.event)
    return costly == event
