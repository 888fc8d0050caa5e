"""What is learned from the noised sums: the iterates of the server's optimiser, a linear map of them.

    m_t = β m_{t-1} + g_t,    θ_t = θ_0 - η Σ_{s≤t} r_s m_s

so that θ = θ_0 - η A g with A = S diag(r) M: prefix sums S, rates r, momentum M. Plain SGD has A = S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEAN, MAX = "mean", "max"
OBJECTIVES = (MEAN, MAX)


@dataclass(frozen=True)
class Workload:
    """``rounds`` n; ``momentum`` β; ``cooldown``: in the last so many rounds the learning rate falls in equal
    steps to its 1/(cooldown + 1)."""

    rounds: int
    momentum: float = 0.0
    cooldown: int = 0

    @property
    def rates(self) -> np.ndarray:
        """r [n]."""
        left = self.rounds - np.arange(self.rounds)
        return np.minimum(1.0, left / (self.cooldown + 1.0))

    @property
    def is_toeplitz(self) -> bool:
        """Whether all rounds have the same learning rate."""
        return self.cooldown == 0

    def apply(self, values: np.ndarray) -> np.ndarray:
        """A @ ``values`` [n, ...]."""
        return self.summed(self.with_momentum(values))

    def apply_transposed(self, values: np.ndarray) -> np.ndarray:
        """A' @ ``values`` [n, ...]."""
        return self.with_momentum(self.summed_transposed(values)[::-1])[::-1]

    def with_momentum(self, values: np.ndarray) -> np.ndarray:
        """M @ ``values``: of a Toeplitz matrix, its first column tells the rest."""
        if not self.momentum:
            return values
        from scipy import signal  # slow to import: a dry run of other algorithms does without

        return signal.lfilter([1.0], [1.0, -self.momentum], values, axis=0)

    def summed(self, values: np.ndarray) -> np.ndarray:
        """S diag(r) @ ``values``."""
        return np.cumsum(self._at_rates(values), axis=0)

    def summed_transposed(self, values: np.ndarray) -> np.ndarray:
        """diag(r) S' @ ``values``."""
        return self._at_rates(np.cumsum(values[::-1], axis=0)[::-1])

    def _at_rates(self, values: np.ndarray) -> np.ndarray:
        if self.is_toeplitz:
            return values
        return values * self.rates.reshape(-1, *[1] * (values.ndim - 1))

    def weights(self, errors: np.ndarray, objective: str) -> np.ndarray:
        """By how much each round's squared error counts in ``objective``; for MAX the worst alone."""
        if objective == MEAN:
            return np.full(self.rounds, 1.0 / self.rounds)
        weights = np.zeros(self.rounds)
        weights[int(np.argmax(errors))] = 1.0
        return weights

    def describe(self) -> str:
        parts = [f"{self.rounds} rounds"]
        if self.momentum:
            parts.append(f"momentum {self.momentum:g}")
        if self.cooldown:
            parts.append(f"cooldown over {self.cooldown}")
        return ", ".join(parts)
