"""The server's optimiser of DP-FTRL: SGD with momentum and a learning rate that falls at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


class CooledSgd:
    """SGD with momentum and a falling learning rate, for the mean change Δ of a cohort.

        m ← β m + Δ,    change = η r_t m

    The strategy matrix of the noise is optimised for exactly this linear function of the sums.

    Args:
        learning_rate: η.
        momentum: β; 0: none.
        rates: r_t, the factor of the learning rate in each of n rounds [n].
    """

    def __init__(self, learning_rate: float, momentum: float, rates: np.ndarray):
        self.learning_rate, self.momentum, self.rates = learning_rate, momentum, rates
        self._velocity: Tensor | None = None
        self._round = 0

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        if self.momentum:
            if self._velocity is None:
                self._velocity = torch.zeros_like(gradients)
            self._velocity.mul_(self.momentum).add_(gradients)
            gradients.copy_(self._velocity)
        rate = self.learning_rate * float(self.rates[self._round])
        self._round += 1
        return gradients.mul_(rate)

    def state_dict(self) -> dict[str, object]:
        state: dict[str, object] = {"round": torch.tensor(self._round)}
        return state if self._velocity is None else {**state, "velocity": self._velocity.clone()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self._round = int(saved["round"])
        self._velocity = saved["velocity"].clone() if "velocity" in saved else None
