"""The iterates of the server's optimiser as a linear map of the noised sums.

    m_t = β m_{t-1} + g_t,    θ_t = θ_0 - η Σ_{s≤t} r_s m_s

so that θ = θ_0 - η A g with A = S diag(r) M: prefix sums S, learning rates r, momentum M. Plain SGD has A =
S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEAN, MAX = "mean", "max"
OBJECTIVES = (MEAN, MAX)


@dataclass(frozen=True)
class Workload:
    """The matrix A of a run.

    Attributes:
        rounds: n.
        momentum: β.
        cooldown: Number of last rounds in which the learning rate falls in equal steps to 1/(cooldown + 1) of
            itself.

    Example:
        >>> Workload(rounds=4, cooldown=1).rates.tolist()
        [1.0, 1.0, 1.0, 0.5]
        >>> Workload(rounds=3).apply(np.array([1.0, 2.0, 3.0])).tolist()
        [1.0, 3.0, 6.0]
    """

    rounds: int
    momentum: float = 0.0
    cooldown: int = 0

    @property
    def rates(self) -> np.ndarray:
        """Learning rate of each round as a share of the largest: r [n]."""
        remaining = self.rounds - np.arange(self.rounds)
        return np.minimum(1.0, remaining / (self.cooldown + 1.0))

    @property
    def is_toeplitz(self) -> bool:
        """True if all rounds have the same learning rate."""
        return self.cooldown == 0

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return A @ ``values`` [n, ...]."""
        return self.summed(self.with_momentum(values))

    def apply_transposed(self, values: np.ndarray) -> np.ndarray:
        """Return A' @ ``values`` [n, ...]."""
        return self.with_momentum(self.summed_transposed(values)[::-1])[::-1]

    def with_momentum(self, values: np.ndarray) -> np.ndarray:
        """Return M @ ``values`` [n, ...].

        M is a Toeplitz matrix, so its first column determines it.
        """
        if not self.momentum:
            return values
        from scipy import (
            signal,
        )  # imported late: it is slow, and dry runs of other algorithms do not need it

        return signal.lfilter([1.0], [1.0, -self.momentum], values, axis=0)

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Return S diag(r) @ ``values`` [n, ...]."""
        return np.cumsum(self._at_rates(values), axis=0)

    def summed_transposed(self, values: np.ndarray) -> np.ndarray:
        """Return diag(r) S' @ ``values`` [n, ...]."""
        return self._at_rates(np.cumsum(values[::-1], axis=0)[::-1])

    def _at_rates(self, values: np.ndarray) -> np.ndarray:
        if self.is_toeplitz:
            return values
        return values * self.rates.reshape(-1, *[1] * (values.ndim - 1))

    def weights(self, errors: np.ndarray, objective: str) -> np.ndarray:
        """Return the weight of each round's squared error in ``objective`` [n].

        For MAX only the worst round counts.

        Args:
            errors: Squared error of each round [n].
            objective: ``MEAN`` or ``MAX``.
        """
        if objective == MEAN:
            return np.full(self.rounds, 1.0 / self.rounds)
        weights = np.zeros(self.rounds)
        weights[int(np.argmax(errors))] = 1.0
        return weights

    def describe(self) -> str:
        """Describe the workload in the plan."""
        parts = [f"{self.rounds} rounds"]
        if self.momentum:
            parts.append(f"momentum {self.momentum:g}")
        if self.cooldown:
            parts.append(f"cooldown over {self.cooldown}")
        return ", ".join(parts)
