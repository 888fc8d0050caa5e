"""The messages of clients in a secure sum modulo 2^b, and their decoding by the server.

The steps and their bounds are explained in :mod:`fedpriv.privacy.mechanisms.discrete`; here they are
computed.
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

_TRIES = 1000


@dataclass(frozen=True)
class Coding:
    """The encoding of vectors as whole numbers modulo 2^``bits``.

    Attributes:
        unit: C/k, one step of the grid.
        longest: k, the norm to which a vector is shortened, in steps; used where roundings are conditional.
        bound: B, the largest norm of a rounded vector; None where roundings are not conditional.
        dimension: D, a power of two.
        bits: b.
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
    noise_streams: Sequence[Stream],
) -> Tensor:
    """Return the sum of the clients' vectors as the server decodes it.

    Each client encodes its vector and adds its share of the noise, and the messages are added modulo 2^b.
    A coordinate whose sum does not lie in [-2^(b-1), 2^(b-1)) wraps around and is decoded wrongly.

    Args:
        rows: One vector for each client [c, d].
        coding: The encoding.
        table: The law of a client's share of the noise.
        rotation: The public stream of the signs.
        noise_streams: Secret streams of the clients, for their roundings and their shares of the noise [c].

    Returns:
        The sum [d] in float64, on the device of ``rows``.
    """
    signs = random_signs(rotation, coding.dimension)
    modulus = np.int64(1) << np.int64(coding.bits)
    total = np.zeros(coding.dimension, dtype=np.int64)
    for row, stream in zip(rows, noise_streams, strict=True):
        sent = encoded(row, coding, signs, stream)
        sent += table.draw(stream, coding.dimension)
        total = np.remainder(total + sent % modulus, modulus)
    return decoded(total, coding, signs, rows.shape[1]).to(rows.device)


def encoded(row: Tensor, coding: Coding, signs: Tensor, stream: Stream) -> np.ndarray:
    """Return the vector in steps of the grid, rotated and rounded at random to whole numbers, int64 [D].

    Args:
        row: One client's vector [d].
        coding: The encoding. If it has a ``bound``, the vector is shortened to ``longest`` first and its
            rounding is drawn again until the norm is within the bound; else neither is done.
        signs: Public signs of the rotation [D].
        stream: The client's secret stream, for the rounding.
    """
    rotated = rotate(row.detach().cpu().double().div(coding.unit), signs).numpy()
    if coding.bound is not None:
        return conditionally_rounded(rotated, coding.longest, coding.bound, stream)
    return np.floor(rotated + stream.random(coding.dimension)).astype(np.int64)


def conditionally_rounded(
    vector: np.ndarray, longest: float, bound: float, stream: Stream
) -> np.ndarray:
    """Return a random rounding of ``vector`` [D] whose norm is at most ``bound``.

    The vector is shortened to ``longest`` first. The rounding is drawn again until its norm fits. The result
    is zeros where none of 1000 roundings fits, which has a negligible probability.

    Args:
        vector: Numbers in steps of the grid [D].
        longest: k, the norm to which the vector is shortened.
        bound: B, the largest norm of the result.
        stream: Secret stream of the client.

    Returns:
        Whole numbers [D], each the floor or the ceiling of its number; the mean over draws is near the
        vector.
    """
    norm = float(np.linalg.norm(vector))
    if norm > longest:
        vector = vector * (longest / norm)
    for _ in range(_TRIES):
        rounded = np.floor(vector + stream.random(len(vector))).astype(np.int64)
        if int(rounded @ rounded) <= bound**2:
            return rounded
    return np.zeros(len(vector), dtype=np.int64)


def decoded(total: np.ndarray, coding: Coding, signs: Tensor, size: int) -> Tensor:
    """Return the first ``size`` numbers of a sum modulo 2^b [D], rotated back and in their unit, float64.

    The values of ``total`` are read as whole numbers from -2^(b-1) to 2^(b-1) - 1.

    Args:
        total: The sum of the messages, int64 [D].
        coding: The encoding of the messages.
        signs: The signs of the rotation, ±1 [D].
        size: d, as the vectors were before they were padded.
    """
    half = np.int64(1) << np.int64(coding.bits - 1)
    centred = (total + half) % (2 * half) - half
    numbers = rotated_back(torch.from_numpy(centred.astype(np.float64)), signs)
    return numbers[:size] * coding.unit


def random_signs(stream: Stream, dimension: int) -> Tensor:
    """Return random signs ±1, float64 [dimension].

    Args:
        stream: Public stream, as the server must know the signs.
        dimension: Number of signs.
    """
    bits = np.unpackbits(stream.bits(-(-dimension // 64)).view(np.uint8))[:dimension]
    return torch.from_numpy(1.0 - 2.0 * bits)


def rotate(vector: Tensor, signs: Tensor) -> Tensor:
    """Return H S x of x = ``vector`` [d ≤ D], which is padded with zeros [D].

    H is the Hadamard matrix scaled to be orthogonal, and S the diagonal matrix of ``signs`` [D].
    """
    longer = torch.zeros(len(signs), dtype=torch.float64)
    longer[: len(vector)] = vector
    return hadamard(longer * signs)


def rotated_back(vector: Tensor, signs: Tensor) -> Tensor:
    """Return S H y of y = ``vector`` [D], the inverse of :func:`rotate` with the same ``signs`` [D]."""
    return hadamard(vector) * signs


def hadamard(vector: Tensor) -> Tensor:
    """Return the normalised Walsh-Hadamard transform of a vector.

    The transform is its own inverse. The length of the vector is a power of two.
    """
    width, whole = 1, len(vector)
    while width < whole:
        pairs = vector.view(-1, 2, width)
        vector = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).view(-1)
        width *= 2
    return vector / math.sqrt(whole)
