"""Lower triangular Toeplitz strategies: power series, their errors, and their sensitivity.

A Toeplitz C is given by its first column c. Products are convolutions, and C^-1 is the series 1/c. Where c is
nowhere negative and does not rise, the worst pattern of rounds at least b apart is the leftmost, 0, b, 2b, …
(Kalinin & Lampert 2024, arXiv 2405.13763, theorem 2; McMahan, Xu, Zhang 2024, arXiv 2408.08868).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy import linalg

from fedpriv.privacy.matrix.participation import Cyclic, MinSeparation, Participation
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.matrix.workload import Workload


class ToeplitzStrategy(Strategy):
    """A lower triangular C with the first column :meth:`coefficients`."""

    @abstractmethod
    def coefficients(self) -> np.ndarray:
        """Return c [n]."""

    @abstractmethod
    def inverse_coefficients(self) -> np.ndarray:
        """Return the first column of C^-1 [n]."""

    def matrix(self) -> np.ndarray:
        return linalg.toeplitz(self.coefficients(), np.zeros(self.rounds))

    def column_norms(self) -> np.ndarray:
        return np.sqrt(np.cumsum(self.coefficients() ** 2)[::-1])

    def sensitivity(self, participation: Participation) -> float:
        c = self.coefficients()
        apart = isinstance(participation, MinSeparation | Cyclic)
        if apart and c.min() >= 0 and (np.diff(c) <= 0).all():
            times = participation.times(self.rounds)
            return float(np.sqrt(leftmost_square(c, participation.separation, times)[0]))
        return super().sensitivity(participation)

    def errors(self, workload: Workload) -> np.ndarray:
        inverse = self.inverse_coefficients()
        if workload.is_toeplitz:
            return np.cumsum(workload.apply(inverse) ** 2)
        moving = linalg.toeplitz(workload.with_momentum(inverse), np.zeros(len(inverse)))
        return (workload.summed(moving) ** 2).sum(axis=1)


def error_and_slope(
    inverse: np.ndarray, workload: Workload, objective: str
) -> tuple[float, np.ndarray]:
    """Return the squared error of a strategy, and its derivatives by the first column of C^-1.

    Args:
        inverse: First column of C^-1 [n].
        workload: The map from noised sums to iterates.
        objective: ``mean`` or ``max`` of the squared errors of the rounds.

    Returns:
        The squared error in units of η² σ², and its derivatives [n].
    """
    rounds = len(inverse)
    if workload.is_toeplitz:
        rows = workload.apply(inverse)
        weights = workload.weights(errors := np.cumsum(rows**2), objective)
        later = np.cumsum(weights[::-1])[::-1]  # coefficient j is in the rows from j on
        return float(weights @ errors), workload.apply_transposed(2.0 * later * rows)
    with_momentum = workload.with_momentum(inverse)
    rows = workload.summed(linalg.toeplitz(with_momentum, np.zeros(rounds)))
    weights = workload.weights(errors := np.einsum("ij,ij->i", rows, rows), objective)
    slopes = _diagonal_sums(workload.summed_transposed(2.0 * weights[:, None] * rows))
    return float(weights @ errors), workload.with_momentum(slopes[::-1])[::-1]


def leftmost_square(c: np.ndarray, separation: int, times: int) -> tuple[float, np.ndarray]:
    """Return the squared sensitivity of the leftmost pattern, and its derivatives by c [n].

        ‖Σ_{p<k} C[:, p b]‖²

    Args:
        c: First column of C [n].
        separation: b, the distance of two rounds of the pattern.
        times: k, the number of its rounds.
    """
    total = _windowed(c, separation, times)
    return float(total @ total), 2.0 * _windowed(total[::-1], separation, times)[::-1]


def _windowed(values: np.ndarray, separation: int, times: int) -> np.ndarray:
    """Return Σ_{p<k} of ``values`` [n] moved down by p b."""
    rounds = len(values)
    padded = np.pad(values, (0, -rounds % separation)).reshape(-1, separation)
    sums = np.cumsum(padded, axis=0)
    if times < len(sums):
        sums[times:] -= sums[:-times].copy()
    return sums.reshape(-1)[:rounds]


def _diagonal_sums(matrix: np.ndarray) -> np.ndarray:
    """Return the sums of the main diagonal and of those below it [n]."""
    rounds = len(matrix)
    padded = np.zeros((rounds, rounds + rounds))
    padded[:, :rounds] = np.tril(matrix)[:, ::-1]
    # Row s begins s places earlier, so that entries with the same s - j come into one column.
    shifted = padded.reshape(-1)[: rounds * (2 * rounds - 1)].reshape(rounds, 2 * rounds - 1)
    return shifted.sum(axis=0)[rounds - 1 :]
