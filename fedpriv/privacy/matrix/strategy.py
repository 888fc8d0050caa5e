"""Strategies of correlated noise: the matrix C of the mechanism that releases C X + Z.

The rows of X [n, d] are the sums of the rounds; Z is independent Gaussian noise. With A the workload and B C
= A the iterates are A X + B Z: the server adds row t of N Z to round t, where A N = B. For a square lower
triangular C this is N = C^-1; a tree has more rows than rounds.

    sensitivity  max over patterns π of ‖ Σ_{i∈π} C[:, i] u_i ‖ over all ‖u_i‖ ≤ 1
    error        of round t: the norm of row t of A N, times sensitivity (at noise multiplier 1)

Sources: Denisov et al. 2022 (arXiv 2202.08312); Choquette-Choo et al. 2023 (2211.06530, 2306.08153).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedpriv.common.saved import StateDict
from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.workload import MEAN, Workload

_Vector = TypeVar("_Vector")
RowSource = Callable[[], Any]
"""Function that returns the next vector of independent standard normals: numpy or torch, double precision."""


class NoiseStream(ABC):
    """The rows of N Z, one after another, with a few vectors in memory.

    Attributes:
        round: t, the next row.
        held: Vectors that later rows need of earlier ones, with None in places that are empty.
    """

    def __init__(self) -> None:
        self.round = 0
        self.held: list[Any] = []

    def next(self, draw: Callable[[], _Vector]) -> _Vector:
        """Return row t of N Z [d].

        Args:
            draw: Function that returns a vector of independent normals [d]. It is called as often as the
                strategy's ``draws(t)`` says.
        """
        row: _Vector = self._row(draw)
        self.round += 1
        return row

    @abstractmethod
    def _row(self, draw: RowSource) -> Any: ...

    def state_dict(self) -> dict[str, object]:
        """Return the state for a checkpoint."""
        return {"round": self.round, "held": list(self.held)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        # Rows are drawn on the CPU, and a checkpoint is read to the device of the model.
        held = [row.cpu() if hasattr(row, "cpu") else row for row in state["held"]]
        self.round, self.held = state["round"], held


class Strategy(ABC):
    """A matrix C [draws, n] that correlates noise over rounds.

    Attributes:
        name: Name of the strategy in ``algorithm.strategy``.
        rounds: n.
        bands: Columns of C that are this many or more rounds apart are orthogonal; n where none need be.

    Example:
        >>> from fedpriv.privacy.matrix.make import make_strategy
        >>> from fedpriv.privacy.matrix.participation import MinSeparation
        >>> participation = MinSeparation(separation=4)
        >>> strategy = make_strategy("banded_toeplitz", Workload(rounds=8), participation)
        >>> strategy.matrix().shape
        (8, 8)
        >>> round(strategy.sensitivity(participation), 3)
        1.681
    """

    name: str
    rounds: int
    bands: int

    @abstractmethod
    def stream(self) -> NoiseStream:
        """Return the noise from the first round on."""

    @abstractmethod
    def matrix(self) -> np.ndarray:
        """Return C [draws, n].

        The matrix has about n² numbers, so it is used for small n or where nothing else will do.
        """

    @abstractmethod
    def column_norms(self) -> np.ndarray:
        """Return the norms of the columns of C [n]."""

    @abstractmethod
    def describe(self) -> str:
        """Return name and parameters for the ledger."""

    def draws(self, round_index: int) -> int:
        """Return how many new vectors of independent noise the row of this round takes; by default 1."""
        return 1

    def sensitivity(self, participation: Participation) -> float:
        """Return the sensitivity of C under ``participation``, or a proven upper bound.

        The value is exact where the columns of one pattern are orthogonal, and for cyclic patterns without a
        limit where C'C ≥ 0. Otherwise it is the bound of :func:`bound_on_sensitivity`.
        """
        squares = self.column_norms() ** 2
        if self.bands <= participation.apart:
            return float(np.sqrt(participation.largest(squares)))
        gram = self.matrix()
        return bound_on_sensitivity(gram.T @ gram, participation)

    def noising(self) -> np.ndarray:
        """Return N [n, draws]: the rows that the stream makes of unit vectors."""
        total = sum(map(self.draws, range(self.rounds)))
        unit = iter(np.eye(total))
        stream = self.stream()
        return np.stack([stream.next(lambda: next(unit).copy()) for _ in range(self.rounds)])

    def errors(self, workload: Workload) -> np.ndarray:
        """Return the squared norms of the rows of A N [n].

        They are the variances of the noise in the iterates, in units of η² σ².
        """
        return (workload.apply(self.noising()) ** 2).sum(axis=1)

    def digest(self) -> str:
        """Return a digest of the numbers that the noise follows.

        Different strategies have different digests.
        """
        rows = np.ascontiguousarray(np.concatenate(self._numbers()), dtype="<f8")
        header = f"{self.name} {self.rounds} ".encode()
        return hashlib.blake2b(header + rows.tobytes(), digest_size=8).hexdigest()

    def _numbers(self) -> list[np.ndarray]:
        """Return all numbers that define the strategy, flat."""
        return [np.zeros(0)]


def bound_on_sensitivity(gram: np.ndarray, participation: Participation) -> float:
    """Return an upper bound on the sensitivity of any C with C'C = ``gram`` [n, n].

    With C_i the column of round i, u_i a vector of length at most 1 and π a pattern of rounds

        ‖Σ_{i∈π} C_i u_i‖² ≤ Σ_{i,j∈π} |C_i·C_j|

    The sum of row i is at most v_i: |C_i|² plus the largest sum over a pattern of those j that may be in one
    pattern with i. The sum over the rows of a pattern is at most the largest sum of v over a pattern
    (Choquette-Choo et al. 2023, arXiv 2306.08153).

    Args:
        gram: The products C_i·C_j of the columns of C, of n rounds.
        participation: The patterns in which a client may take part.
    """
    rounds = len(gram)
    overlaps = np.where(participation.together(rounds), np.abs(gram), 0.0)
    np.fill_diagonal(overlaps, 0.0)
    rows = np.diag(gram).copy()
    if overlaps.any():
        one_round_less = replace(participation, most=participation.times(rounds) - 1)
        rows += one_round_less.largest(overlaps)
    return float(np.sqrt(participation.largest(rows)))


def error(
    strategy: Strategy, participation: Participation, workload: Workload, objective: str = MEAN
) -> float:
    """Return the error of a mechanism at noise multiplier 1, in units of learning rate × clip norm.

    It is the sensitivity × the root of the mean, or of the largest, variance of an iterate.

    Args:
        strategy: The matrix C.
        participation: The patterns in which a client may take part; they decide the sensitivity.
        workload: The matrix A, which makes iterates of the rounds.
        objective: ``MEAN`` for the mean over the rounds; else the largest.
    """
    errors = strategy.errors(workload)
    chosen = errors.mean() if objective == MEAN else errors.max()
    return strategy.sensitivity(participation) * float(np.sqrt(chosen))
