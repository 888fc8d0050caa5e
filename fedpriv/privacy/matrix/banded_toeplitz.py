"""Banded Toeplitz strategies, optimised.

Sources: Choquette-Choo et al. 2023 (arXiv 2306.08153); McKenna 2024 (arXiv 2405.15913).

C has b coefficients c_0 = 1, c_1, …. The objective is log(squared error × squared sensitivity), minimised by
L-BFGS with exact derivatives: dC^-1 = -C^-1 dC C^-1, where every factor is a series.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, signal

from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource
from fedpriv.privacy.matrix.toeplitz import ToeplitzStrategy, error_and_slope, leftmost_square
from fedpriv.privacy.matrix.workload import MEAN, Workload

_TOO_LARGE = 1e100  # value of the objective where the inverse overflows


class BandedToeplitz(ToeplitzStrategy):
    """A Toeplitz C with b non-zero coefficients.

    Attributes:
        series: c_0, …, c_{b-1}, with c_0 > 0.
    """

    name = "banded_toeplitz"

    def __init__(self, rounds: int, series: np.ndarray):
        self.rounds = rounds
        self.series = np.asarray(series, dtype=float)[:rounds]
        self.bands = len(self.series)

    def coefficients(self) -> np.ndarray:
        return np.pad(self.series, (0, self.rounds - self.bands))

    def inverse_coefficients(self) -> np.ndarray:
        return _inverse(self.series, self.rounds)

    def stream(self) -> NoiseStream:
        return _Recurrence(self.series)

    def describe(self) -> str:
        return f"banded_toeplitz(bands={self.bands})"

    def _numbers(self) -> list[np.ndarray]:
        return [self.series]


class _Recurrence(NoiseStream):
    """The rows x_t = (z_t - Σ_{0<j<b} c_j x_{t-j}) / c_0; ``held`` has the latest rows, newest first."""

    def __init__(self, series: np.ndarray):
        super().__init__()
        self._series = series.tolist()

    def _row(self, draw: RowSource) -> object:
        row = draw()
        for coefficient, before in zip(self._series[1:], self.held, strict=False):
            row = row - coefficient * before
        row = row / self._series[0]
        self.held = [row, *self.held][: len(self._series) - 1]
        return row


def optimal_series(terms: int) -> np.ndarray:
    """Return the coefficients of 1/√(1-x): 1, ½, ⅜, … [terms].

    They are optimal for prefix sums of one participation (Fichtenberger, Henzinger, Upadhyay 2023).
    """
    k = np.arange(1, terms)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def optimise(
    workload: Workload, participation: Participation, bands: int, objective: str = MEAN
) -> BandedToeplitz:
    """Return the banded Toeplitz strategy of the least error × sensitivity.

    Args:
        workload: The map from noised sums to iterates.
        participation: The rounds in which one client may take part.
        bands: b, the number of coefficients.
        objective: ``mean`` or ``max`` of the squared errors of the rounds.
    """
    rounds = workload.rounds
    bands = min(bands, rounds)
    separation, times = participation.separation, participation.times(rounds)

    def loss(rest: np.ndarray) -> tuple[float, np.ndarray]:
        series = np.concatenate([[1.0], rest])
        inverse = _inverse(series, rounds)
        with np.errstate(over="ignore", invalid="ignore"):
            value, by_inverse = error_and_slope(inverse, workload, objective)
        if not np.isfinite(value) or not np.isfinite(by_inverse).all():
            return np.log(_TOO_LARGE), np.zeros_like(rest)
        inverse_squared = signal.lfilter([1.0], series, inverse)  # first column of C^-2
        # The derivative of C^-1 by c_j is -C^-2, moved down by j rows.
        by_series = np.array(
            [-(by_inverse[j:] @ inverse_squared[: rounds - j]) for j in range(1, bands)]
        )
        padded = np.pad(series, (0, rounds - bands))
        square, by_square = leftmost_square(padded, separation, times)
        slope = by_series / value + by_square[1:bands] / square
        return float(np.log(value) + np.log(square)), slope

    start = optimal_series(bands)
    if bands == 1:
        return BandedToeplitz(rounds, start)
    optimum = optimize.minimize(
        loss, start[1:], jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-12}
    )
    series = np.concatenate([[1.0], optimum.x])
    # The worst pattern is known where c does not rise. Rounding may leave a step of 1e-9.
    return BandedToeplitz(rounds, np.maximum.accumulate(np.maximum(series, 0.0)[::-1])[::-1])


def _inverse(series: np.ndarray, rounds: int) -> np.ndarray:
    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        return signal.lfilter([1.0], series, impulse)
