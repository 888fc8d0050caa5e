"""The interface of all accountants and of their running totals.

The tests in ``tests/privacy/accountants`` run one suite of laws over every accountant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.accountants.search import MANY_STEPS, most_steps
from fedpriv.privacy.core.trade_off import profile_of

Composition = Mapping[dp_event.DpEvent, int]
"""Number of draws of each event. The order of the draws does not matter."""

Compositions = Iterable[Composition]
"""Compositions that follow one another, given one by one so that they need not all be held in memory."""


class CannotAccount(FedprivError):
    """Error for releases whose privacy cost is beyond the numerics of an accountant.

    It is raised before the first round.
    """

    exit_status = 2


class RunningTotal(ABC):
    """Privacy cost of every client so far. There is one total for each run and each view of the budget.

    Attributes:
        immediate: Whether :meth:`epsilon` is fast enough to be asked after every round.
    """

    immediate = True

    @property
    def slow(self) -> bool:
        """True if :meth:`epsilon` has become so slow that it is asked even more seldom.

        A total that is :attr:`immediate` is never slow.
        """
        return False

    def bound(self, delta: float) -> float:
        """Return an upper bound on ε of the worst client quickly; ``inf`` where none is known.

        The default is :meth:`worst` itself. A total whose ε takes long overrides this.
        """
        return self.worst(delta)

    @abstractmethod
    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        """Charge ``count`` independent draws of ``event`` to each of the ``clients``.

        Args:
            event: The event of one draw.
            clients: Indices of the clients [m].
            count: How often each of these clients made the draw.
        """

    @abstractmethod
    def epsilon(self, delta: float) -> np.ndarray:
        """Return ε at ``delta`` of every client [K]."""

    def worst(self, delta: float) -> float:
        """Return ε at ``delta`` of the worst client."""
        return float(self.epsilon(delta).max())

    def share_of(self, epsilon: float, delta: float) -> float | None:
        """Return the share of the budget that the worst client has spent, from 0 to 1.

        The share grows linearly in the rounds at constant noise, whatever the growth of ε. The default is
        None.

        Args:
            epsilon: ε of the budget.
            delta: δ of the budget.

        Returns:
            The share, or None where computing it would take long.
        """
        return None

    @abstractmethod
    def would_exceed(
        self,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        clients: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return for each client whether ``count`` more draws of ``event`` would cost more than ``epsilon``.

        Args:
            event: The event of one further draw.
            count: The number of further draws.
            epsilon: ε of the budget.
            delta: δ of the budget.
            clients: Indices of the clients to answer for [m]; None for all clients.

        Returns:
            A boolean mask [m], or [K] for all clients.
        """

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Return a δ that holds for every client at each of ``epsilons``, which ascend.

        The default is a step function of a few values of δ
        (:func:`fedpriv.privacy.core.trade_off.profile_of`).
        """
        return profile_of(self.worst, epsilons)

    def deltas_within(self, epsilons: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
        """Return δ at each of ``epsilons`` of everything that a filter of the budget (ε, δ) lets through.

        The default is all that (ε, δ) itself says: δ from ε on, and 1 below.

        Args:
            epsilons: Where δ is asked for, ascending [n].
            epsilon: ε of the budget.
            delta: δ of the budget.
        """
        return np.where(epsilons >= epsilon, delta, 1.0)

    def best_order(self, delta: float) -> float | None:
        """Return the Rényi order behind ε of the worst client; None, the default, where ε has none."""
        return None

    def agrees_with(self, other: Self, delta: float) -> bool:
        """Return whether both totals charge every client the same, up to the rounding of sums.

        Args:
            other: A total of the same class.
            delta: δ at which the default compares ε of every client. Totals that can compare what they have
                counted do not use it.
        """
        return alike(self.epsilon(delta), other.epsilon(delta))

    def filter_words(self) -> str:
        """Describe how this total guards a budget while the noise adapts; empty if it does not."""
        return ""

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """Return the state for a checkpoint: plain values and tensors."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state that :meth:`state_dict` returned."""


def alike(charged: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays of sums are equal up to the rounding of many additions."""
    return bool(np.allclose(charged, other, rtol=1e-9, atol=0.0))


class Accountant(ABC):
    """The settings of one way to account for events.

    An accountant answers questions about a complete composition (:meth:`epsilon_of`) and makes the running
    total of a run (:meth:`running`). A noise multiplier in an event is noise ÷ sensitivity under the
    neighbouring relation that the method is given.

    Attributes:
        name: Name of the accountant in messages and in the ledger.
        has_filter: Whether :meth:`filter` can guard a run whose events are chosen while it goes.

    Example:
        >>> from fedpriv.privacy.accountants import GdpAccountant
        >>> from fedpriv.privacy.core.sampling import PoissonSampling
        >>> everyone = PoissonSampling(sample_rate=1.0).event(noise_multiplier=2.0)
        >>> round(GdpAccountant().epsilon_of({everyone: 1}, 1e-5, "add_or_remove"), 3)
        1.993
        >>> GdpAccountant().steps_allowed(everyone, epsilon=8.0, delta=1e-5, neighbours="add_or_remove")
        11
    """

    name: str
    has_filter = False

    @abstractmethod
    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        """Return None if the accountant can account for ``event``, else the reason in words.

        Args:
            event: The event of one draw.
            neighbours: The neighbouring relation.
        """

    @abstractmethod
    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return ε of a composition that is fixed in advance.

        Args:
            composition: Number of draws of each event.
            delta: δ, in (0, 1).
            neighbours: The neighbouring relation, one of :data:`fedpriv.privacy.core.names.RELATIONS`.

        Returns:
            ε at δ; ``inf`` where a draw has no noise.
        """

    def deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        """Return δ of a composition that is fixed in advance at each of ``epsilons``.

        The default is a step function of a few values of δ
        (:func:`fedpriv.privacy.core.trade_off.profile_of`).

        Args:
            composition: Number of draws of each event.
            epsilons: Where δ is asked for, ascending [n].
            neighbours: The neighbouring relation.

        Returns:
            δ [n], each of which holds together with its ε.
        """
        return profile_of(lambda d: self.epsilon_of(composition, d, neighbours), epsilons)

    def forecast(self, parts: Compositions, delta: float, neighbours: str) -> tuple[float, bool]:
        """Return ε of all parts together, and whether this ε is only an upper bound.

        The default is exact: it adds up the parts and calls :meth:`epsilon_of`. An accountant for which that
        takes long overrides this and returns a bound.

        Args:
            parts: Compositions that follow one another.
            delta: δ.
            neighbours: The neighbouring relation.
        """
        total: Counter[dp_event.DpEvent] = Counter()
        for part in parts:
            total.update(part)
        return self.epsilon_of(total, delta, neighbours), False

    def epsilons_after(self, parts: Compositions, delta: float, neighbours: str) -> list[float]:
        """Return ε after each part, for the sum of all parts so far."""
        total: Counter[dp_event.DpEvent] = Counter()
        epsilons = []
        for part in parts:
            total.update(part)
            epsilons.append(self.epsilon_of(total, delta, neighbours))
        return epsilons

    @abstractmethod
    def running(self, clients: int, neighbours: str) -> RunningTotal:
        """Return a new running total for a composition that is fixed in advance.

        Args:
            clients: Number of clients K.
            neighbours: The neighbouring relation.
        """

    def filter(
        self,
        clients: int,
        neighbours: str,
        first: dp_event.DpEvent,
        epsilon: float,
        delta: float,
    ) -> RunningTotal | None:
        """Return a privacy filter: a total that is valid when events are chosen as the run goes.

        Args:
            clients: Number of clients K.
            neighbours: The neighbouring relation.
            first: The event of the first draw, which may decide about settings of the filter.
            epsilon: ε of the budget.
            delta: δ of the budget.

        Returns:
            The filter, or None unless ``has_filter``.
        """
        return None

    def further_steps(
        self,
        composition: Composition,
        event: dp_event.DpEvent,
        epsilon: float,
        delta: float,
        neighbours: str,
        at_most: int = MANY_STEPS,
    ) -> int:
        """Return how many draws of ``event`` fit within the budget after ``composition``.

        Args:
            composition: The draws so far.
            event: The event of one further draw.
            epsilon: ε of the budget.
            delta: δ of the budget.
            neighbours: The neighbouring relation.
            at_most: The largest answer. With a smaller limit than the default the limit is tried first.
        """

        def epsilon_after(steps: int) -> float:
            counts = dict(composition)
            counts[event] = counts.get(event, 0) + steps
            return self.epsilon_of(counts, delta, neighbours)

        start = self._guess(event, epsilon, delta, neighbours) if at_most == MANY_STEPS else at_most
        return most_steps(epsilon_after, epsilon, at_most, start)

    def _guess(self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str) -> int:
        """Return the number of steps at which the search of :meth:`further_steps` begins; here always 1.

        A slow accountant overrides this with a fast estimate, which changes the time that the search takes.
        """
        return 1

    def steps_allowed(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str
    ) -> int:
        """Return how many draws of ``event`` cost at most ``epsilon`` at ``delta``.

        Args:
            event: The event of one draw.
            epsilon: ε of the budget.
            delta: δ of the budget.
            neighbours: The neighbouring relation.
        """
        return self.further_steps({}, event, epsilon, delta, neighbours)

    @abstractmethod
    def describe(self) -> str:
        """Describe the settings for the privacy statement."""


class PublishedAccountant:
    """The option ``accountant=published``: placeholder for the accountant of the algorithm's claim.

    It goes with ``budget_view=published``. The claim of an algorithm names its own accountant; see
    :mod:`fedpriv.privacy.mechanisms.claims`.
    """
