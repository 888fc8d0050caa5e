"""What a noise schedule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class NoiseSchedule(ABC):
    """σ_t for every round t = 0, 1, …; noise std = σ_t × sensitivity. 0 means no noise.

    A subclass gives ``noise_multiplier(t)``. One that listens to a public signal sets
    ``reads_validation`` and takes it in ``observe``; if σ can then depend on what was released,
    ``adaptive`` is true and the privacy filter is used.
    """

    reads_validation: bool = False
    adaptive: bool = False
    decays: int = 0
    """How often σ has been lowered by the signal."""

    @abstractmethod
    def noise_multiplier(self, round_index: int) -> float:
        """σ_t of the round about to run."""

    def lowest(self, round_index: int) -> float:
        """The smallest σ_t any signal could have led to: fixed in advance."""
        return self.noise_multiplier(round_index)

    def observe(self, round_index: int, validation_loss: float) -> None:
        """J(w_{t+1}), the public validation loss after round t."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
