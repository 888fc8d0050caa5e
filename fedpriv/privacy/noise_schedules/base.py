"""What a noise schedule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError


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


def initial_sigma(noise_multiplier: float) -> float:
    """σ_0, checked. Raises ArgumentError that names the option without noise."""
    try:
        return checks.number("noise_multiplier", noise_multiplier, above=0, at_most=1e6)
    except ArgumentError as error:
        hint = "no noise is noise_schedule=none"
        raise ArgumentError(error.argument, error.value, error.allowed, hint) from None
