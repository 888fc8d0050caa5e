"""Attackers that forge their uploads together, from the uploads of a whole round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.attacks.attackers import Attackers, AttackSettings
from fedpriv.attacks.names import NOISED_UPLOADS, RAW_UPLOADS, SKIP
from fedpriv.attacks.triggers import concatenated
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.aggregation.run_rule import RunRule
    from fedpriv.data.federated import FederatedData

_COLUMNS = 2**16  # coordinates of a block; the sums of blocks are added up in double precision


@dataclass(frozen=True)
class View:
    """One round as its attackers see it.

    Attributes:
        aggregation: The round, its cohort, and the weight of each upload.
        attackers: The attackers that take part [a], ascending.
        own: The honest upload of each attacker [a, d].
        honest: The uploads of the honest clients that the attackers see, without those that are not finite
            [h, d]; where they see none, ``own``.
        rule: The aggregation rule; None: the weighted mean.
        seed: Seed of the attack.

    Example:
        >>> cohort, honest = RoundWeights(0, np.arange(3), None), torch.tensor([[1.0, 4.0], [3.0, 4.0]])
        >>> view = View(cohort, np.array([2]), own=honest[:1], honest=honest, rule=None, seed=0)
        >>> view.mean.tolist(), view.combined(torch.zeros(2)).tolist()
        ([2.0, 4.0], [1.3333333730697632, 2.6666667461395264])
    """

    aggregation: RoundWeights
    attackers: np.ndarray
    own: Tensor
    honest: Tensor
    rule: RunRule | None
    seed: int

    @property
    def honest_count(self) -> int:
        """Number of honest clients in the round."""
        return len(self.aggregation.cohort) - len(self.attackers)

    @cached_property
    def mean(self) -> Tensor:
        """Mean μ of the honest uploads [d]."""
        return self.honest.mean(dim=0)

    @cached_property
    def std(self) -> Tensor:
        """Standard deviation σ of each coordinate of the honest uploads [d]; 0 for a single upload."""
        if len(self.honest) < 2:
            return torch.zeros_like(self.mean)
        return self.honest.std(dim=0)

    def normals(self) -> Tensor:
        """Return standard normal numbers, of each attacker its own [a, d]."""
        t, d = self.aggregation.round_index, self.own.shape[1]
        streams = (numpy_stream(self.seed, "attack_normals", t, int(k)) for k in self.attackers)
        rows = [torch.from_numpy(stream.standard_normal(d, dtype=np.float32)) for stream in streams]
        return torch.stack(rows).to(self.own)

    def combined(self, upload: Tensor) -> Tensor:
        """Return what the server would make of the round if all attackers sent one upload [d].

        Where the attackers see no uploads of honest clients, copies of their own stand for these. Who is in
        which bucket is secret; attackers of a rule that combines buckets draw buckets of their own.

        Args:
            upload: The upload [d].
        """
        rows, shares = self._cohort
        rows[torch.from_numpy(self._is_attacker)] = upload
        if self.rule is None:
            return shares @ rows
        if (buckets := self.rule.buckets) is None:
            return self.rule.preview(self.aggregation.cohort, rows, shares)
        members = torch.from_numpy(self._bucket_of % buckets)
        sums = rows.new_zeros(buckets, rows.shape[1]).index_add_(0, members.to(rows.device), rows)
        means = sums.div_(len(rows) / buckets)
        equal = rows.new_full((buckets,), 1.0 / buckets)
        return self.rule.preview(np.arange(buckets), means, equal)

    @cached_property
    def _bucket_of(self) -> np.ndarray:
        """A random order of the cohort [c]: modulo B it makes buckets of about equal size."""
        t, count = self.aggregation.round_index, len(self.aggregation.cohort)
        return numpy_stream(self.seed, "attack_buckets", t).permutation(count)

    @cached_property
    def _is_attacker(self) -> np.ndarray:
        return np.isin(self.aggregation.cohort, self.attackers)

    @cached_property
    def _cohort(self) -> tuple[Tensor, Tensor]:
        """The uploads of the cohort, those of attackers to be filled in [c, d], and its shares [c]."""
        weights = self.aggregation.weights
        count = len(self.aggregation.cohort)
        shares = np.full(count, 1.0 / count) if weights is None else weights / weights.sum()
        rows = self.honest.new_zeros(count, self.honest.shape[1])
        filled = torch.arange(self.honest_count) % len(self.honest)
        rows[torch.from_numpy(~self._is_attacker)] = self.honest[filled]
        return rows, torch.from_numpy(shares).to(rows)


class ForgerySettings(AttackSettings, Protocol):
    """The settings that these attackers read; :class:`fedpriv.attacks.Untargeted` has them."""

    @property
    def uses_uploads(self) -> bool: ...

    @property
    def flips_labels(self) -> bool: ...

    def forged(self, view: View) -> Tensor: ...


class Forgers(Attackers):
    """The attackers of one run that forge their uploads together.

    Args:
        settings: The settings of the attack, which say what is forged.
        data: The data of the run.
    """

    whole_round = True
    settings: ForgerySettings

    def __init__(self, settings: ForgerySettings, data: FederatedData):
        super().__init__(settings, data)
        self._reversed: dict[int, np.ndarray] = {}
        if settings.flips_labels:
            parts = [data.train]  # then the records of each attacker, with reversed labels
            for k in self.attackers.tolist():
                records, first = data.train.subset(data.clients[k]), sum(map(len, parts))
                self._reversed[k] = np.arange(first, first + len(records))
                parts.append(Records(records.inputs, data.classes - 1 - records.targets))
            self.data = replace(data, train=concatenated(parts))

    def join(self, context: RunContext) -> None:
        super().join(context)
        settings, algorithm = self.settings, context.mechanism.algorithm
        knows = settings.knowledge(algorithm)
        after = algorithm.unit == "record" or settings.sends_after_release(algorithm)
        self.sees_raw_uploads = RAW_UPLOADS in knows and settings.uses_uploads
        self.sees_uploads = settings.uses_uploads and (
            RAW_UPLOADS in knows or (NOISED_UPLOADS in knows and after)
        )
        self._rule = context.rule
        # Plain SGD: at record level clip and noise are part of every local step, so there is no other
        # upload of the attackers without them.
        self._trains = context.private and algorithm.unit == "record" and settings.dp_steps == SKIP

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        if self._reversed and self.malicious_among(round_index, np.array([client]))[0]:
            return self._reversed[client]
        return self.data.clients[client]

    def _trained(self, aggregation: RoundWeights, clients: np.ndarray, followed: Tensor) -> Tensor:
        if not self._trains or (self.settings.uses_uploads and self.sees_uploads):
            return followed
        records = {int(k): self.records_of(aggregation.round_index, int(k)) for k in clients}
        return self._training.changes(aggregation.round_index, clients, records, {}, None)

    def _sent(
        self,
        aggregation: RoundWeights,
        clients: np.ndarray,
        trained: Tensor,
        others: Tensor | None,
    ) -> Tensor:
        honest = others if others is not None and len(others) else trained
        # An upload that is not finite says nothing; where none is finite the attackers start from zero.
        finite = honest.isfinite().all(dim=1)
        honest = honest[finite] if bool(finite.any()) else torch.zeros_like(honest[:1])
        settings = self.settings
        view = View(aggregation, clients, trained, honest, self._rule, settings.seed)
        forged = settings.forged(view)
        if isinstance(forged, Tensor) and forged.shape == trained.shape[1:]:
            forged = forged.expand_as(trained)
        return self._of_shape(trained, forged, "forged").to(trained)


def line_search(
    distance: Callable[[float], float], evaluations: int, step: float, ratio: float
) -> float:
    """Return a strength τ >= 0 that makes a distance large.

    From τ = 0 the step is added and doubled as long as the distance grows. From then on the step shrinks by
    ``ratio`` after every trial, and is added where the distance grows. Distances that are not finite never
    count as larger.

    Args:
        distance: Function of τ.
        evaluations: Number of calls of ``distance``.
        step: First step.
        ratio: Factor of the step, between 0.5 and 1.

    Reference:
        Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021; ByzFL's optimal attacks.

    Example:
        >>> round(line_search(lambda tau: tau if tau <= 50 else 0.0, 20, 10.0, 0.8), 1)
        49.8
    """
    best, farthest_yet = 0.0, distance(0.0)
    expanding = True
    for _ in range(evaluations - 1):
        reached = distance(best + step)
        if farther := math.isfinite(reached) and not reached <= farthest_yet:
            best, farthest_yet = best + step, reached
        expanding = expanding and farther
        step *= 2.0 if expanding else ratio
    return best


def farthest(honest: Tensor, direction: Tensor, *, sums: bool) -> float:
    """Return the largest γ for which μ + γ p is as close to honest uploads as these are to each other.

    With centred uploads c_i = u_i - μ the squared distance to upload i is γ²‖p‖² - 2γ⟨p, c_i⟩ + ‖c_i‖². It
    may not exceed the largest squared distance of two honest uploads. So γ is the smallest of the larger
    roots of these quadratic equations, or with ``sums`` the root of their sum.

    Args:
        honest: Honest uploads [h, d].
        direction: p [d].
        sums: Whether the sum of squared distances is bounded, by the largest such sum of an honest upload;
            else each distance by the largest distance.

    Returns:
        γ >= 0; 0 where all honest uploads are equal, or p is 0.
    """
    size = len(honest)
    mean = honest.mean(dim=0)
    products = torch.zeros(size, size, dtype=torch.float64, device=honest.device)
    along, length = products[0].clone(), 0.0
    for columns in range(0, len(mean), _COLUMNS):
        block = slice(columns, columns + _COLUMNS)
        centred, part = honest[:, block] - mean[block], direction[block]
        products += (centred @ centred.T).double()
        along += (centred @ part).double()
        length += float(part @ part)
    squares = products.diagonal()
    distances = (squares[:, None] + squares - 2.0 * products).clamp_min(0.0)
    if sums:
        bounds, along, squares = distances.sum(1).max(), along.sum()[None], squares.sum()[None]
        length *= size
    else:
        bounds = distances.max()
    if not 0.0 < length < math.inf:
        return 0.0
    room = (bounds - squares).clamp_min(0.0) * length
    roots = (along + (along.square() + room).sqrt()) / length
    gamma = float(roots.min())
    return gamma if math.isfinite(gamma) else 0.0
