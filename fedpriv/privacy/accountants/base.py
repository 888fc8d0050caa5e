"""The interface every accountant meets (tests/privacy/accountants runs one suite over all)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from dp_accounting import dp_event


class RunningTotal(ABC):
    """What each client has spent so far. One per run and view; its state goes into checkpoints."""

    @abstractmethod
    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        """Charge ``count`` independent draws of ``event`` to each of ``clients`` [m] (indices)."""

    @abstractmethod
    def epsilon(self, delta: float) -> np.ndarray:
        """ε of every client [K]."""

    def epsilon_at_zero(self, delta: float) -> float:
        """Where ``epsilon`` starts (a filter of a fixed order does not start at 0)."""
        return 0.0

    @abstractmethod
    def would_exceed(
        self, event: dp_event.DpEvent, count: int, epsilon: float, delta: float
    ) -> np.ndarray:
        """For every client [K]: would ``count`` more draws of ``event`` cost more than ``epsilon``?"""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Accountant(ABC):
    """Settings of one way to price events."""

    name: str

    @abstractmethod
    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        """``None`` if the event can be priced, else the reason in words."""

    @abstractmethod
    def epsilon_of(
        self, composition: Mapping[dp_event.DpEvent, int], delta: float, neighbours: str
    ) -> float:
        """ε of a fixed composition: each event as many times as it counts."""

    @abstractmethod
    def running(self, clients: int, neighbours: str) -> RunningTotal:
        """A running total for a composition fixed in advance."""

    @abstractmethod
    def filter(
        self,
        clients: int,
        neighbours: str,
        first: dp_event.DpEvent,
        epsilon: float,
        delta: float,
    ) -> RunningTotal:
        """A privacy filter: valid when events are chosen as the run goes (adaptive σ)."""

    @abstractmethod
    def steps_allowed(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str
    ) -> int:
        """How many draws of ``event`` cost at most ``epsilon``."""

    @abstractmethod
    def describe(self) -> str:
        """The settings in words, for the privacy statement."""
