"""Answers with a known sensitivity, which the functions of this module enforce.

Each function cuts the contribution of one unit to the stated bound, so that the stated sensitivity holds for
any input. A clipper's clipped sum (:class:`fedpriv.privacy.clippers.step_clip.StepClip`) is a
:class:`Bounded` value, and so are the statistics below.

The types prevent mistakes, not malice: Python lets any code read and write anything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

DOUBLED = 2.0
"""Factor of a clipped sum: replacing a unit moves it by up to 2C, adding a unit by up to C."""
ONE_HOT = math.sqrt(2.0)
"""Factor of a histogram: replacing a unit moves one count down and another one up, √2 in L2."""


class Bounded:
    """Answers of m holders with their enforced sensitivity, before the noise: private values.

    A holder is a client, or the one server for a whole cohort. Only a mechanism may release a ``Bounded``. It
    adds noise in proportion to the sensitivity and returns a
    :class:`~fedpriv.privacy.mechanisms.visible.Released`. The functions of this module make one; the
    constructor takes the sensitivity as it is stated.

    For data sets D ~ D' that differ in one unit, the answer f satisfies

        ‖f(D) - f(D')‖₂ ≤ Δ/s              where D' has one unit more or less
        ‖f(D) - f(D')‖₂ ≤ r Δ/s            where one unit of D' is another one

    with Δ = ``sensitivity``, s = ``divided_by`` and r = ``replaced``.

    Attributes:
        values: The answers [m, …], already divided by s.
        sensitivity: Δ of each answer [m]; ``inf`` if nothing bounds a unit. Where ``of_reports`` is true, the
            sensitivity of every client's report [c] within the one answer.
        replaced: r, 2 for a clipped sum: replacing a unit takes one vector out and puts another one in.
        divided_by: s, a public number: the denominator of a mean, or 1.
        of_reports: Whether the one answer is a sum of reports, each noised by its own client.

    Example:
        >>> import torch
        >>> losses = torch.tensor([0.2, 9.0, 0.4])
        >>> answer = bounded_sum(losses, at_most=torch.tensor([1.0]), owners=torch.tensor([0, 0, 0]))
        >>> [round(value, 3) for value in answer.values.tolist()], answer.sensitivity.tolist()
        ([1.6], [1.0])
    """

    __slots__ = ("divided_by", "of_reports", "replaced", "sensitivity", "values")

    def __init__(
        self,
        values: Tensor,
        sensitivity: Tensor,
        replaced: float,
        divided_by: float = 1.0,
        of_reports: bool = False,
    ):
        self.values, self.sensitivity, self.replaced = values, sensitivity, replaced
        self.divided_by, self.of_reports = divided_by, of_reports


def sum_per_owner(values: Tensor, owners: Tensor, count: int) -> Tensor:
    """Return the sum of ``values`` [n] over the units of each owner, in float64 [count].

    Single precision could round a sum further than one unit may move it.
    """
    values = values.double()
    return values.new_zeros(count).index_add_(0, owners, values)


def bounded_sum(values: Tensor, at_most: Tensor, owners: Tensor) -> Bounded:
    """Return the sum of each owner's values, each value cut to [-b, b].

    The sensitivity is b: one unit more or less moves the sum of its owner by at most b. A value that is not a
    number counts as 0.

    Args:
        values: One number of each unit [n].
        at_most: b > 0 of each owner [m].
        owners: Owner of each unit [n], in 0 … m-1.

    Returns:
        The sums [m] with sensitivity b [m].
    """
    limits = at_most[owners]
    cut_values = values.nan_to_num(nan=0.0).minimum(limits).maximum(-limits)
    return Bounded(sum_per_owner(cut_values, owners, len(at_most)), at_most, DOUBLED)


def bounded_rows(values: Tensor, at_most: Tensor, owners: Tensor) -> Bounded:
    """Return the sum of each owner's vectors, each vector shortened to L2 norm b if it is longer.

        Σ_i v_i min(1, b/‖v_i‖₂)

    The sensitivity is b. Entries of a vector that are not finite count as 0.

    Args:
        values: One vector of each unit [n, B].
        at_most: b > 0 of each owner [m].
        owners: Owner of each unit [n], in 0 … m-1.

    Returns:
        The sums [m, B] with sensitivity b [m].
    """
    cut_values = values.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    limits = at_most[owners].double()
    # The floor keeps a vector of norm 0 from dividing by 0.
    cut_values = (
        cut_values * (limits / cut_values.norm(dim=1).clamp_min(1e-300)).clamp_max(1.0)[:, None]
    )
    sums = cut_values.new_zeros(len(at_most), values.shape[1]).index_add_(0, owners, cut_values)
    return Bounded(sums, at_most, DOUBLED)


def histogram(bins_of: Tensor, bins: int, owners: Tensor, like: Tensor) -> Bounded:
    """Return a histogram of each owner's units [m, B]. Each unit counts once.

    The sensitivity is 1 where a unit joins or leaves, and √2 where it is replaced: one count falls and
    another rises.

    Args:
        bins_of: Bin of each unit [n], cut to 0 … B-1.
        bins: B.
        owners: Owner of each unit [n], in 0 … m-1.
        like: One number for each owner [m]; gives the dtype and the device.

    Returns:
        The counts [m, B] with sensitivity 1 [m].
    """
    counts = like.new_zeros(len(like) * bins)
    cells = owners * bins + bins_of.clamp(0, bins - 1)
    counts.index_add_(0, cells, like.new_ones(len(bins_of)))
    return Bounded(counts.view(len(like), bins), like.new_ones(len(like)), ONE_HOT)


def unbounded_sum(values: Tensor, owners: Tensor, like: Tensor) -> Bounded:
    """Return the sum of each owner's values as they are, with infinite sensitivity: no noise hides a unit.

    Args:
        values: One number of each unit [n].
        owners: Owner of each unit [n], in 0 … m-1.
        like: One number for each owner [m]; gives the dtype and the device.

    Returns:
        The sums [m] with sensitivity ``inf`` [m].
    """
    sums = sum_per_owner(values, owners, len(like))
    return Bounded(sums, like.new_full((len(like),), math.inf), DOUBLED)


def mean_of_reports(values: list[Tensor], bound: float, whole_clients: bool) -> Bounded:
    """Return (1/c) Σ_k of the mean of client k's values, each value cut to [0, b].

    A client's mean moves by at most b/n for one of its n units. Any two cut values are at most b apart, so
    replacing a unit moves the mean no further than adding one, and ``replaced`` is 1.

    Args:
        values: One tensor [n_k] of numbers for each of the c clients. A value that is not a number counts as
            b.
        bound: b > 0.
        whole_clients: Whether the unit is the client, which moves all of its mean: n is 1.

    Returns:
        The mean [1] with the sensitivity of every client's report [c], divided by c.
    """
    import torch

    means = [
        client_values.double().nan_to_num(nan=bound).clamp(0.0, bound).mean()
        for client_values in values
    ]
    mean = torch.stack(means).mean().view(1)
    units_per_client = [
        1.0 if whole_clients else max(1.0, float(len(client_values))) for client_values in values
    ]
    units = torch.tensor(units_per_client, dtype=torch.float64, device=mean.device)
    return Bounded(mean, bound / units, 1.0, float(len(values)), of_reports=True)


def clipped_sum(values: Tensor, clip_norms: Tensor, divided_by: float = 1.0) -> Bounded:
    """Return a clipped sum as a bounded value. For ``privacy.clippers.step_clip.StepClip`` alone.

    The caller has scaled every unit to its clip norm; nothing is enforced here.

    Args:
        values: Sums [m, d], already divided by ``divided_by``.
        clip_norms: C of each holder [m].
        divided_by: The public denominator.
    """
    return Bounded(values, clip_norms, DOUBLED, divided_by)
