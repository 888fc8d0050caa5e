"""The clip of one step: what it scales is bounded, whatever the clipper's rule says.

A rule of the user's own is asked about one unit at a time. A scale that looks at other units (their largest
norm, say) would let one unit move the sum by far more than the clip norm, and state that a rule keeps
between two units does the same; so neither reaches the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedpriv.common.attributes import attribute_digests, changed_attributes, is_own
from fedpriv.common.errors import ReleaseError, show
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.mechanisms.bounded import Bounded, added, clipped_sum

if TYPE_CHECKING:
    from torch import Tensor

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ChunkAnswer:
    """What a chunk of c clients computed: sums to be released, and a number for each of n units.

    A unit is a record, or the upload of a client. Losses are for the analyst alone, of each record or summed
    up for each client.

    Attributes:
        clients: Whose answers these are [c].
        sums: The clipped sum of each client [c, d]; the sum of all in float64 [1, d] if ``partial``.
        partial: Whether the chunk has one sum for all of its clients.
        scaled: Whether the clipper was asked for the scale of the units.
        norms: Of each unit before clipping [n], or of its parts [n, G]; 0 for one that is not finite.
        finite: Whether the unit counts [n]; one that is not finite contributes zero.
        units: The position in the chunk of the client that each unit is of [n].
        losses: Losses [l], 0 for those that are not finite.
        records: How many records each loss is the sum of [l], with those that are left out.
        left_out: How many of these records are no units, have no finite gradient, and are in no loss.
        sent_norms: The norm of what each client sent [c], where attackers take part in it; else None.
    """

    clients: np.ndarray
    sums: Tensor
    partial: bool
    scaled: bool
    norms: Tensor
    finite: Tensor
    units: Tensor
    losses: Tensor
    records: Tensor
    left_out: int = 0
    sent_norms: Tensor | None = None


class ChunkClip:
    """Scales the units of a chunk of clients so that each is at most its holder's clip norm.

    Attributes:
        limits: C of each holder [m], or of each part [m, G].
        transform: (shift, scale) of each coordinate [m, d] where units are clipped in another space, or None.
        parts: The parts of a gradient that are clipped apart; None: it is clipped as a whole.
        scaled: Whether ``factors`` was called.
    """

    def __init__(
        self, clipper: Clipper, limits: Tensor, transform: tuple[Tensor, Tensor] | None = None
    ):
        self._clipper, self.parts = clipper, clipper.parts
        self.limits, self.transform = limits, transform
        self.scaled = False

    def transformed(self, units: Tensor, owners: Tensor) -> Tensor:
        """Return units [n, d] of these holders [n] in the space in which they are clipped."""
        if self.transform is None:
            return units
        shift, scale = self.transform
        return (units - shift[owners]) / scale[owners]

    def factors(self, norms: Tensor, owners: Tensor) -> Tensor:
        """The scale c of each unit [n], given its norm [n] and holder [n]: c ‖g‖ ≤ C, enforced; of each part
        [n, G], given the norms of the parts."""
        self.scaled = True
        bounds = self.limits[owners]
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


class StepClip(ChunkClip):
    """The clip norms of one step, and the one maker of sums that were clipped to them.

    Attributes:
        norms: C of each holder [m]: clients, or the one server; by so much one unit moves its sum.
    """

    def __init__(self, clipper: Clipper, round_index: int, holders: Tensor):
        parts = clipper.parts
        if parts is None:
            norms, wanted = clipper.clip_norm(round_index, holders), tuple(holders.shape)
            what, of_parts = "clip_norm", ""
        else:
            what, of_parts = "part_norms", f" and {len(parts)} parts"
            norms = clipper.part_norms(round_index, holders)
            wanted = (len(holders), len(parts))
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
        transform = clipper.transform(round_index, holders) if clipper.transforms else None
        if transform is not None:
            shift, scale = transform
            transform = shift.clone(), scale.clone()
        super().__init__(clipper, norms.clone(), transform)  # ours: no clipper writes into it
        self.norms = whole_norms(self.limits)

    def restored(self, means: Tensor) -> Tensor:
        """Noised means [m, d] back in the space of the weights: post-processing."""
        if self.transform is None:
            return means
        shift, scale = self.transform
        return means.mul_(scale).add_(shift)

    def restored_noise(self, std: Tensor) -> Tensor:
        """The standard deviation of their noise [m, 1] there → [m, d]."""
        return std if self.transform is None else std * self.transform[1]

    def merge(
        self,
        answers: Sequence[ChunkAnswer],
        cohort: np.ndarray,
        denominator: float | None = None,
        stated_denominator: float = 1.0,
        apart: bool = False,
    ) -> Bounded:
        """Join what the chunks of a cohort computed into one answer, in the order of the chunks.

        Args:
            answers: What each chunk computed.
            cohort: The clients that are to be in the answer [c], ascending.
            denominator: By what the cohort's sum is divided before the noise; None: it is not divided.
            stated_denominator: The public denominator that the record of the release states; 1 where the
                sensitivity is that of the mean itself.
            apart: Whether each client's sum is released by itself, where one holder has the clip norm of all.

        Raises:
            ReleaseError: A client is missing, or is there twice or in another place; a chunk's sums are not
                those of its clients; sums were not scaled.
        """
        clients = np.concatenate([answer.clients for answer in answers])
        if not np.array_equal(clients, cohort) or bool((clients[1:] <= clients[:-1]).any()):
            raise _not_the_cohort(clients, cohort)
        for answer in answers:
            rows = 1 if answer.partial else len(answer.clients)
            if len(answer.sums) != rows or answer.partial != answers[0].partial:
                raise ReleaseError(
                    f"a chunk of {len(answer.clients)} clients answered {len(answer.sums)} sums, not {rows}; "
                    "nothing was released"
                )
        # of empty lots nothing is scaled
        self.scaled = all(answer.scaled or not bool(answer.sums.any()) for answer in answers)
        sums, *others = [answer.sums for answer in answers]
        if others and answers[0].partial:
            for partial in others:
                sums = sums + partial
        elif others:
            import torch

            sums = torch.cat([sums, *others])
        mean = sums if denominator is None else sums / denominator
        return self.bounded(mean, stated_denominator, apart)

    def bounded(self, sums: Tensor, divided_by: float = 1.0, apart: bool = False) -> Bounded:
        """Sums [m, d] of units scaled by :meth:`factors`, divided by a public number; ``apart``: each of a
        client, and one holder has the clip norm of all. Raises ReleaseError where nothing was scaled."""
        if not self.scaled and bool(sums.any()):  # of empty lots nothing is scaled
            raise ReleaseError(
                "a sum was said to be clipped, but the clipper was not asked for its factors"
            )
        sensitivity = self.norms
        if self._clipper.unbounded:
            sensitivity = sensitivity.new_full(sensitivity.shape, math.inf)
        if apart:
            sensitivity = sensitivity.expand(len(sums))
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
        answer = self._clipper.statistic(norms.clone(), owners, self.limits.clone())
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                f"histogram, ... of fedpriv.privacy.mechanisms.bounded), got a {type(answer).__name__}"
            )
        return answer


def _not_the_cohort(clients: np.ndarray, cohort: np.ndarray) -> ReleaseError:
    """Say how the chunks' clients differ from those of the cohort, each once and ascending."""
    named, times = np.unique(clients, return_counts=True)
    found = [
        f"{what} {', '.join(map(str, own[:10]))}"
        for what, own in (
            ("missing", np.setdiff1d(cohort, named)),
            ("there twice", named[times > 1]),
            ("not of the cohort", np.setdiff1d(named, cohort)),
        )
        if len(own)
    ]
    return ReleaseError(
        "the clients that computed are not those of the round, each once and in order: "
        f"{'; '.join(found) or 'in another order'}; nothing was released"
    )
