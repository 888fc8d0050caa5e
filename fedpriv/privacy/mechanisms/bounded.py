"""Answers whose sensitivity is known because it was enforced.

A :class:`Bounded` is made by the functions of this module alone: each cuts what one unit contributes to the
bound that it states, so that the stated sensitivity holds whatever it is given. A clipper's clipped sum is
one (:class:`fedpriv.privacy.clippers.step_clip.StepClip`), and so are the statistics below.

Types do not stop somebody who wants to cheat: Python lets any code read and write anything. They stop what
happens by mistake.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.common.errors import ReleaseError

if TYPE_CHECKING:
    from torch import Tensor

DOUBLED = 2.0
"""Replacing a unit moves a clipped sum by up to 2C where adding one moves it by up to C."""
ONE_HOT = math.sqrt(2.0)
"""Replacing a unit moves one count of a histogram down and another up."""

_MADE_HERE = object()


class Bounded:
    """The answers of m holders (clients, or the one server for a whole cohort), not yet noised.

    Attributes:
        values: The answers [m, …].
        sensitivity: By how much, in L2, one unit more or less moves each answer, times ``divided_by`` [m];
            ``inf``: without bound. Where ``of_reports``, of every client's report [c] in the one answer.
        replaced: By how many times as much a unit replaced moves it.
        divided_by: The public number by which the values were divided: a mean's denominator.
        of_reports: Whether the one answer is a sum of reports, each noised by its client.
    """

    __slots__ = ("divided_by", "of_reports", "replaced", "sensitivity", "values")

    def __init__(
        self,
        values: Tensor,
        sensitivity: Tensor,
        replaced: float,
        divided_by: float = 1.0,
        of_reports: bool = False,
        *,
        made: object = None,
    ):
        if made is not _MADE_HERE:
            raise ReleaseError(
                "a Bounded is made by a clipper or a bounded statistic (bounded_sum, histogram, ...), which "
                "enforce the sensitivity that it states"
            )
        self.values, self.sensitivity, self.replaced = values, sensitivity, replaced
        self.divided_by, self.of_reports = divided_by, of_reports


def sum_per_owner(values: Tensor, owners: Tensor, count: int) -> Tensor:
    """Sums of ``values`` [n] over the units of each of ``count`` owners → [count], in float64: rounding must
    not move a sum further than a unit may."""
    values = values.double()
    return values.new_zeros(count).index_add_(0, owners, values)


def bounded_sum(values: Tensor, at_most: Tensor, owners: Tensor) -> Bounded:
    """Σ of the values of each owner's units, each cut to [-b, b].

    Args:
        values: One number of each unit [n].
        at_most: b of each owner [m], > 0.
        owners: The owner of each unit [n], in 0 … m-1.
    """
    limits = at_most[owners]
    kept = values.nan_to_num(nan=0.0).minimum(limits).maximum(-limits)
    return Bounded(sum_per_owner(kept, owners, len(at_most)), at_most, DOUBLED, made=_MADE_HERE)


def bounded_rows(values: Tensor, at_most: Tensor, owners: Tensor) -> Bounded:
    """Σ of the vectors of each owner's units [m, B], each shortened to the L2 norm b; one that is not finite
    counts as zero.

    Args:
        values: A vector of each unit [n, B].
        at_most: b of each owner [m], > 0.
        owners: The owner of each unit [n], in 0 … m-1.
    """
    kept = values.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    limits = at_most[owners].double()
    kept = kept * (limits / kept.norm(dim=1).clamp_min(1e-300)).clamp_max(1.0)[:, None]
    sums = kept.new_zeros(len(at_most), values.shape[1]).index_add_(0, owners, kept)
    return Bounded(sums, at_most, DOUBLED, made=_MADE_HERE)


def histogram(bins_of: Tensor, bins: int, owners: Tensor, like: Tensor) -> Bounded:
    """How many of each owner's units fall into each bin [m, B]: a unit counts once.

    Args:
        bins_of: The bin of each unit [n], cut to 0 … B-1.
        bins: B.
        owners: The owner of each unit [n].
        like: A number of each owner [m], for dtype and device.
    """
    counts = like.new_zeros(len(like) * bins)
    places = owners * bins + bins_of.clamp(0, bins - 1)
    counts.index_add_(0, places, like.new_ones(len(bins_of)))
    return Bounded(counts.view(len(like), bins), like.new_ones(len(like)), ONE_HOT, made=_MADE_HERE)


def unbounded_sum(values: Tensor, owners: Tensor, like: Tensor) -> Bounded:
    """Σ of the values of each owner's units as they are: no noise hides a unit."""
    sums = sum_per_owner(values, owners, len(like))
    return Bounded(sums, like.new_full((len(like),), math.inf), DOUBLED, made=_MADE_HERE)


def mean_of_reports(values: list[Tensor], bound: float, whole_clients: bool) -> Bounded:
    """(1/c) Σ_k of the mean of client k's ``values`` [n_k], each cut to [0, b]; not a number counts as b.

    A client's mean moves by at most b/n for one of the n units that it is a mean of: any two values are at
    most b apart, so replacing a unit moves it no further than adding one.

    Args:
        values: The numbers of every client's records.
        bound: b > 0.
        whole_clients: Whether a client is the unit, which moves all of its mean: n is 1.
    """
    import torch

    means = [own.double().nan_to_num(nan=bound).clamp(0.0, bound).mean() for own in values]
    mean = torch.stack(means).mean().view(1)
    units = [1.0 if whole_clients else max(1.0, float(len(own))) for own in values]
    sensitivity = bound / torch.tensor(units, dtype=torch.float64)
    return Bounded(mean, sensitivity, 1.0, float(len(values)), of_reports=True, made=_MADE_HERE)


def clipped_sum(values: Tensor, clip_norms: Tensor, divided_by: float = 1.0) -> Bounded:
    """Return a clipped sum as a bounded value; called by ``privacy.clippers.step_clip.StepClip`` alone."""
    return Bounded(values, clip_norms, DOUBLED, divided_by, made=_MADE_HERE)


def added(answers: list[Bounded]) -> Bounded:
    """Return the sum of one query's answers on one unit each. Raises ReleaseError where they state different
    sensitivities, which would then follow from private values."""
    import torch

    first, *others = answers
    for other in others:
        same = torch.equal(first.sensitivity, other.sensitivity)
        facts = ((a.replaced, a.divided_by, a.of_reports, a.values.shape) for a in (first, other))
        if not same or len(set(facts)) > 1:
            raise ReleaseError(
                "a statistic states another sensitivity for one unit than for the next: it must follow from "
                "what is public; nothing was released"
            )
    total = first.values.clone()
    for other in others:
        total += other.values
    scales = (first.sensitivity, first.replaced, first.divided_by)
    return Bounded(total, *scales, first.of_reports, made=_MADE_HERE)
