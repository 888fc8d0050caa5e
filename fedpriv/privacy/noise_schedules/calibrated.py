"""A constant σ that follows from an ε: for the whole run, or for a single draw.

It is calibrated before anything runs, with its own accountant, sampler and clipper: what is
asked beside the gradient is in the privacy cost. σ is the smallest, to 6 digits, that keeps to ε.
"""

from __future__ import annotations

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.noise_schedules.base import NoiseSchedule, Setting


class CalibratedNoise(NoiseSchedule):
    """σ_t = σ with ε(σ, draws) = ``epsilon``, or with ε(σ, 1) = ``epsilon_per_draw`` where that is given.

    ``draws``: how many a client makes in a run; ``None``: rounds × local steps, times m/K (rounded up)
    where m of K clients are sampled. A run with ε per draw costs what its draws compose to.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        epsilon_per_draw: float | None = None,
        draws: int | None = None,
    ):
        self.epsilon = epsilon
        self.epsilon_per_draw = epsilon_per_draw
        self.draws = None if draws is None else checks.whole("draws", draws, at_least=1)
        if epsilon_per_draw is not None:
            self.epsilon_per_draw = checks.number("epsilon_per_draw", epsilon_per_draw, above=0)
            if draws is not None:
                raise ArgumentError("draws", draws, "null with epsilon_per_draw")
            if epsilon is not None and epsilon_per_draw > epsilon:
                raise ArgumentError(
                    "epsilon_per_draw",
                    epsilon_per_draw,
                    f"<= {epsilon:g}, the budget of the run",
                    "null calibrates sigma to that budget",
                )
        elif epsilon is None:
            raise ConfigError(
                "epsilon",
                None,
                "a number > 0 with noise_schedule=calibrated",
                "noise_schedule.epsilon_per_draw takes its place where each release has its own",
            )
        else:
            self.epsilon = checks.number("epsilon", epsilon, above=0)
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
