"""Adap DP-FL's adaptive noise (Fu, Chen, Han 2022, eq. 9).

    σ_{t+1} = β σ_t   if J(w_{t-3}) > J(w_{t-2}) > J(w_{t-1}) > J(w_t),   else σ_t
    J(w_0) = J(w_1) = J(w_2) = ∞

J is the validation loss of the global model on a *public* split, so reading it is free; σ_t is then
a function of what was released, which takes a privacy filter. Algorithm 1, line 24, tests
J(w_{t-2}) > … > J(w_{t+1}) instead, one round earlier: ``decay_index: algorithm1``.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Any

from fedpriv.common.fields import declared, field, one_of
from fedpriv.privacy.mechanisms.visible import Visible, seen
from fedpriv.privacy.noise_schedules.base import BETA, NoiseSchedule, initial_noise_multiplier

DECAY_INDICES = ("eq9", "algorithm1")
_FIRST_MEASURED = 3  # J(w_0), J(w_1), J(w_2) are infinite by definition


@declared
class ValidationDecay(NoiseSchedule):
    """σ decays by β after three falls of the public validation loss in a row."""

    reads_validation = True

    initial: float = initial_noise_multiplier()
    beta: float = field(BETA, unit="β", help="factor by which σ is lowered")
    decay_index: str = field(
        one_of(DECAY_INDICES), default="eq9", help="which losses are compared; see the module"
    )

    def __attrs_post_init__(self) -> None:
        self.adaptive = self.beta < 1
        self._sigma = self.initial
        self._losses: deque[float] = deque([float("inf")] * 5, maxlen=5)

    def noise_multiplier(self, round_index: int) -> float:
        return self._sigma

    def lowest(self, round_index: int) -> float:
        """Three falls need J(w_3), J(w_4), J(w_5): σ_5 is the first that can have decayed."""
        return self.initial * self.beta ** max(0, round_index - 4)

    def observe(self, round_index: int, loss: Visible) -> None:
        model_index = round_index + 1
        known = model_index >= _FIRST_MEASURED
        now = seen(loss, "a noise schedule")
        self._losses.append(now if known else float("inf"))
        recent = list(self._losses)
        tested = recent[:4] if self.decay_index == "eq9" else recent[1:]
        if all(a > b for a, b in itertools.pairwise(tested)):
            self.decays += 1
            self._sigma = self.initial * self.beta**self.decays  # rounds as `lowest` does

    def state_dict(self) -> dict[str, Any]:
        return {"sigma": self._sigma, "losses": list(self._losses), "decays": self.decays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sigma, self.decays = state["sigma"], state["decays"]
        self._losses = deque(state["losses"], maxlen=5)
