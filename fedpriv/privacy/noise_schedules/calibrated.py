"""A constant σ that follows from an ε: for the whole run, or for a single draw.

It is calibrated before anything runs, with its own accountant, sampler and clipper: what is
asked beside the gradient is in the privacy cost. σ is the smallest, to 6 digits, that keeps to ε.
"""

from __future__ import annotations

from typing import Any

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, number, or_null, when, whole
from fedpriv.privacy.noise_schedules.base import NoiseSchedule, Setting


def _spread_over_run(part: CalibratedNoise, value: Any) -> bool:
    return value is not None and part.epsilon_per_draw is None


@declared
class CalibratedNoise(NoiseSchedule):
    """σ_t = σ with ε(σ, draws) = ``epsilon``, or with ε(σ, 1) = ``epsilon_per_draw`` where that is given.

    A run with ε per draw costs what its draws compose to.
    """

    epsilon: float | None = field(
        when(_spread_over_run, number(above=0)), default=None, help="ε of the run"
    )
    epsilon_per_draw: float | None = field(
        or_null(number(above=0)), default=None, help="ε of a single draw"
    )
    draws: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="draws of a client in a run; null: rounds × local steps, times m/K (rounded up) where m of K "
        "clients are sampled",
    )

    def __attrs_post_init__(self) -> None:
        if self.epsilon_per_draw is not None:
            if self.draws is not None:
                raise ArgumentError("draws", self.draws, "null with epsilon_per_draw")
            if self.epsilon is not None and self.epsilon_per_draw > self.epsilon:
                raise ArgumentError(
                    "epsilon_per_draw",
                    f"{self.epsilon_per_draw:g}",
                    f"<= {self.epsilon:g}, the budget of the run",
                    "null calibrates sigma to that budget",
                )
        elif self.epsilon is None:
            raise ConfigError(
                "epsilon",
                None,
                "a number > 0 with noise_schedule=calibrated",
                "noise_schedule.epsilon_per_draw takes its place where each release has its own",
            )
        self._sigma: float | None = None

    @property
    def known(self) -> bool:
        return self._sigma is not None

    def calibrate(self, setting: Setting) -> None:
        """Fix σ: the smallest at which what is planned keeps to ε."""
        solve = setting.smallest_noise_multiplier
        if self.epsilon_per_draw is None:
            self._sigma = solve(self.epsilon, self.draws)
            return
        try:
            self._sigma = solve(self.epsilon_per_draw, 1)
        except ArgumentError as error:
            raise ArgumentError(
                "epsilon_per_draw", error.value, error.allowed, error.hint
            ) from None

    def noise_multiplier(self, round_index: int) -> float:
        if self._sigma is None:
            raise RuntimeError("a calibrated schedule must be calibrated before it is used")
        return self._sigma
