"""One use of a clipper: what it scales is bounded, whatever its rule says.

A rule of the user's own is asked about one unit at a time. A scale that looks at other units (their largest
norm, say) would let one unit move the sum by far more than the clip norm, and state that a rule keeps
between two units does the same; so neither reaches the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fedpriv.common.attributes import attribute_digests, changed_attributes, is_own
from fedpriv.common.errors import ReleaseError, show
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.mechanisms.bounded import Bounded, added, clipped_sum

if TYPE_CHECKING:
    from torch import Tensor

Answer = TypeVar("Answer")


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
        if is_own(clipper) and not bool((norms > 0).all()):
            raise ReleaseError(
                f"{type(clipper).__name__}.{what} must return numbers > 0, got {show(float(norms.min()))}"
            )
        self._limits = norms.clone()  # ours: no clipper writes into it
        self.norms = whole_norms(self._limits)
        self._scaled = False
        found = clipper.transform(round_index, holders)
        self._shift_and_scale = None if found is None else tuple(own.clone() for own in found)

    @property
    def rule(self) -> tuple[Tensor, ...]:
        """The public numbers by which units are clipped: the clip norms, shift and scale."""
        return (self._limits, *(self._shift_and_scale or ()))

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
        factors = self._factors(norms, bounds)
        if self._clipper.unbounded:
            return factors
        return factors.nan_to_num(nan=0.0).minimum(most).maximum(-most)

    def _factors(self, norms: Tensor, bounds: Tensor) -> Tensor:
        """Ask the clipper's rule: for all units at once, or for one at a time where the rule is not ours."""
        clipper = self._clipper
        base = getattr(clipper.factors, "__func__", None) is Clipper.factors
        if base or not is_own(clipper):
            return clipper.factors(norms.clone(), bounds)

        def of_unit(unit: int) -> Tensor:
            own = slice(unit, unit + 1)
            return norms.new_zeros(norms[own].shape) + clipper.factors(
                norms[own].clone(), bounds[own].clone()
            )

        def every(units: range) -> list[Tensor]:
            return [of_unit(unit) for unit in units]

        factors = norms.new_zeros(norms.shape)
        forth = self._unmoved("factors", lambda: every(range(len(norms))))
        # backwards as well: state outside the clipper's attributes (a global, a file) is seen by this alone
        back = self._unmoved("factors", lambda: every(range(len(norms) - 1, -1, -1)))[::-1]
        for unit, (one, other) in enumerate(zip(forth, back, strict=True)):
            if not bool(((one == other) | (one.isnan() & other.isnan())).all()):
                raise ReleaseError(
                    f"{type(clipper).__name__}.factors scaled a unit otherwise when it was asked again: the "
                    "scale must follow from the unit's norm and clip norm alone; nothing was released"
                )
            factors[unit] = one[0]
        return factors

    def _unmoved(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Call a method of a clipper of the user's own, which may not keep anything of private values."""
        before = attribute_digests(self._clipper)
        answer = ask()
        if changed := changed_attributes(before, attribute_digests(self._clipper)):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.{what} changed {', '.join(changed)}: it is given private "
                "values and may keep nothing of them; learn from what was released, in observe; nothing was "
                "released"
            )
        return answer

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
        if not is_own(self._clipper) or not len(norms):
            return self._answer(norms, owners)

        def every() -> list[Bounded]:
            units = (slice(unit, unit + 1) for unit in range(len(norms)))
            return [self._answer(norms[own], owners[own]) for own in units]

        return added(self._unmoved("statistic", every))

    def _answer(self, norms: Tensor, owners: Tensor) -> Bounded:
        """The clipper's statistic on some units."""
        answer = self._clipper.statistic(norms.clone(), owners, self._limits.clone())
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                f"histogram, ... of fedpriv.privacy.mechanisms.bounded), got a {type(answer).__name__}"
            )
        return answer
