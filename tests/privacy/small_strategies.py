"""Patterns by brute force, and small strategies of every kind."""

from __future__ import annotations

import itertools

import numpy as np

from fedpriv.privacy.matrix import banded, banded_toeplitz, blt
from fedpriv.privacy.matrix.identity import Identity
from fedpriv.privacy.matrix.participation import MinSeparation, Participation
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.matrix.tree import Tree
from fedpriv.privacy.matrix.workload import Workload

NAMES = ("identity", "tree", "banded_toeplitz", "banded", "blt")


def small(name: str, rounds: int, size: int) -> Strategy:
    """A strategy of the name, optimised for clients that rest ``size`` rounds."""
    workload, rest = Workload(rounds), MinSeparation(size)
    if name == "identity":
        return Identity(rounds)
    if name == "tree":
        return Tree(rounds, size)
    if name == "blt":
        return blt.optimise(workload, rest, 2)
    toeplitz = banded_toeplitz.optimise(workload, rest, size)
    return toeplitz if name == "banded_toeplitz" else banded.optimise(workload, toeplitz.series)


def patterns(participation: Participation, rounds: int) -> list[list[int]]:
    """Every pattern, one round after another, as a run would allow it."""
    found = []
    for size in range(rounds + 1):
        for chosen in itertools.combinations(range(rounds), size):
            last, count = np.array([-1]), np.array([0])
            for t in chosen:
                if not participation.may(t, last, count)[0]:
                    break
                last, count = np.array([t]), count + 1
            else:
                found.append(list(chosen))
    return found


def largest_over(gram: np.ndarray, participation: Participation) -> float:
    """max over patterns of (Σ_{i,j∈π} |C_i·C_j|)^½: the sensitivity where C'C ≥ 0."""
    chosen = patterns(participation, len(gram))
    return max(float(np.sqrt(np.abs(gram[np.ix_(p, p)]).sum())) for p in chosen)
