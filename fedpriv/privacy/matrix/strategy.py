"""A strategy of correlated noise: the matrix C of the mechanism that releases C X + Z.

Rows of X [n, d] are the sums of the rounds, Z is independent Gaussian noise. With A the workload and
B C = A the iterates are A X + B Z: the server adds to round t the row t of N Z, where A N = B. For a square
lower triangular C it is N = C^-1; a tree has more rows than rounds.

    sensitivity  max over patterns π of ‖ Σ_{i∈π} C[:, i] u_i ‖ over all ‖u_i‖ ≤ 1
    error        of round t: the norm of row t of A N, times sensitivity (at noise multiplier 1)

Sources: Denisov et al. 2022 (arXiv 2202.08312); Choquette-Choo et al. 2023 (2211.06530, 2306.08153).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.workload import MEAN, Workload

_Vector = TypeVar("_Vector")
RowSource = Callable[[], Any]
"""Gives the next vector of independent standard normals: of numpy or of torch, in double precision."""


class NoiseStream(ABC):
    """The rows of N Z, one after another, in memory for a few vectors.

    Attributes:
        round: t, the next row.
        held: What later rows need of earlier ones: vectors, or None where there is nothing.
    """

    def __init__(self) -> None:
        self.round = 0
        self.held: list[Any] = []

    def next(self, draw: Callable[[], _Vector]) -> _Vector:
        """Row t of N Z [d]; calls ``draw`` as often as the strategy's ``draws(t)`` says."""
        row: _Vector = self._row(draw)
        self.round += 1
        return row

    @abstractmethod
    def _row(self, draw: RowSource) -> Any: ...

    def state_dict(self) -> dict[str, object]:
        return {"round": self.round, "held": list(self.held)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self.round, self.held = saved["round"], list(saved["held"])


class Strategy(ABC):
    """Attributes:
    name: As in ``algorithm.strategy``.
    rounds: n.
    bands: Columns of C that many rounds apart are orthogonal, and so are those further apart; n where none
        need be.
    """

    name: str
    rounds: int
    bands: int

    @abstractmethod
    def stream(self) -> NoiseStream:
        """The noise from the first round on."""

    @abstractmethod
    def matrix(self) -> np.ndarray:
        """C [draws, n]; n square numbers, so for small n, and where nothing else will do."""

    @abstractmethod
    def column_norms(self) -> np.ndarray:
        """The norms of the columns of C [n]."""

    @abstractmethod
    def describe(self) -> str:
        """Name and parameters, for the ledger."""

    def draws(self, round_index: int) -> int:
        """How many vectors of independent noise the row of this round takes that no earlier one did."""
        return 1

    def sensitivity(self, participation: Participation) -> float:
        """Of C under ``participation``: exact where columns of one pattern are orthogonal, else a proven
        upper bound (exact again for cyclic patterns without a limit and C'C ≥ 0)."""
        squares = self.column_norms() ** 2
        if self.bands <= participation.apart:
            return float(np.sqrt(participation.largest(squares)))
        gram = self.matrix()
        return bound_on_sensitivity(gram.T @ gram, participation)

    def noising(self) -> np.ndarray:
        """N [n, draws]: what the stream makes of unit vectors."""
        total = sum(map(self.draws, range(self.rounds)))
        unit = iter(np.eye(total))
        stream = self.stream()
        return np.stack([stream.next(lambda: next(unit).copy()) for _ in range(self.rounds)])

    def errors(self, workload: Workload) -> np.ndarray:
        """Squared norms of the rows of A N [n]: the variance of each iterate's noise, in units of η² σ²."""
        return (workload.apply(self.noising()) ** 2).sum(axis=1)

    def digest(self) -> str:
        """Of the numbers that the noise follows: another strategy has another one."""
        rows = np.ascontiguousarray(np.concatenate(self._numbers()), dtype="<f8")
        words = f"{self.name} {self.rounds} ".encode()
        return hashlib.blake2b(words + rows.tobytes(), digest_size=8).hexdigest()

    def _numbers(self) -> list[np.ndarray]:
        """All numbers that define the strategy, flat."""
        return [np.zeros(0)]


def bound_on_sensitivity(gram: np.ndarray, participation: Participation) -> float:
    """An upper bound for any C with C'C = ``gram`` [n, n] (Choquette-Choo et al. 2023).

    ‖Σ_i C_i u_i‖² ≤ Σ_{i,j∈π} |C_i·C_j|. The sum of row i is at most v_i = |C_i|² + the largest sum over a
    pattern of those j that may be in one with i; those of a pattern are at most the largest sum of v.
    """
    rounds = len(gram)
    others = np.where(participation.together(rounds), np.abs(gram), 0.0)
    np.fill_diagonal(others, 0.0)
    rows = np.diag(gram).copy()
    if others.any():
        rows += participation.one_fewer(rounds).largest(others)
    return float(np.sqrt(participation.largest(rows)))


def error(
    strategy: Strategy, participation: Participation, workload: Workload, objective: str = MEAN
) -> float:
    """Sensitivity × root of the mean, or of the largest, variance of an iterate: the noise of a mechanism
    with multiplier 1, in units of learning rate × clip norm."""
    errors = strategy.errors(workload)
    chosen = errors.mean() if objective == MEAN else errors.max()
    return strategy.sensitivity(participation) * float(np.sqrt(chosen))
