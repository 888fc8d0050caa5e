"""One use of a clipper: what it scales is bounded, whatever its rule says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.common.errors import ReleaseError, show
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.mechanisms.bounded import Bounded, clipped_sum

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.clippers.base import Clipper


class Clip:
    """The clip norms of one step, and the sums that were clipped to them.

    Attributes:
        norms: C of each holder [m]: clients, or the one server; by so much one unit moves its sum.
        parts: The parts of a gradient that are clipped apart; None: it is clipped as a whole.
    """

    def __init__(self, clipper: Clipper, round_index: int, holders: Tensor):
        self._clipper = clipper
        self.parts = clipper.parts
        if self.parts is None:
            norms, wanted = clipper.clip_norm(round_index, holders), tuple(holders.shape)
            what, of_parts = "clip_norm", ""
        else:
            what, of_parts = "part_norms", f" and {len(self.parts)} parts"
            norms = clipper.part_norms(round_index, holders)
            wanted = (len(holders), len(self.parts))
        shape = tuple(getattr(norms, "shape", ()))
        if shape != wanted:
            raise ReleaseError(
                f"{type(clipper).__name__}.{what} must return a tensor with one number for each of "
                f"{len(holders)} holders{of_parts}, got {show(norms) if not shape else f'shape {shape}'}"
            )
        self._limits = norms.clone()  # ours: no clipper writes into it
        self.norms = whole_norms(self._limits)
        self._scaled = False
        found = clipper.transform(round_index, holders)
        self._shift_and_scale = None if found is None else tuple(own.clone() for own in found)

    def transformed(self, uploads: Tensor, owners: Tensor) -> Tensor:
        """Units [n, d] of these holders [n] in the space in which they are clipped."""
        if self._shift_and_scale is None:
            return uploads
        shift, scale = self._shift_and_scale
        return (uploads - shift[owners]) / scale[owners]

    def restored(self, means: Tensor) -> Tensor:
        """Noised means [m, d] back in the space of the weights: post-processing."""
        if self._shift_and_scale is None:
            return means
        shift, scale = self._shift_and_scale
        return means.mul_(scale).add_(shift)

    def restored_noise(self, std: Tensor) -> Tensor:
        """The standard deviation of their noise [m, 1] there → [m, d]."""
        return std if self._shift_and_scale is None else std * self._shift_and_scale[1]

    def factors(self, norms: Tensor, owners: Tensor) -> Tensor:
        """The scale c of each unit [n], given its norm [n] and holder [n]: c ‖g‖ ≤ C, enforced; of each part
        [n, G], given the norms of the parts."""
        self._scaled = True
        bounds = self._limits[owners]
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
        answer = self._clipper.statistic(norms.clone(), owners, self._limits.clone())
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                f"histogram, ... of fedpriv.privacy.mechanisms.bounded), got a {type(answer).__name__}"
            )
        return answer
