"""Noise schedules: the noise multiplier σ_t of each round (t counts from 0)."""

from fedpriv.privacy.noise_schedules.base import LossQuery, NoiseSchedule, Setting
from fedpriv.privacy.noise_schedules.budgeted import RecalculatedNoise, Spreading, UniformBudget
from fedpriv.privacy.noise_schedules.calibrated import CalibratedNoise
from fedpriv.privacy.noise_schedules.fixed import (
    ConstantNoise,
    ExponentialNoise,
    NoNoise,
    StepNoise,
)
from fedpriv.privacy.noise_schedules.validation_decay import ValidationDecay

__all__ = [
    "CalibratedNoise",
    "ConstantNoise",
    "ExponentialNoise",
    "LossQuery",
    "NoNoise",
    "NoiseSchedule",
    "RecalculatedNoise",
    "Setting",
    "Spreading",
    "StepNoise",
    "UniformBudget",
    "ValidationDecay",
]
