"""Construction of a strategy by its name, optimised for a workload and a participation."""

from __future__ import annotations

from functools import lru_cache

from fedpriv.privacy.matrix import banded, banded_toeplitz, blt
from fedpriv.privacy.matrix.identity import Identity
from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.matrix.tree import Tree
from fedpriv.privacy.matrix.workload import MEAN, Workload


@lru_cache(maxsize=8)  # a plan and its run ask for the same strategy
def make_strategy(
    name: str,
    workload: Workload,
    participation: Participation,
    size: int | None = None,
    objective: str = MEAN,
) -> Strategy:
    """Return the strategy of this name.

    ``banded`` takes a minute or more to optimise, and is made once in a process.

    Args:
        name: ``identity``, ``tree``, ``blt``, ``banded_toeplitz`` or ``banded``.
        workload: The map from noised sums to iterates.
        participation: The rounds in which one client may take part.
        size: Bands of a banded strategy, buffers of ``blt``, or rounds of a ``tree``. None for the rounds
            between two participations (``blt``: as many buffers as gain something).
        objective: ``mean`` or ``max`` of the squared errors of the rounds.
    """
    bands = min(size or participation.separation, workload.rounds)
    if name == "identity":
        return Identity(workload.rounds)
    if name == "tree":
        return Tree(workload.rounds, bands)
    if name == "blt":
        return blt.optimise(workload, participation, size, objective)
    toeplitz = banded_toeplitz.optimise(workload, participation, bands, objective)
    if name == "banded_toeplitz":
        return toeplitz
    return banded.optimise(workload, toeplitz.series, objective)
