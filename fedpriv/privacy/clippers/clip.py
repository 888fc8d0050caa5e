"""One use of a clipper: what it scales is bounded, whatever its rule says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.common.errors import ReleaseError, show
from fedpriv.privacy.mechanisms.bounded import Bounded, clipped_sum

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.clippers.base import Clipper


class Clip:
    """The clip norms of one step, and the sums that were clipped to them.

    Attributes:
        norms: C of each holder [m]: clients, or the one server.
    """

    def __init__(self, clipper: Clipper, round_index: int, holders: Tensor):
        self._clipper = clipper
        norms = clipper.clip_norm(round_index, holders)
        shape = tuple(getattr(norms, "shape", ()))
        if shape != tuple(holders.shape):
            raise ReleaseError(
                f"{type(clipper).__name__}.clip_norm must return a tensor with one number for each of "
                f"{len(holders)} holders, got {show(norms) if not shape else f'shape {shape}'}"
            )
        self.norms = norms.clone()  # ours: no clipper writes into it
        self._scaled = False

    def factors(self, norms: Tensor, owners: Tensor) -> Tensor:
        """The scale c of each unit [n], given its norm [n] and holder [n]: c ‖g‖ ≤ C, enforced."""
        self._scaled = True
        bounds = self.norms[owners]
        most = bounds / norms.clamp_min(1e-30)
        factors = self._clipper.factors(norms.clone(), bounds)
        if self._clipper.unbounded:
            return factors
        return factors.nan_to_num(nan=0.0).minimum(most).maximum(-most)

    def bounded(self, sums: Tensor, divided_by: float = 1.0) -> Bounded:
        """Sums [m, d] of units scaled by :meth:`factors`, divided by a public number. Raises ReleaseError
        where nothing was scaled."""
        if not self._scaled and bool(sums.any()):  # of empty lots nothing is scaled
            raise ReleaseError(
                "a sum was said to be clipped, but the clipper was not asked for its factors"
            )
        sensitivity = self.norms
        if self._clipper.unbounded:
            sensitivity = sensitivity.new_full(sensitivity.shape, math.inf)
        return clipped_sum(sums, sensitivity, divided_by)

    def statistic(self, norms: Tensor, owners: Tensor) -> Bounded:
        """The clipper's own answer on the same units. Raises ReleaseError if it is not a Bounded."""
        answer = self._clipper.statistic(norms.clone(), owners, self.norms.clone())
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                f"histogram, ... of fedpriv.privacy.mechanisms.bounded), got a {type(answer).__name__}"
            )
        return answer
