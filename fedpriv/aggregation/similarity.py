"""Rules that compare the directions of vectors: FoolsGold and FLAME."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number
from fedpriv.common.random_streams import torch_stream

if TYPE_CHECKING:
    from torch import Tensor


def _cosines(products: np.ndarray) -> np.ndarray:
    """Return the cosines of vectors with these inner products [m, m]; 0 for a vector that is 0."""
    norms = np.sqrt(np.maximum(np.diag(products), 0.0))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.clip(products * inverse[:, None] * inverse, -1.0, 1.0)


@declared
class FoolsGold(RobustAggregation):
    """The sum of the uploads over n, with less weight for clients whose past uploads point the same way.

        w_i = clip(κ (ln(α_i / (1 - α_i)) + ½), 0, 1),   α_i = 1 - max_j cos(h_i, h_j), scaled to max α = 1

    Before the maximum, cos(h_i, h_j) is multiplied by v_i / v_j where v_i < v_j = max_k cos(h_j, h_k).

    h_i is the sum of all uploads of client i so far. It is kept, and saved: one vector for each client that
    ever took part. f is not used. The published rule adds up w_i x_i; divided by n the result is on the scale
    of one upload, and the mean where nobody is suspected. A client that is alone in a round has weight 1.

    Source: Fung et al., "The limitations of federated learning in Sybil settings", RAID 2020, algorithm 1,
    without the choice of indicative features.

    Attributes:
        confidence: κ.
    """

    needs = (0, 0)

    confidence: float = field(
        number(above=0), default=1.0, unit="κ", help="steepness of the weights in the similarity"
    )

    def __attrs_post_init__(self) -> None:
        if "bucketing" in self.before:
            hint = "its memory is of each client, and a bucket is of several"
            raise ArgumentError("before", list(self.before), "no bucketing with foolsgold", hint)

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        past = self._histories(vectors, of_round)
        count = len(vectors)
        if count == 1:
            return vectors.combination(np.ones(1))
        similar = _cosines(Vectors(past).products)
        np.fill_diagonal(similar, 0.0)
        most = similar.max(axis=1)
        # Pardoning: an honest client is less similar to a sybil than the sybils are to one another.
        pardoned = np.where(
            (most[:, None] < most) & (most > 0),
            similar * (most[:, None] / np.maximum(most, 1e-300)),
            similar,
        )
        alpha = np.clip(1.0 - pardoned.max(axis=1), 0.0, 1.0)
        if alpha.max() > 0:
            alpha = alpha / alpha.max()
        with np.errstate(divide="ignore"):
            logit = self.confidence * (np.log(alpha) - np.log1p(-alpha) + 0.5)
        return vectors.combination(np.clip(logit, 0.0, 1.0) / count)

    def _histories(self, vectors: Vectors, of_round: RoundOfRule) -> list[Tensor]:
        """Add the vectors to what is kept of their clients, and return the sums, one for each vector [d]."""
        histories = []
        largest = float(np.finfo(np.float32).max)  # huge uploads must not make a sum infinite
        for place, client in enumerate(of_round.clients):
            name, total = f"sum of client {client}", vectors.vector(place).clone()
            before = of_round.memory.get(name)
            if before is not None:
                total.add_(before).clamp_(-largest, largest)
            of_round.memory[name] = total
            histories.append(total)
        return histories


@declared
class Flame(RobustAggregation):
    """The mean of the largest cluster of directions, clipped to the median norm, with noise.

        admitted: the cluster of more than half of the vectors that HDBSCAN finds by cosine distances
        mean over the admitted of x_i · min(1, S / ‖x_i‖) + N(0, (λS)²),   S the median norm of all vectors

    If no such cluster is found, all vectors are admitted. f is not used. **The noise carries no ε**: its
    generator is public, nothing is charged for it, and it follows the norms of the uploads. It is meant
    against backdoors alone.

    Source: Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022, algorithm 1.

    Attributes:
        noise: λ.
    """

    noise: float = field(
        number(at_least=0),
        default=0.001,
        unit="λ",
        help="noise against backdoors, in multiples of the median norm; it carries no ε",
    )

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        import torch

        norms = vectors.norms
        bound = float(np.median(norms))
        factors = bound / np.maximum(norms, bound) if bound else np.zeros(len(norms))
        admitted = self._admitted(_cosines(vectors.products))
        mean = vectors.combination(factors * admitted / admitted.sum())
        if self.noise and bound:
            stream = torch_stream(self.seed, "aggregation_flame", of_round.index)
            normals = torch.randn(len(mean), generator=stream, dtype=torch.float32)
            mean.add_(normals.to(mean.device), alpha=self.noise * bound)
        return mean

    def _admitted(self, cosines: np.ndarray) -> np.ndarray:
        """Return which vectors are in the cluster of the majority [m]."""
        from sklearn.cluster import HDBSCAN

        count = len(cosines)
        everyone = np.ones(count, dtype=bool)
        if count < 3:
            return everyone
        distances = np.round(1.0 - cosines, 10)  # the last digits depend on the number of threads
        np.fill_diagonal(distances, 0.0)
        majority = count // 2 + 1
        labels = HDBSCAN(
            min_cluster_size=majority,
            min_samples=1,
            metric="precomputed",
            allow_single_cluster=True,
            copy=True,
        ).fit_predict(distances)
        admitted: np.ndarray = labels == 0
        return admitted if admitted.sum() >= majority else everyone
