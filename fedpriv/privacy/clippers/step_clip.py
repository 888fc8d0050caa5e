"""Clip of one step: every scaled unit is bounded, for any clipper.

A clipper outside fedpriv is asked about one unit at a time. A factor that depends on other units (their
largest norm, say) would let one unit move the sum by far more than the clip norm. So would state that the
clipper keeps between two units. Asking about each unit alone, forwards and backwards, excludes both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
    """Result of the computation of a chunk of c clients: sums to be released, and numbers of n units.

    A unit is a record, or the upload of a client. Losses are for the analyst alone. There are l of them, one
    for each record or one sum for each client.

    Attributes:
        clients: Positions of the clients [c].
        sums: The clipped sum of each client [c, d]; the float64 sum of all [1, d] if ``partial``.
        partial: Whether the chunk has one sum for all of its clients.
        scaled: Whether the clipper was asked for the factors of the units.
        norms: Norm of each unit before clipping [n], or of its parts [n, G]; 0 for a unit that is not finite.
        finite: Whether each unit is finite [n]. A unit that is not finite contributes zero.
        units: Position in the chunk of each unit's client [n].
        losses: Losses [l], 0 for those that are not finite.
        records: Number of records that each loss sums up [l], including those left out.
        left_out: Number of records that are no units, have no finite gradient, and are in no loss.
        sent_norms: Norm of each client's upload as sent [c] where attackers take part; otherwise None.
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
    """Clip of the units of a chunk of clients: each scaled unit is at most its holder's clip norm.

    Attributes:
        limits: C of each holder [m], or of each part [m, G].
        parts: Parts of a gradient that are clipped apart; None if it is clipped as a whole.
        scaled: Whether :meth:`factors` was called.
    """

    def __init__(self, clipper: Clipper, limits: Tensor):
        self._clipper, self.parts = clipper, clipper.parts
        self.limits, self.scaled = limits, False

    def factors(self, norms: Tensor, owners: Tensor) -> Tensor:
        """Return the factor c of each unit, with |c| ‖g‖ ≤ C enforced unless the clipper is ``unbounded``.

        Args:
            norms: Norm of each unit [n], or of its parts [n, G].
            owners: Position of each unit's holder [n], in 0 … m-1.

        Returns:
            Factors [n], or [n, G] for parts. A factor that is not a number becomes 0. The factors of an
            unbounded clipper are returned as they are.

        Raises:
            ReleaseError: A clipper outside fedpriv changed its state, or answered differently when asked
                again.
        """
        self.scaled = True
        bounds = self.limits[owners]
        # Whatever the clipper returns, the scaled unit stays within its clip norm: |c| ≤ C/‖g‖. A clipper may
        # turn a gradient round (c < 0). The floor keeps a unit of norm 0 from dividing by 0.
        most = bounds / norms.clamp_min(1e-30)
        factors = self._factors(norms, bounds)
        if self._clipper.unbounded:
            return factors
        return factors.nan_to_num(nan=0.0).minimum(most).maximum(-most)

    def _factors(self, norms: Tensor, bounds: Tensor) -> Tensor:
        """Ask the clipper for all units at once, or for one at a time if its class is outside fedpriv."""
        clipper = self._clipper
        base = getattr(clipper.factors, "__func__", None) is Clipper.factors
        if base or not is_own(clipper):
            return clipper.factors(norms.clone(), bounds)

        def one_at_a_time(units: range) -> list[Tensor]:
            answers = []
            for unit in units:
                row = slice(unit, unit + 1)
                answer = clipper.factors(norms[row].clone(), bounds[row].clone())
                answers.append(norms.new_zeros(norms[row].shape) + answer)
            return answers

        factors, units = norms.new_zeros(norms.shape), range(len(norms))
        forwards = self._unmoved("factors", lambda: one_at_a_time(units))
        # Ask backwards as well: only this reveals state outside the clipper's attributes (a global, a file).
        backwards = self._unmoved("factors", lambda: one_at_a_time(units[::-1]))[::-1]
        for unit, (factor, factor_again) in enumerate(zip(forwards, backwards, strict=True)):
            if not bool(((factor == factor_again) | (factor.isnan() & factor_again.isnan())).all()):
                raise ReleaseError(
                    f"{type(clipper).__name__}.factors returned another factor when asked again about "
                    "a unit: a factor must follow from the unit's norm and clip norm alone; "
                    "nothing was released"
                )
            factors[unit] = factor[0]
        return factors

    def _unmoved(self, method: str, ask: Callable[[], Answer]) -> Answer:
        """Call a method of a clipper outside fedpriv, and refuse a change of its attributes.

        The method is given private values, of which it may keep nothing.
        """
        before = attribute_digests(self._clipper)
        answer = ask()
        if changed := changed_attributes(before, attribute_digests(self._clipper)):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.{method} changed {', '.join(changed)}: this method is given "
                "private values and must not store them; learn from released values, in observe; nothing was "
                "released"
            )
        return answer


class StepClip(ChunkClip):
    """Clip norms of one step, and the only maker of sums that were clipped to these norms.

    Attributes:
        norms: C of each holder [m], a client or the one server. One unit more or less moves the holder's sum
            by at most C.

    Args:
        clipper: The clipper.
        round_index: t.
        holders: Positions of the holders [m], int64.

    Raises:
        ReleaseError: The clipper's clip norms have a wrong shape, or are not above 0.
    """

    def __init__(self, clipper: Clipper, round_index: int, holders: Tensor):
        # A clipper of the user's own need not know where the model is.
        parts = clipper.parts
        if parts is None:
            norms, expected_shape = clipper.clip_norm(round_index, holders), tuple(holders.shape)
            method, of_parts = "clip_norm", ""
        else:
            method, of_parts = "part_norms", f" and {len(parts)} parts"
            norms = clipper.part_norms(round_index, holders)
            expected_shape = (len(holders), len(parts))
        shape = tuple(getattr(norms, "shape", ()))
        if shape != expected_shape:
            raise ReleaseError(
                f"{type(clipper).__name__}.{method} must return a tensor with one number for each of "
                f"{len(holders)} holders{of_parts}, got {show(norms) if not shape else f'shape {shape}'}"
            )
        if is_own(clipper) and not bool((norms > 0).all()):
            raise ReleaseError(
                f"{type(clipper).__name__}.{method} must return numbers > 0, got {show(float(norms.min()))}"
            )
        # A copy, so that no clipper can change it later.
        super().__init__(clipper, norms.to(holders.device, copy=True))
        self.norms = whole_norms(self.limits)

    def merge(
        self,
        answers: Iterable[ChunkAnswer],
        cohort: np.ndarray,
        denominator: float | None = None,
        stated_denominator: float = 1.0,
        apart: bool = False,
    ) -> Bounded:
        """Join the answers of a cohort's chunks to one bounded sum, in the order of the chunks.

        Args:
            answers: The answer of each chunk, taken one after the other.
            cohort: Positions of the clients that must be in the sum [c], ascending.
            denominator: Number that divides the cohort's sum before the noise; None means no division.
            stated_denominator: Public denominator in the record of the release; 1 where the sensitivity is
                that of the mean itself.
            apart: Whether each client's sum is released by itself although one holder has the clip norm of
                all.

        Raises:
            ReleaseError: A client is missing, or is there twice or in another place; a chunk's sums are not
                those of its clients; sums were not scaled.
        """
        clients: list[np.ndarray] = []
        sums: list[Tensor] = []
        self.scaled = True
        partial: bool | None = None
        for answer in answers:
            rows = 1 if answer.partial else len(answer.clients)
            partial = answer.partial if partial is None else partial
            if len(answer.sums) != rows or answer.partial != partial:
                raise ReleaseError(
                    f"a chunk of {len(answer.clients)} clients answered {len(answer.sums)} sums, not {rows}; "
                    "nothing was released"
                )
            # Sums of empty lots are zero without any scaling.
            self.scaled = self.scaled and (answer.scaled or not bool(answer.sums.any()))
            clients.append(answer.clients)
            # Partial sums are added in the order of the chunks, so that the result does not depend on which
            # process computed which chunk.
            sums = [sums[0] + answer.sums] if partial and sums else [*sums, answer.sums]
        answered = np.concatenate(clients)
        if not np.array_equal(answered, cohort) or bool((answered[1:] <= answered[:-1]).any()):
            raise _not_the_cohort(answered, cohort)
        total = sums[0]
        if len(sums) > 1:
            import torch

            total = torch.cat(sums)
        mean = total if denominator is None else total / denominator
        return self.bounded(mean, stated_denominator, apart)

    def bounded(self, sums: Tensor, divided_by: float = 1.0, apart: bool = False) -> Bounded:
        """Return sums of units scaled by :meth:`factors`, as a bounded value with sensitivity C.

        Args:
            sums: Sums [m, d], already divided by ``divided_by``.
            divided_by: The public denominator.
            apart: Whether each row belongs to a client although one holder has the clip norm of all.

        Raises:
            ReleaseError: The clipper was not asked for its factors, and the sums are not zero.
        """
        if not self.scaled and bool(sums.any()):  # an empty lot has sum zero without any scaling
            raise ReleaseError(
                "a sum must be clipped before its release, but the clipper was not asked for its factors"
            )
        sensitivity = self.norms
        if self._clipper.unbounded:
            sensitivity = sensitivity.new_full(sensitivity.shape, math.inf)
        if apart:
            sensitivity = sensitivity.expand(len(sums))
        return clipped_sum(sums, sensitivity, divided_by)

    def statistic(self, norms: Tensor, owners: Tensor) -> Bounded:
        """Return the clipper's own statistic on the units of this step.

        A clipper outside fedpriv is asked about each unit alone, and its answers are added up.

        Args:
            norms: Norm of each unit [n], or of its parts [n, G].
            owners: Position of each unit's holder [n], in 0 … m-1.

        Raises:
            ReleaseError: The statistic is no ``Bounded``; a clipper outside fedpriv changed its state, or
                stated different sensitivities for different units.
        """
        if not is_own(self._clipper) or not len(norms):
            return self._answer(norms, owners)

        # A statistic that looks at several units could hide in one unit's answer what it saw of another.
        rows = [slice(unit, unit + 1) for unit in range(len(norms))]
        answers = self._unmoved(
            "statistic", lambda: [self._answer(norms[row], owners[row]) for row in rows]
        )
        return added(answers)

    def _answer(self, norms: Tensor, owners: Tensor) -> Bounded:
        answer = self._clipper.statistic(norms.clone(), owners, self.limits.clone())
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                f"histogram, ... of fedpriv.privacy.mechanisms.bounded), got a {type(answer).__name__}"
            )
        return answer


def _not_the_cohort(clients: np.ndarray, cohort: np.ndarray) -> ReleaseError:
    """Return an error that says how the chunks' clients differ from the cohort."""
    named, times = np.unique(clients, return_counts=True)
    differences = [
        f"{kind} {', '.join(map(str, clients_of_kind[:10]))}"
        for kind, clients_of_kind in (
            ("missing", np.setdiff1d(cohort, named)),
            ("there twice", named[times > 1]),
            ("not of the cohort", np.setdiff1d(named, cohort)),
        )
        if len(clients_of_kind)
    ]
    return ReleaseError(
        "every client of the round must compute once, in ascending order; got: "
        f"{'; '.join(differences) or 'another order'}; nothing was released"
    )
