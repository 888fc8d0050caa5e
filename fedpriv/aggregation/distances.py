"""Rules that select vectors by their distances: Krum, multi-Krum, minimum-diameter averaging."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors, ascending, share_out
from fedpriv.common.fields import declared

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERS_AT_ONCE = 2**22


@declared
class Krum(RobustAggregation):
    """The vector that is nearest to its n - f - 2 nearest others.

        score_i = Σ ‖x_i - x_j‖² over the n - f - 2 nearest j ≠ i

    Of equal scores, the client with the lowest number is selected.

    Source: Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
    NeurIPS 2017, section 4.
    """

    needs = (2, 2)

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        best = _by_score(vectors, of_round.tolerated)[:1]
        return vectors.combination(share_out(best, len(vectors)))


@declared
class MultiKrum(RobustAggregation):
    """The mean of the n - f vectors of least score, the score being that of Krum.

    Source: Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
    NeurIPS 2017, section 5, with m = n - f.
    """

    needs = (2, 2)

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        count, f = len(vectors), of_round.tolerated
        return vectors.combination(share_out(_by_score(vectors, f)[: count - f], count))


def _by_score(vectors: Vectors, tolerated: int) -> np.ndarray:
    """Return the vectors' places by Krum's score, the best first."""
    distances = vectors.squared_distances.copy()
    np.fill_diagonal(distances, np.inf)
    nearest = max(1, len(vectors) - tolerated - 2)
    return ascending(np.sort(distances, axis=1)[:, :nearest].sum(axis=1))


@declared
class MinimumDiameterAveraging(RobustAggregation):
    """The mean of the n - f vectors with the least greatest distance between two of them.

    All subsets are looked at, at most 100,000. Of equal diameters, the lexicographically first subset counts.

    Source: El Mhamdi et al., "Genuinely distributed Byzantine machine learning", PODC 2020, section 3.
    """

    looks_at_subsets = True

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        distances = vectors.squared_distances

        def diameters(subsets: np.ndarray) -> np.ndarray:
            return distances[subsets[:, :, None], subsets[:, None, :]].max(axis=(1, 2))

        best = best_subset(len(vectors), of_round.tolerated, diameters)
        return vectors.combination(share_out(best, len(vectors)))


def best_subset(
    count: int, tolerated: int, score: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the subset of n - f of n vectors with the least score; of equal ones the first.

    Args:
        count: n.
        tolerated: f.
        score: (subsets [s, n - f]) → their scores [s].
    """
    size = count - tolerated
    subsets = combinations(range(count), size)
    best, least = np.arange(size), np.inf
    while batch := list(islice(subsets, max(1, _NUMBERS_AT_ONCE // size**2))):
        members = np.array(batch)
        scores = score(members)
        first = ascending(scores)[0]
        if ascending(np.array([least, scores[first]]))[0] == 1:
            best, least = members[first], scores[first]
    return best
