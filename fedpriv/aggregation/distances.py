"""Rules that select vectors by their distances: Krum and multi-Krum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors, ascending, share_out
from fedpriv.common.fields import declared

if TYPE_CHECKING:
    from torch import Tensor


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
