"""Binary trees that restart: DP-FTRL (Kairouz et al. 2021, arXiv 2103.00039).

A round is a leaf. Every complete subtree of a tree of ``size`` rounds is a node, whose sum is released with
noise of its own. A prefix sum takes the fewest nodes. Each node is estimated from all nodes below it with the
weights of least variance (Honaker 2015, the estimate from below):

    y_0 = z,  y_h = v_h z + (1 - v_h) (y_{h-1} + y'_{h-1}),   v_0 = 1,  v_h = 2 v_{h-1} / (2 v_{h-1} + 1)

v_h is the variance of y_h. After ``size`` rounds a new tree begins, so that a client that returns after
``size`` rounds or more is in each tree once.
"""

from __future__ import annotations

import numpy as np

from fedpriv.privacy.matrix.strategy import NoiseStream, RowSource, Strategy


class Tree(Strategy):
    """A matrix C with one row for each complete subtree.

    Attributes:
        size: Number of rounds of one tree.
    """

    name = "tree"

    def __init__(self, rounds: int, size: int):
        self.rounds, self.size = rounds, min(size, rounds)
        self.bands = self.size  # rounds this far apart are in different trees

    def draws(self, round_index: int) -> int:
        return 1 + _trailing_ones(round_index % self.size)

    def stream(self) -> NoiseStream:
        return _Nodes(self.size)

    def matrix(self) -> np.ndarray:
        rows = []
        for t in range(self.rounds):
            for level in range(self.draws(t)):
                row = np.zeros(self.rounds)
                row[t + 1 - 2**level : t + 1] = 1.0
                rows.append(row)
        return np.stack(rows)

    def column_norms(self) -> np.ndarray:
        """Return the norms of the columns of C [n].

        The squared norm is the number of nodes that hold the round and are complete by the end of its tree,
        or of the run.
        """
        counts = np.zeros(self.rounds)
        for t in range(self.rounds):
            for level in range(self.draws(t)):
                counts[t + 1 - 2**level : t + 1] += 1.0
        return np.sqrt(counts)

    def describe(self) -> str:
        return f"tree(size={self.size})"

    def _numbers(self) -> list[np.ndarray]:
        return [np.array([float(self.size)])]


class _Nodes(NoiseStream):
    """The noise of prefix sums.

    ``held`` has, by level, the estimate of the complete subtree that waits for its sibling.
    """

    def __init__(self, size: int):
        super().__init__()
        self._size = size

    def _row(self, draw: RowSource) -> object:
        leaf = self.round % self._size
        if leaf == 0:
            self.held = []
        node, variance, replaced = draw(), 1.0, None
        levels = _trailing_ones(leaf)
        for level in range(levels):
            sibling = self.held[level]
            variance = 2.0 * variance / (2.0 * variance + 1.0)
            node = variance * draw() + (1.0 - variance) * (sibling + node)
            replaced = sibling if replaced is None else replaced + sibling
            self.held[level] = None
        self.held += [None] * (levels + 1 - len(self.held))
        self.held[levels] = node
        return node if replaced is None else node - replaced


def _trailing_ones(number: int) -> int:
    """Return the number of ones at the end of a binary number: 0 for 0b10, 2 for 0b1011.

    This is the number of subtrees above a leaf of that index that the leaf completes.
    """
    return ((number + 1) & -(number + 1)).bit_length() - 1
