"""Rules that look at each coordinate by itself: median, trimmed mean, and sign votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors, sorted_columns
from fedpriv.common.fields import declared, field, number, or_null

if TYPE_CHECKING:
    from torch import Tensor


@declared
class CoordinateMedian(RobustAggregation):
    """The median of each coordinate; for an even number, the mean of the middle two. f is not used.

    Source: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018,
    definition 1.
    """

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        low, high = (len(vectors) - 1) // 2, len(vectors) // 2

        def median(chunk: Tensor) -> Tensor:
            columns = sorted_columns(chunk)
            # Halves are added, because the sum of two huge numbers may overflow.
            return columns[:, low] / 2 + columns[:, high] / 2

        return vectors.by_coordinate(median)


@declared
class TrimmedMean(RobustAggregation):
    """The mean of each coordinate without its f smallest and its f largest numbers.

    Source: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018,
    definition 2.
    """

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        f, count = of_round.tolerated, len(vectors)

        def trimmed(chunk: Tensor) -> Tensor:
            return sorted_columns(chunk)[:, f : count - f].double().mean(dim=1)

        return vectors.by_coordinate(trimmed)


@declared
class RobustLearningRate(RobustAggregation):
    """The weighted mean, with its sign turned in each coordinate on which too few agree.

        mean_j if |Σ_i sign(x_ij)| ≥ θ, else -mean_j

    f clients alone shift a vote by at most f, hence the default θ = f + 1. The work sets θ by hand. With
    steps before the rule, the mean is not weighted.

    Source: Özdayi et al., "Defending against backdoors in federated learning with robust learning rate", AAAI
    2021, equation 3.

    Attributes:
        threshold: θ.
    """

    threshold: float | None = field(
        or_null(number(at_least=0)),
        default=None,
        unit="θ",
        help="size of the sum of signs from which a coordinate keeps its sign; null: f + 1",
    )

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        threshold = self.threshold
        if threshold is None:
            threshold = of_round.tolerated + 1
        mean = vectors.combination(of_round.shares)
        agreed = vectors.by_coordinate(lambda chunk: chunk.sign().sum(dim=0).abs())
        return mean.where(agreed >= threshold, -mean)
