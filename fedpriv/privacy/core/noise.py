"""Gaussian noise in double precision, rounded to a public grid.

    released = g · round( (x + σ N) / g ),    g = 2^(⌊log2 σ⌋ - 14),   σ the standard deviation, N ~ N(0, 1)

Floating point leaks through noise: the numbers that x + σ N can be depend on x, so that some outputs are
possible with a record and impossible without it (Mironov, "On significance of the least significant bits for
differential privacy", CCS 2012). Here every output is a multiple of g whatever x is, and a cell of the grid
holds more than 2^37 values of the noise wherever it has mass. All later steps are post-processing. g depends
on σ alone, which is public. A multiple of g below 2^10 σ is exact in float32.

Noise does not depend on data, so it can be drawn while gradients are computed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import islice

import torch
from torch import Tensor

from fedpriv.common.secret_streams import Stream, standard_normals

GRID_BITS = 14
_BLOCK = 2**19  # numbers in one block, the unit of work
_AHEAD = 64  # blocks drawn ahead: 256 MiB


def grid_of(std: Tensor) -> Tensor:
    """Return g = 2^(⌊log2 σ⌋ - 14), a power of two, for standard deviations σ > 0; float64."""
    std = std.to(torch.float64)
    exponent = torch.frexp(std).exponent  # σ = m 2^e with ½ <= m < 1
    return torch.ldexp(torch.ones_like(std), exponent - 1 - GRID_BITS)


def add_on_grid(values: Tensor, noise: Tensor, std: Tensor) -> Tensor:
    """Replace ``values`` by their release with noise, and return ``values``.

    Args:
        values: Exact values [m, …], overwritten.
        noise: Standard normals in float64, of the shape of ``values``.
        std: Standard deviation of the noise of each row [m].
    """
    shape = (-1, *[1] * (values.dim() - 1))
    std = std.to(torch.float64).view(shape)
    grid = grid_of(std)
    steps = grid.reciprocal()  # exact: the grid is a power of two
    exact = values.to(torch.float64).mul_(steps)
    return values.copy_(exact.addcmul_(noise, std * steps).round_().mul_(grid))


class Noise:
    """Standard normals for m rows of ``size`` numbers, from one stream for each row.

    They are drawn ahead on another thread where a processor is idle, else when they are needed. Neither
    changes the numbers.

    Args:
        streams: One secret stream for each row [m]. Drawing ahead reads them from another thread, so nothing
            else may draw from them meanwhile.
        size: Length of a row.
    """

    def __init__(self, streams: Sequence[Stream], size: int):
        rows = max(1, _BLOCK // max(1, size))
        blocks = (streams[first : first + rows] for first in range(0, len(streams), rows))
        self._blocks = (partial(standard_normals, block, size) for block in blocks)
        self._rows: int | None = len(streams)
        self._drawn: deque[Future[Tensor]] = deque()
        if _processors() > torch.get_num_threads():
            for draw in islice(self._blocks, _AHEAD):
                self._drawn.append(_thread().submit(draw))

    def _next(self) -> Iterator[Tensor]:
        # Every block that is taken makes room for one more block on the other thread.
        while self._drawn:
            yield self._drawn.popleft().result()
            for draw in islice(self._blocks, 1):
                self._drawn.append(_thread().submit(draw))
        for draw in self._blocks:
            yield draw()

    def add_to(self, values: Tensor, std: Tensor) -> Tensor:
        """Add noise to ``values`` in place and return them; may be called once.

        Args:
            values: Exact values [m, size], overwritten.
            std: Standard deviation of the noise of each row [m].

        Raises:
            ValueError: The noise is for another number of rows, or was used already.
        """
        if len(values) != self._rows:
            raise ValueError(
                f"noise for {self._rows} rows, not for {len(values)}; None means that it was used already"
            )
        self._rows, first = None, 0
        for noise in self._next():
            rows = slice(first, first + len(noise))
            add_on_grid(values[rows], noise.to(values.device, non_blocking=True), std[rows])
            first = rows.stop
        return values


@cache
def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _thread() -> ThreadPoolExecutor:
    """Return the one thread that draws all noise of this process."""
    return ThreadPoolExecutor(1, thread_name_prefix="noise")
