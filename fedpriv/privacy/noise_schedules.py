"""Noise schedules: the noise multiplier σ_t of each round.

Rounds count from t = 0.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, ClassVar

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, number, one_of, or_null, when, whole
from fedpriv.privacy.budgeted_schedules import RecalculatedNoise, Spreading, UniformBudget
from fedpriv.privacy.mechanisms.visible import Visible, seen
from fedpriv.privacy.noise_schedule import (
    BETA,
    LossQuery,
    NoiseSchedule,
    Setting,
    initial_noise_multiplier,
)

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


# ---- Schedules that depend on the round alone: fixed in advance, so ordinary composition holds


def _min_noise_multiplier() -> Any:
    return field(
        number(above=0, at_most="noise_multiplier"),
        default=1e-3,
        alias="min_noise_multiplier",
        unit="σ_min",
        help="lower bound of the noise multiplier",
    )


class NoNoise(NoiseSchedule):
    """No noise: σ_t = 0, and nothing is private.

    Example:
        >>> NoNoise().noise_multiplier(round_index=7)
        0.0
    """

    adds_noise = False

    def noise_multiplier(self, round_index: int) -> float:
        return 0.0


@declared
class ConstantNoise(NoiseSchedule):
    """Constant noise multiplier: σ_t = σ.

    Attributes:
        initial: σ, ``noise_multiplier`` in the configuration.

    Example:
        >>> ConstantNoise(noise_multiplier=2.0).noise_multiplier(round_index=7)
        2.0
    """

    initial: float = initial_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        return self.initial


@declared
class ExponentialNoise(NoiseSchedule):
    """Exponential decay: σ_t = max(σ_0 β^t, σ_min).

    Attributes:
        initial: σ_0, ``noise_multiplier`` in the configuration.
        beta: β in (0, 1].
        minimum: σ_min, ``min_noise_multiplier`` in the configuration.

    Example:
        >>> ExponentialNoise(noise_multiplier=8.0, beta=0.5).noise_multiplier(round_index=2)
        2.0
    """

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered in each round")
    minimum: float = _min_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        return max(self.initial * self.beta**round_index, self.minimum)


@declared
class StepNoise(NoiseSchedule):
    """Decay in steps: σ_t = max(σ_0 β^⌊t / interval⌋, σ_min).

    Attributes:
        initial: σ_0, ``noise_multiplier`` in the configuration.
        beta: β in (0, 1].
        interval: Number of rounds with the same σ.
        minimum: σ_min, ``min_noise_multiplier`` in the configuration.

    Example:
        >>> StepNoise(noise_multiplier=8.0, beta=0.5, interval=10).noise_multiplier(round_index=25)
        2.0
    """

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered after each interval")
    interval: int = field(
        whole(at_least=1), unit="rounds", help="number of rounds between two changes of σ"
    )
    minimum: float = _min_noise_multiplier()

    def noise_multiplier(self, round_index: int) -> float:
        lowered = self.initial * self.beta ** (round_index // self.interval)
        return max(lowered, self.minimum)


# ---- A constant σ that follows from an ε: for the whole run, or for a single draw.


@declared
class CalibratedNoise(NoiseSchedule):
    """Constant σ that follows from an ε, for the whole run or for each draw.

        ε(σ, draws) = epsilon           or, if ``epsilon_per_draw`` is given,   ε(σ, 1) = epsilon_per_draw

    σ is the smallest, to 6 digits, that keeps to the ε. It is computed before the run, with the run's own
    accountant, sampling and clipper, so that the cost includes the queries beside the gradient. A run with ε
    per draw costs the composition of its draws.

    Attributes:
        epsilon: ε of the whole run.
        epsilon_per_draw: ε of one draw, or None.
        draws: Number of draws of a client in the run; None: the planned number.

    Example:
        >>> CalibratedNoise(epsilon=2.0).known  # σ is computed when the run is planned
        False
    """

    epsilon: float | None = field(
        when(
            lambda schedule, value: value is not None and schedule.epsilon_per_draw is None,
            number(above=0),
        ),
        default=None,
        help="ε of the whole run",
    )
    epsilon_per_draw: float | None = field(
        or_null(number(above=0)),
        default=None,
        help="ε of one release (a report, a lot); null: epsilon holds for the whole run",
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
        """Compute σ, the smallest at which what is planned keeps to ε.

        Args:
            setting: Facts about the run.

        Raises:
            ArgumentError: No σ keeps to the ε.
            ConfigError: The queries have no known cost.
        """
        solve = setting.smallest_noise_multiplier
        if self.epsilon_per_draw is None:
            assert self.epsilon is not None
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


# ---- A σ that follows a public signal


DECAY_INDICES = ("eq9", "algorithm1")
_FIRST_MEASURED = 3  # J(w_0), J(w_1), J(w_2) are infinite by definition


@declared
class ValidationDecay(NoiseSchedule):
    """Decay of σ by β after three falls of the public validation loss in a row (Adap DP-FL, eq. 9).

        σ_{t+1} = β σ_t   if J(w_{t-3}) > J(w_{t-2}) > J(w_{t-1}) > J(w_t),   else σ_t
        J(w_0) = J(w_1) = J(w_2) = ∞

    J is the validation loss of the global model on a *public* split, so reading it is free. But σ_t is then a
    function of released models, which needs a privacy filter. Algorithm 1, line 24, of the paper tests
    J(w_{t-2}) > … > J(w_{t+1}) instead, one round earlier (``decay_index: algorithm1``).

    Source: Fu, Chen, Han 2022.

    Attributes:
        initial: σ_0, ``noise_multiplier`` in the configuration.
        beta: β in (0, 1].
        decay_index: ``eq9`` or ``algorithm1``.
        decays: Number of times that σ was lowered.

    Example:
        >>> from fedpriv.privacy.mechanisms.visible import Public
        >>> schedule = ValidationDecay(noise_multiplier=8.0, beta=0.5)
        >>> for t, loss in enumerate([0.9, 0.8, 0.7, 0.6, 0.5, 0.4]):
        ...     schedule.observe(t, Public(loss))
        >>> schedule.decays, schedule.noise_multiplier(round_index=6)
        (1, 4.0)
    """

    reads_validation = True
    saved_attributes: ClassVar = {"sigma": "_sigma", "losses": "_losses", "decays": "decays"}

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered")
    decay_index: str = field(
        one_of(DECAY_INDICES),
        default="eq9",
        help=(
            "which losses are compared: those of eq. (9), or those of algorithm 1, line 24, "
            "one round earlier"
        ),
    )

    def __attrs_post_init__(self) -> None:
        self.adaptive = self.beta < 1
        self._sigma = self.initial
        self._losses: deque[float] = deque([float("inf")] * 5, maxlen=5)

    def noise_multiplier(self, round_index: int) -> float:
        return self._sigma

    def lowest(self, round_index: int) -> float:
        """Return σ_0 β^max(0, t-4), a lower bound of σ_t whatever the losses are.

        Three falls in a row need J(w_3), J(w_4) and J(w_5). σ_5 is therefore the first that can have
        decayed with ``algorithm1``, and σ_6 with ``eq9``, for which the bound is one factor β too low.

        Args:
            round_index: t = 0, 1, …
        """
        return self.initial * self.beta ** max(0, round_index - 4)

    def observe(self, round_index: int, loss: Visible) -> None:
        model_index = round_index + 1
        known = model_index >= _FIRST_MEASURED
        current_loss = seen(loss, "a noise schedule")
        self._losses.append(current_loss if known else float("inf"))
        recent = list(self._losses)
        tested = recent[:4] if self.decay_index == "eq9" else recent[1:]
        if all(a > b for a, b in itertools.pairwise(tested)):
            self.decays += 1
            self._sigma = self.initial * self.beta**self.decays  # rounds as `lowest` does
