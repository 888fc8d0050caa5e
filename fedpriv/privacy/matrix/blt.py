"""Buffered linear Toeplitz (BLT) strategies.

Sources: Dvijotham et al. 2024 (arXiv 2404.16706); several participations: McMahan, Xu, Zhang 2024 (arXiv
2408.08868).

    c(x) = Π_i (1 - ν_i x) / Π_i (1 - θ_i x) = 1 + Σ_i ω_i x / (1 - θ_i x),    m buffers

so c_t = Σ_i ω_i θ_i^{t-1}, and C^-1 has the same form with θ and ν exchanged. With

    1 > θ_1 > ν_1 > θ_2 > ν_2 > … > ν_m > 0

all ω are positive and sum up to less than 1. Then c is positive and falls, and the leftmost pattern of rounds
is the worst one. The sensitivity is therefore exact for whatever the optimiser finds. The noise needs m
buffers, whatever n.
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np
from scipy import optimize, signal, special

from fedpriv.privacy.matrix import MOST_BUFFERS
from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource
from fedpriv.privacy.matrix.toeplitz import ToeplitzStrategy, error_and_slope, leftmost_square
from fedpriv.privacy.matrix.workload import MEAN, Workload

_ENOUGH = (
    1e-3  # a buffer is worth its memory if it lowers the log of the squared error by this much
)
_PATIENCE = 2  # two more buffers may gain where one more did not
_CLOSE = 1e-4  # distance of neighbours, relative to 1 - θ, at which coefficients would lose digits


class Blt(ToeplitzStrategy):
    """A Toeplitz C whose inverse needs m buffers.

    Attributes:
        decays: θ [m], falling, which alternate with ν.
        inverse_decays: ν [m], falling.
        scales: ω [m].
    """

    name = "blt"

    def __init__(self, rounds: int, decays: np.ndarray, inverse_decays: np.ndarray):
        self.rounds, self.bands = rounds, rounds
        self.decays = np.asarray(decays, dtype=float)
        self.inverse_decays = np.asarray(inverse_decays, dtype=float)
        # ω_i = Π_j (θ_i - ν_j) / Π_{j≠i} (θ_i - θ_j)
        differences = self.decays[:, None] - self.decays
        np.fill_diagonal(differences, 1.0)
        self.scales = np.prod((self.decays[:, None] - self.inverse_decays) / differences, axis=1)

    def coefficients(self) -> np.ndarray:
        powers = self.decays[:, None] ** np.arange(max(0, self.rounds - 1))
        return np.concatenate([[1.0], self.scales @ powers])[: self.rounds]

    def inverse_coefficients(self) -> np.ndarray:
        return _ratio(self.decays, self.inverse_decays, self.rounds)

    def stream(self) -> NoiseStream:
        return _Buffers(self.decays, self.scales)

    def describe(self) -> str:
        return f"blt(buffers={len(self.decays)})"

    def _numbers(self) -> list[np.ndarray]:
        return [self.decays, self.inverse_decays]


class _Buffers(NoiseStream):
    """The rows x_t = z_t - Σ_i ω_i S_i with buffers S_i ← θ_i S_i + x_t, which ``held`` has."""

    def __init__(self, decays: np.ndarray, scales: np.ndarray):
        super().__init__()
        self._decays, self._scales = decays.tolist(), scales.tolist()

    def _row(self, draw: RowSource) -> object:
        row = draw()
        for scale, buffer in zip(self._scales, self.held, strict=False):
            row = row - scale * buffer
        if not self.held:
            self.held = [row] * len(self._decays)
        else:
            self.held = [
                d * buffer + row for d, buffer in zip(self._decays, self.held, strict=True)
            ]
        return row


def optimise(
    workload: Workload,
    participation: Participation,
    buffers: int | None = None,
    objective: str = MEAN,
) -> Blt:
    """Return the best BLT strategy with at most ``buffers`` buffers.

    Args:
        workload: The map from noised sums to iterates.
        participation: The rounds in which one client may take part.
        buffers: Largest number of buffers; None for as many as still gain something.
        objective: ``mean`` or ``max`` of the squared errors of the rounds.
    """
    candidates: list[tuple[float, Blt]] = []  # (log of the objective, strategy)
    for count in range(1, (buffers or MOST_BUFFERS) + 1):
        starts = [_spread(workload.rounds, count)]
        if candidates:
            starts += _extended(min(candidates, key=itemgetter(0))[1])
        if not workload.is_toeplitz:  # one error takes n² steps, so only one start is tried
            starts = starts[-1:]
        descents = (_descended(workload, participation, objective, start) for start in starts)
        candidates.append(min(descents, key=itemgetter(0)))
        values = [value for value, _ in candidates]
        stalled = len(values) > _PATIENCE and min(values[:-_PATIENCE]) - min(values) < _ENOUGH
        if buffers is None and stalled:
            break
    least, best = min(candidates, key=itemgetter(0))
    if buffers is not None:
        return best
    return next(blt for value, blt in candidates if value < least + _ENOUGH)


def _spread(rounds: int, buffers: int) -> np.ndarray:
    """Return points θ_1, ν_1, θ_2, … spread evenly in the logarithm of 1 - θ, from 1/2n to ½."""
    ends = np.log(max(2.0 * rounds, 4.0)), np.log(2.0)
    return 1.0 - np.exp(-np.linspace(*ends, 2 * buffers))


def _extended(blt: Blt) -> list[np.ndarray]:
    """Return the points of a strategy with one further buffer that forgets slower than all, or faster."""
    points = np.stack([blt.decays, blt.inverse_decays], axis=1).reshape(-1)
    slow = 1.0 - (1.0 - points[0]) * np.array([0.02, 0.1])
    return [
        np.concatenate([slow, points]),
        np.concatenate([points, points[-1] * np.array([0.6, 0.3])]),
    ]


def _descended(
    workload: Workload, participation: Participation, objective: str, start: np.ndarray
) -> tuple[float, Blt]:
    """Return the strategy at the end of a descent from ``start``, and the log of its objective.

    The objective is squared error × squared sensitivity.
    """
    rounds = workload.rounds
    separation, times = participation.separation, participation.times(rounds)

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        points, jacobian = _alternating(free)
        decays, inverse_decays = points[::2], points[1::2]
        c = _ratio(inverse_decays, decays, rounds)
        inverse = _ratio(decays, inverse_decays, rounds)
        value, by_inverse = error_and_slope(inverse, workload, objective)
        square, by_c = leftmost_square(c, separation, times)
        by_points = np.empty(len(points))
        # The derivative of c by a pole θ is c(x) · x / (1 - θx), and by a zero ν the negative of it. For C^-1
        # poles and zeros are exchanged.
        for i, point in enumerate(points):
            sign = 1.0 if i % 2 == 0 else -1.0  # θ and ν alternate
            shifted = _shifted(c, point), _shifted(inverse, point)
            by_points[i] = sign * ((by_c @ shifted[0]) / square - (by_inverse @ shifted[1]) / value)
        return float(np.log(value) + np.log(square)), jacobian.T @ by_points

    ratios = start / np.concatenate([[1.0], start[:-1]])
    optimum = optimize.minimize(
        loss,
        special.logit(np.minimum(ratios, 1.0 - 1e-9)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-30.0, 25.0)] * len(start),
        options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 20},
    )
    points = _apart(_alternating(optimum.x)[0])
    return float(optimum.fun), Blt(rounds, points[::2], points[1::2])


def _apart(points: np.ndarray) -> np.ndarray:
    """Return the points without neighbours that coincide.

    A pole and a zero that coincide cancel, and two equal buffers are one.
    """
    points_apart = list(points)
    while len(points_apart) > 2:
        gaps = -np.diff(points_apart)
        scale = np.maximum(1.0 - np.array(points_apart[:-1]), 1e-12)
        closest = int(np.argmin(gaps / scale))
        if gaps[closest] / scale[closest] > _CLOSE:
            break
        del points_apart[closest : closest + 2]
    return np.array(points_apart)


def _alternating(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points θ_1, ν_1, θ_2, … and their derivatives by the free parameters.

    Each point is the one before times the logistic function of its parameter, so that the points fall.
    """
    ratios = special.expit(free)
    points = np.cumprod(ratios)
    jacobian = np.tril(np.outer(points, special.expit(-free)))
    return points, jacobian


def _ratio(zeros: np.ndarray, poles: np.ndarray, rounds: int) -> np.ndarray:
    """Return the series of Π (1 - zero x) / Π (1 - pole x).

    Factors are applied one by one, so that close zeros and poles cause no cancellation.
    """
    series = np.zeros(rounds)
    series[0] = 1.0
    for zero, pole in zip(zeros, poles, strict=True):
        series = signal.lfilter([1.0, -zero], [1.0, -pole], series)
    return series


def _shifted(series: np.ndarray, point: float) -> np.ndarray:
    """Return the series of ``series`` · x / (1 - point x)."""
    return signal.lfilter([0.0, 1.0], [1.0, -point], series)
