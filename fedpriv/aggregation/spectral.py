"""Rules that look at the covariance of the vectors: CAF and DnC.

The eigenvectors of a covariance lie in the span of the vectors, so they follow from inner products [m, m].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors, ascending, share_out
from fedpriv.common.fields import declared, field, number, whole
from fedpriv.common.random_streams import numpy_stream

if TYPE_CHECKING:
    from torch import Tensor


def _centered(products: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the inner products of x_i - Σ_j w_j x_j [m, m], for weights [m] that add up to 1."""
    along = products @ weights
    centered: np.ndarray = products - along[:, None] - along + along @ weights
    return centered


@declared
class CovarianceFilter(RobustAggregation):
    """CAF: the mean of vectors that lose weight by their part in the covariance's top eigenvector.

        c_i ← c_i (1 - τ_i / max_j τ_j),   τ_i = ⟨x_i - μ_c, v⟩²,   as long as Σ c > n - 2f

    v is the top eigenvector of the covariance of the vectors with weights c, and c = 1 at first; max τ is
    over the vectors that still have weight. The result is the weighted mean μ_c at which the top eigenvalue
    was smallest.

    Source: Allouah et al., "Towards trustworthy federated learning with untrusted participants", ICML 2025
    (arXiv 2505.01874), algorithm 2.
    """

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        count, products = len(vectors), vectors.differences
        weights, least = np.ones(count), np.inf
        best = weights / count
        while (total := weights.sum()) > count - 2 * of_round.tolerated:
            shares = weights / total
            centered = _centered(products, shares)
            roots = np.sqrt(shares)
            eigenvalues, eigenvectors = np.linalg.eigh(roots[:, None] * centered * roots)
            if eigenvalues[-1] < least:
                best, least = shares, eigenvalues[-1]
            # v = Σ_j √p_j u_j (x_j - μ) / √λ; the factor 1/√λ cancels in τ_i / max τ.
            projections = (centered @ (roots * eigenvectors[:, -1])) ** 2
            largest = projections[weights > 0].max(initial=0.0)
            if not largest > 0.0:
                break  # the vectors that have weight are equal
            weights = weights * np.maximum(0.0, 1.0 - projections / largest)
        return vectors.combination(best)


@declared
class DivideAndConquer(RobustAggregation):
    """DnC: the mean of the vectors that no round of projections found to be an outlier.

    Each iteration draws some coordinates, projects the centred vectors on their top singular vector, and
    drops the c·f vectors with the largest squared projections. Only vectors that every iteration keeps are
    averaged. If none is left, those that were dropped least often are averaged.

    Source: Shejwalkar and Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and
    defenses for federated learning", NDSS 2021, algorithm 2.

    Attributes:
        coordinates: Share of the coordinates that an iteration draws.
        filtered: c.
        iterations: Number of iterations.
    """

    coordinates: float = field(
        number(above=0, at_most=1),
        default=0.2,
        help="share of the coordinates that an iteration draws",
    )
    filtered: float = field(
        number(above=0),
        default=1.0,
        unit="c",
        help="vectors that an iteration drops, in multiples of f",
    )
    iterations: int = field(whole(at_least=1), default=5, help="number of iterations")

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        count = len(vectors)
        dropped = min(count - 1, int(self.filtered * of_round.tolerated))
        times_dropped = np.zeros(count, dtype=int)
        equal = np.full(count, 1.0 / count)
        for iteration in range(self.iterations if dropped else 0):
            stream = numpy_stream(self.seed, "aggregation_dnc", of_round.index, iteration)
            drawn = max(1, round(self.coordinates * vectors.size))
            chosen = np.sort(stream.choice(vectors.size, drawn, replace=False))
            centered = _centered(vectors.products_of(chosen), equal)
            eigenvalues, eigenvectors = np.linalg.eigh(centered)
            # ⟨x_i - μ, v⟩² = λ u_i², for the top eigenvector u of the inner products.
            outlying = ascending(-(eigenvectors[:, -1] ** 2) * max(0.0, eigenvalues[-1]))
            times_dropped[outlying[:dropped]] += 1
        kept = np.flatnonzero(times_dropped == times_dropped.min())
        return vectors.combination(share_out(kept, count))
