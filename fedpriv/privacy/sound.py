"""Sound ε of a run: the privacy cost of the releases as they were, by one of four arguments.

- σ fixed in advance: the tightest accountant that covers every draw. GDP for plain Gaussians, which is exact;
  otherwise PLD where it applies; otherwise RDP.
- σ adapts and a filter guards the budget: the budget, however early the run ends.
- σ adapts within a total fixed in advance (Gaussians without sampling): the privacy cost of that total.
- σ adapts and nothing guards it: no finite ε.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError
from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants import (
    Accountant,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    RunningTotal,
)
from fedpriv.privacy.accountants.composition import CompositionTotal
from fedpriv.privacy.core.events import described_counts, parse_counts
from fedpriv.privacy.ledger import Ledger

_PATIENCE = (
    16  # histories of sampled clients whose noise also moves: each takes a while to account for
)


def tightest(event: dp_event.DpEvent, neighbours: str) -> Accountant:
    """Return the accountant with the smallest valid ε for compositions of such events.

    Args:
        event: An event like those of the run.
        neighbours: Adjacency.
    """
    accountants: tuple[Accountant, ...] = (GdpAccountant(), PldAccountant(), RdpAccountant())
    able = (a for a in accountants if not a.supports(event, neighbours))
    return next(able, RdpAccountant())


def epsilon_noised_by(by: str, ledger: Ledger, delta: float, neighbours: str) -> float | None:
    """Return the sound ε of the worst client for the part of the releases that ``by`` noised.

    The rest is left out, as if this part had been released alone.

    Args:
        by: ``client`` or ``aggregator``.
        ledger: The releases.
        delta: δ.
        neighbours: Adjacency.

    Returns:
        ε, or None if that party noised nothing.
    """
    worst = None
    for history in ledger.histories():
        composition: dict[dp_event.DpEvent, int] = {}
        for joint, count in history.items():
            if (part := joint.noised_by(by)) is not None:
                composition[part.event()] = composition.get(part.event(), 0) + count
        if composition:
            accountant = tightest(next(iter(composition)), neighbours)
            epsilon = accountant.epsilon_of(composition, delta, neighbours)
            worst = epsilon if worst is None else max(worst, epsilon)
    return worst


class SoundEpsilon(ABC):
    """The ε that may be claimed for each client.

    Attributes:
        immediate: Whether an ε is fast enough to be computed after every round.
    """

    immediate = True

    @property
    def slow(self) -> bool:
        """True if an ε is so slow that it is computed still less often."""
        return False

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        """Charge ``count`` draws. An ε that does not depend on the draws ignores them."""

    def refuse_prior(self, event: dp_event.DpEvent) -> None:
        """Raise ConfigError if a release before the run cannot be composed with those of the rounds."""

    def charge_prior(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        """Charge ``count`` draws made before the run."""
        self.add(event, clients, count)

    @abstractmethod
    def epsilon(self, delta: float) -> np.ndarray | float:
        """Return ε of every client [K], or one number that holds for all."""

    @abstractmethod
    def worst(self, delta: float) -> float:
        """Return ε of the worst client."""

    @abstractmethod
    def deltas(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        """Return δ at each of ``epsilons``, ascending, that holds for every client in a run with this δ."""

    @abstractmethod
    def reason(self) -> str:
        """Return how ε was computed, in words."""

    def counted(self) -> tuple[RunningTotal, Callable[[], RunningTotal]] | None:
        """Return the total of the draws and a function that makes an empty one, or None if there is none."""
        return None

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore nothing, unless draws are counted."""


class Composed(SoundEpsilon):
    """ε of the tightest accountant over all draws, or the enforced total where that is smaller and valid.

    Args:
        first: Event of the first round, which decides on the accountant.
        clients: K.
        neighbours: Adjacency.
        enforced: Enforced total, if the sound view is enforced; otherwise None.
        enforced_by: Accountant of the enforced total.
        lowest: Whether draws are charged at the smallest σ that the schedule could have reached.
    """

    def __init__(
        self,
        first: dp_event.DpEvent,
        clients: int,
        neighbours: str,
        enforced: RunningTotal | None,
        enforced_by: Accountant,
        lowest: bool,
    ):
        self._accountant = accountant = tightest(first, neighbours)
        self.lowest, self._neighbours = lowest, neighbours
        self._accountant_words = accountant.describe()
        if accountant.name == "rdp":
            self._accountant_words += (
                f" (PLD is tighter, but {PldAccountant().supports(first, neighbours)})"
            )
        self._valid: list[RunningTotal] = [] if enforced is None else [enforced]
        self._total: RunningTotal | None = None
        if enforced is None or enforced_by.describe() != accountant.describe():
            self._new_total = lambda: accountant.running(clients, neighbours)
            self._total = self._new_total()
            if isinstance(self._total, CompositionTotal):
                self._total.patience = _PATIENCE
            self._valid.append(self._total)
        self.immediate = all(total.immediate for total in self._valid)

    @property
    def slow(self) -> bool:
        return any(total.slow for total in self._valid)

    def refuse_prior(self, event: dp_event.DpEvent) -> None:
        if why := self._accountant.supports(event, self._neighbours):
            raise ConfigError(f"what was released before the first round has no price here: {why}")

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if self._total is not None:
            self._total.add(event, clients, count)

    def epsilon(self, delta: float) -> np.ndarray:
        return np.min([total.epsilon(delta) for total in self._valid], axis=0)

    def worst(self, delta: float) -> float:
        return min(total.worst(delta) for total in self._valid)

    def deltas(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        return self._valid[-1].deltas(epsilons)  # of the tightest accountant

    def reason(self) -> str:
        reason = self._accountant_words
        if isinstance(self._total, CompositionTotal) and self._total.bounded:
            reason = f"an upper bound by RDP, for clients with many different histories; {reason}, is tighter"
        if self.lowest:
            return f"{reason}, of the smallest sigma the schedule could have reached in each round"
        return f"{reason}; every query of each release is charged"

    def counted(self) -> tuple[RunningTotal, Callable[[], RunningTotal]] | None:
        """Return the total of the draws, or None where they are charged at the smallest σ.

        The ledger has the draws at their own σ, so the two could not be compared.
        """
        return None if self._total is None or self.lowest else (self._total, self._new_total)

    def state_dict(self) -> dict[str, object]:
        return {} if self._total is None else self._total.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        if self._total is not None:
            self._total.load_state_dict(state)


class Guarded(SoundEpsilon):
    """ε of the budget, as long as its filter kept to it. An overspent filter promises nothing.

    Args:
        guard: The filter.
        limit: ε of the budget.
    """

    def __init__(self, guard: RunningTotal, limit: float):
        self.guard, self.limit = guard, limit
        self._tolerated = limit * (
            1.0 + 1e-9
        )  # rounding of a sum that was planned to end at the limit

    def epsilon(self, delta: float) -> np.ndarray:
        return np.where(self.guard.epsilon(delta) <= self._tolerated, self.limit, np.inf)

    def worst(self, delta: float) -> float:
        return self.limit if self.guard.worst(delta) <= self._tolerated else float("inf")

    def deltas(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        if math.isinf(self.worst(delta)):
            return np.ones_like(epsilons)
        return self.guard.deltas_within(epsilons, self._tolerated, delta)

    def reason(self) -> str:
        return (
            "the whole budget of the privacy filter: sigma depends on released values, so the smaller "
            "running total may not be claimed"
        )


class Capped(SoundEpsilon):
    """Cost of all that the schedule may ever spend on one client, however early the run ends.

    Args:
        composition: Plain Gaussians, whose Σ z^-2 no run of the schedule exceeds.
        neighbours: Adjacency.
    """

    def __init__(self, composition: Mapping[dp_event.DpEvent, int], neighbours: str):
        self._composition, self._neighbours = dict(composition), neighbours
        self._accountant = GdpAccountant()

    def charge_prior(self, event: dp_event.DpEvent, clients: np.ndarray, count: int) -> None:
        """Add draws before the run, which are not part of what the schedule may spend."""
        self._composition[event] = self._composition.get(event, 0) + count

    def epsilon(self, delta: float) -> float:
        return self._accountant.epsilon_of(self._composition, delta, self._neighbours)

    def worst(self, delta: float) -> float:
        return self.epsilon(delta)

    def deltas(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        return self._accountant.deltas_of(self._composition, epsilons, self._neighbours)

    def reason(self) -> str:
        return (
            f"{self._accountant.describe()}, of all that the schedule may spend on a client in every round, "
            "because sigma depends on released values"
        )

    def state_dict(self) -> dict[str, object]:
        return {"composition": described_counts(self._composition)}

    def load_state_dict(self, state: StateDict) -> None:
        self._composition = parse_counts(state["composition"])


class Unguarded(SoundEpsilon):
    """Infinite ε: no composition theorem holds, so nothing finite may be claimed."""

    def epsilon(self, delta: float) -> float:
        return float("inf")

    def worst(self, delta: float) -> float:
        return float("inf")

    def deltas(self, epsilons: np.ndarray, delta: float) -> np.ndarray:
        return np.ones_like(epsilons)

    def reason(self) -> str:
        return (
            "sigma adapts to released values and no filter guards the sound view "
            "(budget_view=sound gives a finite value)"
        )
