"""The strategy C = I: independent noise in every round, as in DP-FedAvg without sampling."""

from __future__ import annotations

import numpy as np

from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource, Strategy


class Identity(Strategy):
    """The identity matrix as a strategy."""

    name, bands = "identity", 1

    def __init__(self, rounds: int):
        self.rounds = rounds

    def stream(self) -> NoiseStream:
        return _Independent()

    def matrix(self) -> np.ndarray:
        return np.eye(self.rounds)

    def column_norms(self) -> np.ndarray:
        return np.ones(self.rounds)

    def describe(self) -> str:
        return "identity"


class _Independent(NoiseStream):
    def _row(self, draw: RowSource) -> object:
        return draw()
