"""Steps before a rule: nearest-neighbour mixing, bucketing and adaptive clipping, as matrices.

Each step returns the matrix M [m, n] of y_i = Σ_j M_ij x_j, so no step stores new vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedpriv.aggregation.vectors import Vectors, ascending, share_out
from fedpriv.common.random_streams import numpy_stream


class StepSettings(Protocol):
    """Keys of a rule that its steps read: bucket size s and seed."""

    bucket_size: int
    seed: int


def nearest_neighbour_mixing(
    vectors: Vectors, tolerated: int, round_index: int, settings: StepSettings
) -> np.ndarray:
    """Return the matrix that replaces each vector by the mean of its n - f nearest, itself among them.

    Source: Allouah et al., "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS
    2023, algorithm 2.
    """
    count = len(vectors)
    nearest = ascending(vectors.squared_distances)[:, : count - tolerated]
    return np.stack([share_out(places, count) for places in nearest])


def bucketing(
    vectors: Vectors, tolerated: int, round_index: int, settings: StepSettings
) -> np.ndarray:
    """Return the matrix that averages random buckets of s vectors; the last bucket may have fewer.

    Source: Karimireddy et al., "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
    2022, algorithm 1.
    """
    count = len(vectors)
    order = numpy_stream(settings.seed, "aggregation_buckets", round_index).permutation(count)
    size = settings.bucket_size
    return np.stack(
        [share_out(order[first : first + size], count) for first in range(0, count, size)]
    )


def adaptive_clipping(
    vectors: Vectors, tolerated: int, round_index: int, settings: StepSettings
) -> np.ndarray:
    """Return the matrix that clips the k = ⌊2f(n - f)/n⌋ longest vectors to the norm of the next one.

    Source: Allouah et al., "Adaptive gradient clipping for robust federated learning", ICLR 2025
    (arXiv 2405.14432), algorithm 2.
    """
    count, norms = len(vectors), vectors.norms
    clipped = 2 * tolerated * (count - tolerated) // count
    order = ascending(norms)
    longest, threshold = order[count - clipped :], norms[order[count - clipped - 1]]
    factors = np.ones(count)
    above = longest[norms[longest] > threshold]
    factors[above] = threshold / norms[above]
    return np.diag(factors)


def bucket_count(clients: int, size: int) -> int:
    """Return the number of buckets of so many clients."""
    return -(-clients // size)


STEPS: dict[str, Callable[[Vectors, int, int, StepSettings], np.ndarray]] = {
    "nnm": nearest_neighbour_mixing,
    "bucketing": bucketing,
    "arc": adaptive_clipping,
}
"""Steps by name."""
