"""Clip of one step: every scaled unit is bounded, for any clipper.

A factor that depends on other units (their largest norm, say) would let one unit move the sum by far more
than the clip norm, and so would state that a clipper keeps of private values. So a clipper outside fedpriv is
asked on a copy, and once more with one unit huge: no other answer may change, nor the copy's state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ReleaseError, show
from fedpriv.common.exact import exact_digest
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.mechanisms.bounded import Bounded, clipped_sum

if TYPE_CHECKING:
    from torch import Tensor

_HUGE = 1e12
_TINY = 1e-12


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
        round_index: t.
    """

    def __init__(self, clipper: Clipper, limits: Tensor, round_index: int):
        self._clipper, self.parts, self.round_index = clipper, clipper.parts, round_index
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
            ReleaseError: A factor of a clipper outside fedpriv depends on other units, or its state changed.
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
        """Ask the clipper; one outside fedpriv again, with another unit huge, and with all others tiny."""
        base = getattr(self._clipper.factors, "__func__", None) is Clipper.factors
        if base or not is_own(self._clipper):
            return self._clipper.factors(norms.clone(), bounds)
        if not len(norms):
            return norms.clone()

        def ask(norms: Tensor) -> Tensor:
            given = norms.clone(), bounds.clone()
            return norms.new_zeros(norms.shape) + self._ask_copy("factors", *given)

        changed, place = _with_one_huge(norms)
        factors, again = ask(norms), ask(changed)
        again[place] = factors[place]
        if not bool((factors.nan_to_num() == again.nan_to_num()).all()):
            raise self._refusal("factors gave a unit another factor when another unit was huge")
        place = int(whole_norms(norms).nan_to_num(0.0, 0.0, 0.0).argmax())
        tiny = norms * _TINY  # a threshold for outliers hardly moves with one unit alone
        tiny[place] = norms[place]
        if not bool((ask(tiny)[place].nan_to_num() == factors[place].nan_to_num()).all()):
            raise self._refusal("factors gave a unit another factor when the others were tiny")
        return factors

    def _ask_copy(self, method: str, *given: Any) -> Any:
        """Return the answer of a copy of the clipper, whose state and clip norm must be as they were."""

        def state(clipper: Clipper) -> str:
            holder = self.limits.new_zeros(1).long()
            clip_norm = copy.deepcopy(clipper).clip_norm(self.round_index, holder)
            return exact_digest(vars(clipper), clip_norm)

        asked = copy.deepcopy(self._clipper)
        before = state(asked)
        answer = getattr(asked, method)(*given)
        if state(asked) != before:
            raise self._refusal(f"{method} changed the clipper's state, or its next clip norm")
        return answer

    def _refusal(self, what: str) -> ReleaseError:
        return ReleaseError(
            f"{type(self._clipper).__name__}.{what}: it must follow from one unit and its clip norm, and "
            "keep nothing; learn from released values, in observe; nothing was released"
        )


def _with_one_huge(norms: Tensor) -> tuple[Tensor, int]:
    """Return norms in which the smallest unit is huge, so that any order statistic moves, and its place."""
    place = int(whole_norms(norms).argmin())
    changed = norms.clone()
    changed[place] = _HUGE
    return changed, place


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
        super().__init__(clipper, norms.to(holders.device, copy=True), round_index)
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

        Args:
            norms: Norm of each unit [n], or of its parts [n, G].
            owners: Position of each unit's holder [n], in 0 … m-1.

        Raises:
            ReleaseError: The statistic is no ``Bounded``; that of a clipper outside fedpriv is no sum over
                units, its sensitivity depends on them, or its state changed.
        """
        own = is_own(self._clipper)

        def ask(norms: Tensor, owners: Tensor) -> Bounded:
            given = norms.clone(), owners, self.limits.clone()
            answer = self._ask_copy("statistic", *given) if own else self._clipper.statistic(*given)
            if not isinstance(answer, Bounded):
                raise ReleaseError(
                    f"{type(self._clipper).__name__}.statistic must return a bounded statistic (bounded_sum, "
                    "histogram, ... of fedpriv.privacy.mechanisms.bounded), got a "
                    f"{type(answer).__name__}"
                )
            return answer

        answer = ask(norms, owners)
        if not own or len(norms) < 2:
            return answer
        changed, _ = _with_one_huge(norms)
        lower, upper = whole_norms(norms).argsort().chunk(2)
        for lot in (norms, changed):
            found = answer if lot is norms else ask(changed, owners)
            halves = [ask(lot[half], owners[half]) for half in (lower, upper)]
            if any(_scale(part) != _scale(answer) for part in (found, *halves)):
                raise self._refusal("statistic states different sensitivities for different units")
            beside = (found.values - halves[0].values - halves[1].values).abs().max()
            if bool(beside > 1e-3 * answer.sensitivity.max() / answer.divided_by):
                raise self._refusal("statistic is no sum of what it is for each unit alone")
        return answer


def _scale(answer: Bounded) -> tuple[object, ...]:
    return answer.sensitivity.tolist(), answer.replaced, answer.divided_by, answer.of_reports


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
