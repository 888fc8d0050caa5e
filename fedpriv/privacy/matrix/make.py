"""The strategy of a name, optimised for a workload and a participation."""

from __future__ import annotations

from fedpriv.privacy.matrix import banded, banded_toeplitz, blt
from fedpriv.privacy.matrix.identity import Identity
from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.stored import remembered
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.matrix.tree import Tree
from fedpriv.privacy.matrix.workload import MEAN, Workload


def make_strategy(
    name: str,
    workload: Workload,
    participation: Participation,
    size: int | None = None,
    objective: str = MEAN,
) -> Strategy:
    """``size``: bands of a banded strategy, buffers of ``blt``, rounds of a ``tree``; None: as many as the
    rounds between two participations (``blt``: as many as gain something)."""
    apart = min(size or participation.separation, workload.rounds)
    if name == "identity":
        return Identity(workload.rounds)
    if name == "tree":
        return Tree(workload.rounds, apart)
    if name == "blt":
        return blt.optimise(workload, participation, size, objective)
    toeplitz = banded_toeplitz.optimise(workload, participation, apart, objective)
    if name == "banded_toeplitz":
        return toeplitz
    return remembered(
        workload, apart, objective, lambda: banded.optimise(workload, toeplitz.series, objective)
    )
