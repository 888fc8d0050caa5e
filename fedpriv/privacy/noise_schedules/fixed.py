"""Schedules that depend on the round alone: fixed in advance, so ordinary composition holds."""

from __future__ import annotations

from typing import Any

from fedpriv.common.fields import declared, field, number, whole
from fedpriv.privacy.noise_schedules.base import BETA, NoiseSchedule, initial_noise_multiplier


def _min_noise_multiplier() -> Any:
    return field(
        number(above=0, at_most="noise_multiplier"),
        default=1e-3,
        alias="min_noise_multiplier",
        unit="σ_min",
        help="the smallest noise multiplier",
    )


class NoNoise(NoiseSchedule):
    """σ_t = 0: nothing is private."""

    def noise_multiplier(self, round_index: int) -> float:
        return 0.0


@declared
class ConstantNoise(NoiseSchedule):
    """σ_t = σ."""

    initial: float = initial_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        return self.initial


@declared
class ExponentialNoise(NoiseSchedule):
    """σ_t = max(σ_0 β^t, σ_min)."""

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered in each round")
    minimum: float = _min_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        return max(self.initial * self.beta**round_index, self.minimum)


@declared
class StepNoise(NoiseSchedule):
    """σ_t = σ_0 β^⌊t / interval⌋, not below σ_min."""

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered after each interval")
    interval: int = field(whole(at_least=1), unit="rounds", help="rounds of the same σ")
    minimum: float = _min_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        lowered = self.initial * self.beta ** (round_index // self.interval)
        return max(lowered, self.minimum)
