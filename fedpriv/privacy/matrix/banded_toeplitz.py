"""Banded Toeplitz strategies, optimised (Choquette-Choo et al. 2023, arXiv 2306.08153; McKenna 2024, arXiv
2405.15913).

C has b coefficients c_0 = 1, c_1, …; the objective is log(squared error × squared sensitivity), by L-BFGS
with exact derivatives: dC^-1 = -C^-1 dC C^-1, and all of them are series.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, signal

from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource
from fedpriv.privacy.matrix.toeplitz import ToeplitzStrategy, error_and_slope, leftmost_square
from fedpriv.privacy.matrix.workload import MEAN, Workload

_TOO_LARGE = 1e100  # the objective where the inverse overflows


class BandedToeplitz(ToeplitzStrategy):
    """``series``: c_0 … c_{b-1}, c_0 > 0."""

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
    """x_t = (z_t - Σ_{0<j<b} c_j x_{t-j}) / c_0, the newest first in ``held``."""

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
    """Those of 1/√(1-x), best for prefix sums of one participation (Fichtenberger et al. 2023): 1, ½, ⅜, …"""
    k = np.arange(1, terms)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def optimise(
    workload: Workload, participation: Participation, bands: int, objective: str = MEAN
) -> BandedToeplitz:
    """The best banded Toeplitz strategy with so many bands."""
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
        twice = signal.lfilter([1.0], series, inverse)  # of C^-2
        by_series = np.array([-(by_inverse[j:] @ twice[: rounds - j]) for j in range(1, bands)])
        padded = np.pad(series, (0, rounds - bands))
        square, by_square = leftmost_square(padded, separation, times)
        slope = by_series / value + by_square[1:bands] / square
        return float(np.log(value) + np.log(square)), slope

    start = optimal_series(bands)
    if bands == 1:
        return BandedToeplitz(rounds, start)
    found = optimize.minimize(
        loss, start[1:], jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-12}
    )
    series = np.concatenate([[1.0], found.x])
    # the worst pattern is known where c does not rise; rounding may leave a step of 1e-9
    return BandedToeplitz(rounds, np.maximum.accumulate(np.maximum(series, 0.0)[::-1])[::-1])


def _inverse(series: np.ndarray, rounds: int) -> np.ndarray:
    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        return signal.lfilter([1.0], series, impulse)
