"""Schedules that depend on the round alone: fixed in advance, so ordinary composition holds."""

from __future__ import annotations

from fedpriv.common import checks
from fedpriv.privacy.noise_schedules.base import NoiseSchedule, initial_sigma


class NoNoise(NoiseSchedule):
    """σ_t = 0: nothing is private."""

    def noise_multiplier(self, round_index: int) -> float:
        return 0.0


class ConstantNoise(NoiseSchedule):
    """σ_t = σ."""

    def __init__(self, noise_multiplier: float):
        self.initial = initial_sigma(noise_multiplier)

    def noise_multiplier(self, round_index: int) -> float:
        return self.initial


class ExponentialNoise(NoiseSchedule):
    """σ_t = max(σ_0 β^t, σ_min)."""

    def __init__(self, noise_multiplier: float, beta: float, min_noise_multiplier: float = 1e-3):
        self.initial, self.beta = initial_sigma(noise_multiplier), _beta(beta)
        self.minimum = _minimum(min_noise_multiplier, self.initial)

    def noise_multiplier(self, round_index: int) -> float:
        return max(self.initial * self.beta**round_index, self.minimum)


class StepNoise(NoiseSchedule):
    """σ_t = σ_0 β^⌊t / interval⌋, not below σ_min."""

    def __init__(
        self,
        noise_multiplier: float,
        beta: float,
        interval: int,
        min_noise_multiplier: float = 1e-3,
    ):
        self.initial, self.beta = initial_sigma(noise_multiplier), _beta(beta)
        self.interval = checks.whole("interval", interval, at_least=1)
        self.minimum = _minimum(min_noise_multiplier, self.initial)

    def noise_multiplier(self, round_index: int) -> float:
        lowered = self.initial * self.beta ** (round_index // self.interval)
        return max(lowered, self.minimum)


def _beta(value: float) -> float:
    return checks.number("beta", value, above=0, at_most=1)


def _minimum(value: float, initial: float) -> float:
    return checks.not_above("min_noise_multiplier", value, "noise_multiplier", initial, above=0)
