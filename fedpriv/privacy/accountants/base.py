"""The interface every accountant meets (tests/privacy/accountants runs one suite over all)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.privacy.accountants.search import MANY_STEPS, most_steps
from fedpriv.privacy.core.trade_off import profile_of

Composition = Mapping[dp_event.DpEvent, int]
"""Each event as many times as it counts."""

Compositions = Iterable[Composition]
"""Compositions that follow one another and need not all be held at once."""


class CannotAccount(FedprivError):
    """Releases whose privacy cost is beyond the numerics of an accountant; found before the first round."""

    exit_status = 2


class RunningTotal(ABC):
    """What each client has spent so far. One per run and view; its state goes into checkpoints."""

    immediate = True
    """Whether ``epsilon`` is fast enough to be asked after every round."""

    @property
    def slow(self) -> bool:
        """Whether it has become so slow that it is asked for still less often than where it is not
        :attr:`immediate`."""
        return False

    def bound(self, delta: float) -> float:
        """A number that ε of the worst client does not exceed, at once; ``inf`` where none is known."""
        return self.worst(delta)

    @abstractmethod
    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        """Charge ``count`` independent draws of ``event`` to each of ``clients`` [m] (indices)."""

    @abstractmethod
    def epsilon(self, delta: float) -> np.ndarray:
        """ε of every client [K]."""

    def worst(self, delta: float) -> float:
        """ε of the worst client."""
        return float(self.epsilon(delta).max())

    def share_of(self, epsilon: float, delta: float) -> float | None:
        """How far the worst client is on its way to ``epsilon``, 0 … 1: linear in the rounds at constant
        noise, however ε grows. ``None`` where that takes long to say."""
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
        """Would ``count`` more draws of ``event`` cost more than ``epsilon``?

        For each of ``clients`` [m] (indices), or for every client [K].
        """

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """δ at each of ``epsilons``, ascending, that holds for every client."""
        return profile_of(self.worst, epsilons)

    def deltas_within(self, epsilons: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
        """δ at each of ``epsilons``, ascending, of all that a filter of the budget (ε, δ) lets through."""
        return np.where(epsilons >= epsilon, delta, 1.0)

    def best_order(self, delta: float) -> float | None:
        """Return the Rényi order behind ε of the worst client; None where ε has none."""
        return None

    def agrees_with(self, other: Self, delta: float) -> bool:
        """Return whether both charge every client the same, up to the rounding of sums."""
        return alike(self.epsilon(delta), other.epsilon(delta))

    def filter_words(self) -> str:
        """How this total guards a budget when the noise adapts; empty if it does not."""
        return ""

    @abstractmethod
    def state_dict(self) -> dict[str, object]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


def alike(charged: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays of sums are equal up to the rounding of many additions."""
    return bool(np.allclose(charged, other, rtol=1e-9, atol=0.0))


class Accountant(ABC):
    """Settings of one way to account for events."""

    name: str
    has_filter = False
    """Whether ``filter`` can guard a run whose events are chosen as it goes."""

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse releases without a known cost, and noise that adapts where there is no filter."""
        if not parts.algorithm.private:
            return
        algorithm, settings = parts.algorithm, parts.settings
        guarded = settings.sound and settings.epsilon is not None and parts.noise_schedule.adaptive
        sampling = algorithm.sampling_of(1000)
        release = parts.release_of(sampling)
        if settings.sound:
            event, neighbours, what = release.event()[0], sampling.neighbours, "releases"
            able = [
                other.name
                for other in parts.other_accountants
                if not other.supports(event, neighbours) and (other.has_filter or not guarded)
            ]
        else:
            claim, able = algorithm.claim, ["published"]
            event, neighbours = claim.event(release.upload.joint), claim.neighbours
            what = "is charged for in the published view"
        if reason := self.supports(event, neighbours):
            others = "no accountant does while the noise adapts"
            yield ConfigError(
                f"accountant={self.name} does not fit what algorithm={algorithm.name} {what}: {reason}; "
                + (f"accountant={able[0]} does" if able else others)
            )
        if guarded and not self.has_filter:
            yield ConfigError(
                f"accountant={self.name} has no privacy filter, which a noise multiplier that adapts to "
                "released values needs; use accountant=rdp, or a schedule fixed in advance "
                "(noise_schedule=constant, exponential, step)"
            )

    @abstractmethod
    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        """``None`` if the event can be accounted for, else the reason in words."""

    @abstractmethod
    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        """ε of a fixed composition: each event as many times as it counts."""

    def deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        """δ of a fixed composition at each of ``epsilons``, ascending."""
        return profile_of(lambda d: self.epsilon_of(composition, d, neighbours), epsilons)

    def about(self, composition: Composition, delta: float, neighbours: str) -> float | None:
        """Near :meth:`epsilon_of`, where that takes many seconds; None where it does not."""
        return None

    def forecast(self, parts: Compositions, delta: float, neighbours: str) -> tuple[float, bool]:
        """(ε of all parts together, whether it is only a bound because ε takes long)."""
        total: Counter[dp_event.DpEvent] = Counter()
        for part in parts:
            total.update(part)
        return self.epsilon_of(total, delta, neighbours), False

    def epsilons_after(self, parts: Compositions, delta: float, neighbours: str) -> list[float]:
        """ε after each part."""
        total: Counter[dp_event.DpEvent] = Counter()
        found = []
        for part in parts:
            total.update(part)
            found.append(self.epsilon_of(total, delta, neighbours))
        return found

    @abstractmethod
    def running(self, clients: int, neighbours: str) -> RunningTotal:
        """A running total for a composition fixed in advance."""

    def filter(
        self,
        clients: int,
        neighbours: str,
        first: dp_event.DpEvent,
        epsilon: float,
        delta: float,
    ) -> RunningTotal | None:
        """A privacy filter: valid when events are chosen as the run goes (adaptive σ).

        ``None`` unless ``has_filter``.
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
        """How many draws of ``event`` fit after ``composition`` within ``epsilon``, up to ``at_most``."""

        def epsilon_after(steps: int) -> float:
            counts = dict(composition)
            counts[event] = counts.get(event, 0) + steps
            return self.epsilon_of(counts, delta, neighbours)

        start = self._guess(event, epsilon, delta, neighbours) if at_most == MANY_STEPS else at_most
        return most_steps(epsilon_after, epsilon, at_most, start)

    def _guess(self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str) -> int:
        """Where the search for a number of steps begins."""
        return 1

    def steps_allowed(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str
    ) -> int:
        """How many draws of ``event`` cost at most ``epsilon``."""
        return self.further_steps({}, event, epsilon, delta, neighbours)

    @abstractmethod
    def describe(self) -> str:
        """The settings in words, for the privacy statement."""
