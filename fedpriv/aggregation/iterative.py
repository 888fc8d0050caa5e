"""Rules that iterate: geometric median and centered clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors, share_out
from fedpriv.common.fields import declared, field, number, whole

if TYPE_CHECKING:
    from torch import Tensor

_CONVERGED = 1e-12


@declared
class GeometricMedian(RobustAggregation):
    """The point with the least sum of distances to the vectors, by smoothed Weiszfeld iterations.

        z ← Σ_i β_i x_i / Σ_i β_i,   β_i = 1 / max(ν, ‖x_i - z‖)

    At first, the median distance of x_i to the others stands for ‖x_i - z‖. f is not used. Iterations end
    when the weights do not move any more. The bounds for the geometric median hold once they have converged,
    and for a ν far below the distances between vectors: with a large ν the rule is the mean.

    Source: Pillutla et al., "Robust aggregation for federated learning", IEEE Transactions on Signal
    Processing 2022, algorithm 2, with equal weights.

    Attributes:
        smoothing: ν.
        iterations: The most iterations.
    """

    smoothing: float = field(
        number(above=0), default=1e-6, unit="ν", help="least distance that the weights distinguish"
    )
    iterations: int = field(whole(at_least=1), default=1000, help="largest number of iterations")

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        products = vectors.differences
        squares = np.diag(products)
        # Begin near the majority: from the mean, one huge vector takes long to be forgotten.
        typical = np.median(np.sqrt(vectors.squared_distances), axis=1)
        inverse = 1.0 / np.maximum(typical, self.smoothing)
        weights = inverse / inverse.sum()
        for _ in range(self.iterations):
            # ‖x_i - z‖² for z = Σ_j w_j x_j
            along = products @ weights
            distances = np.sqrt(np.maximum(squares - 2.0 * along + weights @ along, 0.0))
            inverse = 1.0 / np.maximum(distances, self.smoothing)
            before, weights = weights, inverse / inverse.sum()
            if np.abs(weights - before).max() < _CONVERGED:
                break
        return vectors.combination(weights)


@declared
class CenteredClipping(RobustAggregation):
    """The last result, moved by the mean of the clipped differences to it.

        v ← v + (1/n) Σ_i (x_i - v) · min(1, τ / ‖x_i - v‖)

    v is 0 before the first round, is kept between rounds, and saved. f is not used. Where τ is above all
    distances, the rule is the mean: choose τ for the length of the uploads.

    Source: Karimireddy et al., "Learning from history for Byzantine robust optimization", ICML 2021,
    algorithm 2.

    Attributes:
        radius: τ.
        iterations: Iterations in a round.
    """

    radius: float = field(
        number(above=0), default=100.0, unit="τ", help="norm to which differences are clipped"
    )
    iterations: int = field(whole(at_least=1), default=1, help="iterations in a round")

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        count = len(vectors)
        mean = share_out(np.arange(count), count)
        center = of_round.memory.get("center")
        if center is None:
            center = vectors.combination(np.zeros(count))
        for _ in range(self.iterations):
            squares = np.zeros(count)
            for first, chunk in vectors.chunks():
                part = center[first : first + chunk.shape[1]].double()
                squares += (chunk.double() - part).square().sum(dim=1).cpu().numpy()
            distances = np.sqrt(squares)
            factors = self.radius / np.maximum(distances, self.radius)
            kept = 1.0 - float(mean @ factors)
            center = vectors.combination(mean * factors).add(center, alpha=kept)
        of_round.memory["center"] = center
        return center
