"""What clients send to a secure sum modulo 2^b, and what the server makes of it.

The steps and the bounds are in :mod:`fedpriv.privacy.mechanisms.discrete`; here they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.secret_streams import Stream
from fedpriv.privacy.core.integer_noise import WeightTable
from fedpriv.privacy.core.masks import pairwise_masks

_TRIES = 1000


@dataclass(frozen=True)
class Coding:
    """How vectors become whole numbers modulo 2^``bits``.

    Attributes:
        unit: C/k, a step of the grid.
        longest: k, what a vector is shortened to in whole numbers, if its roundings are conditional.
        bound: B, the norm of a rounded vector; None: roundings are not conditional.
        dimension: D, a power of two.
    """

    unit: float
    longest: float
    bound: float | None
    dimension: int
    bits: int


def aggregate(
    rows: Tensor,
    coding: Coding,
    table: WeightTable,
    rotation: Stream,
    own: Sequence[Stream],
    keys: Sequence[Stream],
) -> Tensor:
    """The sum of the clients' ``rows`` [c, d] as the server has it [d], float64, on the device of the rows.

    Args:
        rotation: The public stream of the signs.
        own: A secret stream of each client, for its roundings and its share [c].
        keys: One more of each, for its masks; empty: none are simulated.
    """
    signs = random_signs(rotation, coding.dimension)
    modulus = np.int64(1) << np.int64(coding.bits)
    total = np.zeros(coding.dimension, dtype=np.int64)
    masks = pairwise_masks(keys, coding.dimension, coding.bits) if keys else None
    for k, (row, stream) in enumerate(zip(rows, own, strict=True)):
        sent = encoded(row, coding, signs, stream)
        sent += table.draw(stream, coding.dimension)
        if masks is not None:
            sent += masks[k]
        total = np.remainder(total + sent % modulus, modulus)
    return decoded(total, coding, signs, rows.shape[1]).to(rows.device)


def encoded(row: Tensor, coding: Coding, signs: Tensor, stream: Stream) -> np.ndarray:
    """Scaled, rotated and rounded: whole numbers, int64 [D]."""
    rotated = rotate(row.detach().cpu().double().div(coding.unit), signs).numpy()
    if coding.bound is not None:
        return conditionally_rounded(rotated, coding.longest, coding.bound, stream)
    return np.floor(rotated + stream.random(coding.dimension)).astype(np.int64)


def conditionally_rounded(
    vector: np.ndarray, longest: float, bound: float, stream: Stream
) -> np.ndarray:
    """Randomised rounding of ``vector`` [D], shortened to ``longest``, drawn again until its norm is at most
    ``bound``; zeros where that does not happen, which is as good as impossible."""
    norm = float(np.linalg.norm(vector))
    if norm > longest:
        vector = vector * (longest / norm)
    for _ in range(_TRIES):
        rounded = np.floor(vector + stream.random(len(vector))).astype(np.int64)
        if int(rounded @ rounded) <= bound**2:
            return rounded
    return np.zeros(len(vector), dtype=np.int64)


def decoded(total: np.ndarray, coding: Coding, signs: Tensor, size: int) -> Tensor:
    """What the server makes of a sum modulo 2^b [D]: the first ``size`` numbers, float64."""
    half = np.int64(1) << np.int64(coding.bits - 1)
    centred = (total + half) % (2 * half) - half
    numbers = rotated_back(torch.from_numpy(centred.astype(np.float64)), signs)
    return numbers[:size] * coding.unit


def random_signs(stream: Stream, dimension: int) -> Tensor:
    """±1, float64 [D]."""
    bits = np.unpackbits(stream.bits(-(-dimension // 64)).view(np.uint8))[:dimension]
    return torch.from_numpy(1.0 - 2.0 * bits)


def rotate(vector: Tensor, signs: Tensor) -> Tensor:
    """H D x of x [d ≤ D], padded with zeros [D]."""
    longer = torch.zeros(len(signs), dtype=torch.float64)
    longer[: len(vector)] = vector
    return hadamard(longer * signs)


def rotated_back(vector: Tensor, signs: Tensor) -> Tensor:
    """D H y, the inverse."""
    return hadamard(vector) * signs


def hadamard(vector: Tensor) -> Tensor:
    """The normalised Walsh-Hadamard transform of a vector whose length is a power of two: its own inverse."""
    width, whole = 1, len(vector)
    while width < whole:
        pairs = vector.view(-1, 2, width)
        vector = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).view(-1)
        width *= 2
    return vector / math.sqrt(whole)
