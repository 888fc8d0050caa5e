"""Banded strategies with a free value in each entry of the band.

Sources: Choquette-Choo et al. 2023 (arXiv 2306.08153); columns of norm 1: McKenna 2024 (arXiv 2405.15913).

    C = P D,   P banded lower triangular, D such that every column has norm 1

With as many bands as rounds between two participations of a client, the client's columns are orthogonal. The
sensitivity is then the root of their number, whatever P. The mean (or largest) squared error of B = A C^-1 is
minimised by L-BFGS from the best Toeplitz strategy; its derivatives are -2 B'B C^-T.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize
from scipy.linalg import blas, lapack

from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource, Strategy
from fedpriv.privacy.matrix.workload import MEAN, Workload

MOST_STEPS = 150
"""Number of steps of L-BFGS after which the error falls by less than 1e-4 of itself (n = 1,000)."""


class Banded(Strategy):
    """A lower triangular C with ``bands`` diagonals.

    Attributes:
        entries: C[i + j, i] in row i, column j [n, b]; 0 beyond the last round.
    """

    name = "banded"

    def __init__(self, entries: np.ndarray):
        self.rounds, self.bands = entries.shape
        self.entries = np.where(_inside(*entries.shape), entries, 0.0)

    def stream(self) -> NoiseStream:
        return _Substitution(self.entries)

    def matrix(self) -> np.ndarray:
        return _dense(self.entries)

    def column_norms(self) -> np.ndarray:
        return np.linalg.norm(self.entries, axis=1)

    def errors(self, workload: Workload) -> np.ndarray:
        return (workload.apply(_inverted(self.matrix())) ** 2).sum(axis=1)

    def describe(self) -> str:
        return f"banded(bands={self.bands})"

    def _numbers(self) -> list[np.ndarray]:
        return [self.entries.ravel()]


class _Substitution(NoiseStream):
    """The rows x_t = (z_t - Σ_{0<j<b} C[t, t-j] x_{t-j}) / C[t, t].

    ``held`` has the latest rows, newest first.
    """

    def __init__(self, entries: np.ndarray):
        super().__init__()
        self._entries = entries

    def _row(self, draw: RowSource) -> object:
        t, row = self.round, draw()
        for j, before in enumerate(self.held, start=1):
            row = row - float(self._entries[t - j, j]) * before
        row = row / float(self._entries[t, 0])
        self.held = [row, *self.held][: self._entries.shape[1] - 1]
        return row


def optimise(workload: Workload, series: np.ndarray, objective: str = MEAN) -> Banded:
    """Return the banded strategy of the least error.

    Args:
        workload: The map from noised sums to iterates.
        series: Coefficients of a Toeplitz strategy to start from; their number is the number of bands.
        objective: ``mean`` or ``max`` of the squared errors of the rounds.
    """
    rounds, bands = workload.rounds, min(len(series), workload.rounds)
    inside = _inside(rounds, bands)
    start = np.where(inside, series[:bands], 0.0)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        entries = np.zeros((rounds, bands))
        entries[inside] = flat
        norms = np.linalg.norm(entries, axis=1)
        unit = entries / norms[:, None]
        value, slope = _error_and_slope(unit, workload, objective)
        slope -= (
            unit * (slope * unit).sum(axis=1)[:, None]
        )  # the part along the unit sphere of each column
        return float(np.log(value)), ((slope / norms[:, None]) / value)[inside]

    optimum = optimize.minimize(
        loss,
        start[inside],
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-9, "maxcor": 10},
    )
    entries = np.zeros((rounds, bands))
    entries[inside] = optimum.x
    entries /= np.linalg.norm(entries, axis=1)[:, None]
    return Banded(entries * np.where(entries[:, :1] < 0, -1.0, 1.0))


def _error_and_slope(
    entries: np.ndarray, workload: Workload, objective: str
) -> tuple[float, np.ndarray]:
    """Return the squared error of C, and its derivatives by the entries of C [n, b]."""
    inverse = _inverted(_dense(entries))
    rows = workload.apply(inverse)
    weights = workload.weights(errors := (rows**2).sum(axis=1), objective)
    scaled = np.asfortranarray(rows * np.sqrt(weights)[:, None])
    product = blas.dsyrk(1.0, scaled, trans=1, lower=1)  # B' W B, its lower half
    product = product + np.tril(product, -1).T
    # The derivative by C is -2 (C^-1 B' W B)' = -2 (B' W B) C^-T.
    slope = blas.dtrmm(-2.0, inverse, np.asfortranarray(product), side=1, lower=1, trans_a=1)
    slopes = np.zeros_like(entries)
    for j in range(entries.shape[1]):
        slopes[: len(slope) - j, j] = np.diagonal(slope, -j)
    return float(weights @ errors), slopes


def _inverted(matrix: np.ndarray) -> np.ndarray:
    inverse, _ = lapack.dtrtri(np.asfortranarray(matrix), lower=1)
    return inverse


def _inside(rounds: int, bands: int) -> np.ndarray:
    """Return which entries [n, b] lie within the matrix."""
    return np.arange(rounds)[:, None] + np.arange(bands) < rounds


def _dense(entries: np.ndarray) -> np.ndarray:
    rounds, bands = entries.shape
    matrix = np.zeros((rounds, rounds))
    columns = np.arange(rounds)
    for j in range(bands):
        matrix[columns[j:], columns[: rounds - j]] = entries[: rounds - j, j]
    return matrix
