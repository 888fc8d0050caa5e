"""What an auditor sees of canaries in what is released.

Of those with a direction: at each release a canary's coordinate of its client's upload (of the sum, where
the server is trusted), less what everybody else is known to add to it, is x = ±s + z N(0, 1) in units of the
clip norm, where s says whether the canary was sampled. The auditor does not know s. What it adds up is the
log-likelihood ratio

    add/remove    log((1 - q) + q exp((x - 1/2)/z²))
    replace-one   log((1 - q) + q exp((x - 1/2)/z²)) - log((1 - q) + q exp((-x - 1/2)/z²))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, CohortAnswer, LocalStep
from fedpriv.algorithms.run_context import RunContext
from fedpriv.attacks.canaries import PlantedCanaries, PlantedDirections
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, Sampling, TruncatedPoissonSampling
from fedpriv.privacy.mechanisms import GRADIENT, JointQuery
from fedpriv.store.canary_file import FINAL, RELEASES


def log_likelihood_ratio(
    seen: np.ndarray, noise_multiplier: np.ndarray | float, sample_rate: float, signed: bool
) -> np.ndarray:
    """That of one release, for each x of ``seen``; x itself where there is no noise."""
    z = np.asarray(noise_multiplier, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = _log_mixture(seen, z, sample_rate)
        if signed:
            found = found - _log_mixture(-seen, z, sample_rate)
    return np.where(z > 0, found, seen)


def _log_mixture(seen: np.ndarray, z: np.ndarray, sample_rate: float) -> np.ndarray:
    inside = (seen - 0.5) / z**2
    if sample_rate >= 1.0:
        return inside
    return np.logaddexp(math.log1p(-sample_rate), math.log(sample_rate) + inside)


@dataclass(frozen=True)
class Kind:
    """What a canary is part of when it is released: ``noise_multiplier`` of all queries on the sample
    together, as the ledger has it, the probability of being sampled, and the ledger's event."""

    noise_multiplier: float
    sample_rate: float
    signed: bool
    event: DpEvent

    def plain(self) -> dict[str, object]:
        """As values for JSON."""
        return {**vars(self), "event": describe_event(self.event)}

    @classmethod
    def of_plain(cls, plain: Mapping[str, object]) -> Kind:
        """What :meth:`plain` wrote. Raises ValueError, TypeError or KeyError for anything else."""
        values: Mapping[str, Any] = plain
        noise, rate = float(values["noise_multiplier"]), float(values["sample_rate"])
        if not (noise >= 0 and 0 < rate <= 1):
            raise ValueError("no noise multiplier, or no sample rate")
        return cls(noise, rate, values["signed"] is True, parse_event(str(values["event"])))

    def ideal(self, there: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Scores [m] of one such release from the pair of distributions that the ledger charges for, of
        canaries that are ``there`` (1, 0, or -1 for the other sign) [m]."""
        z = self.noise_multiplier
        sampled = stream.random(len(there)) < self.sample_rate
        seen = there * sampled + z * stream.standard_normal(len(there))
        return log_likelihood_ratio(seen, z, self.sample_rate, self.signed)


def ideal_scores(
    released: Counter[Kind], coins: np.ndarray, stream: np.random.Generator
) -> np.ndarray:
    """The same of all releases of a canary, for coins [m] (bool)."""
    total = np.zeros(len(coins))
    for kind, count in released.items():
        there = np.where(coins, 1.0, -1.0 if kind.signed else 0.0)
        for _ in range(count):
            total += kind.ideal(there, stream)
    return total


class WatchedComputation:
    """An algorithm's work, beside which an auditor writes down what canaries are part of.

    Attributes:
        scores: Of the canaries so far [m], from what is released; 0 where nothing is made of that.
        released: What the first canary was part of so far, and how often.
        size: log ‖·‖ of the last release that the first canary was part of: it tells how much noise it has.
            None where only the final model is looked at.
        alone: Whether nobody else takes part, so that nothing of others is to be subtracted.
    """

    size: float | None = None

    def __init__(
        self,
        computation: ClientComputation,
        context: RunContext,
        planted: PlantedCanaries,
        alone: bool = False,
    ):
        self._computation, self._context, self._planted = computation, context, planted
        self.alone = alone
        self.scores = np.zeros(len(planted.canaries))
        self.released: Counter[Kind] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._computation, name)

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        for joint, own in self._parts(local_step):
            self._count(joint, own)
        return self._computation.compute_cohort(local_step, changes, clip)

    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        """Scores [m], the higher the likelier there; the model was ``before`` [d] at the start."""
        raise NotImplementedError

    def _parts(self, local_step: LocalStep) -> Iterator[tuple[JointQuery, np.ndarray]]:
        """What a turn releases, each with the canaries that may be part of it [n]."""
        canaries = self._planted.canaries
        for group in self._context.mechanism.announce(local_step.round_index).groups:
            own = np.flatnonzero(np.isin(canaries.homes, group.clients))
            if canaries.unit == "record" or self.alone:
                own = own[np.isin(canaries.homes[own], local_step.cohort)]
            yield group.upload.joint, own

    def _count(self, joint: JointQuery, own: np.ndarray) -> bool:
        """Note what the first canary is part of; whether it is part of this."""
        if not len(own) or own[0]:
            return False
        signed = joint.sampling.neighbours == REPLACE_ONE
        rate = sample_rate_of(joint.sampling)
        self.released[Kind(joint.noise_multiplier, rate, signed, joint.event())] += 1
        return True


class WatchedDirections(WatchedComputation):
    """Beside which the auditor adds up the log-likelihood ratio of each canary's coordinate."""

    _planted: PlantedDirections

    def __init__(
        self,
        computation: ClientComputation,
        context: RunContext,
        planted: PlantedCanaries,
        alone: bool = False,
    ):
        super().__init__(computation, context, planted, alone)
        self.size = 0.0
        self._pending: tuple[LocalStep, Tensor, np.ndarray] | None = None

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        known = self._of_others(local_step, changes)
        found = self._computation.compute_cohort(local_step, changes, clip)
        norms = clip.norms.double().cpu().numpy() / found.answer.divided_by
        self._pending = (local_step, known, norms)
        return found

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """Writes down the canaries' scores, then goes on as the algorithm does."""
        assert self._pending is not None  # clipped() came before
        local_step, known, norms = self._pending
        self._look(local_step, released - known if len(known) else released, norms)
        return self._computation.mean(released, cohort)

    def _of_others(self, local_step: LocalStep, changes: Tensor | None) -> Tensor:
        """What everybody else adds; nothing is taken for known where their lot tells who else is in it."""
        tells = (FixedSizeSampling, TruncatedPoissonSampling)
        if self.alone or any(
            isinstance(sampling, tells) for sampling in self._samplings(local_step)
        ):
            return torch.zeros(0)
        context = self._context
        holders = self._computation.holders(local_step.cohort)
        with self._planted.silenced():
            clip = StepClip(context.clipper, local_step.round_index, holders)
            return self._computation.compute_cohort(local_step, changes, clip).answer.values

    def _samplings(self, local_step: LocalStep) -> list[Sampling]:
        groups = self._context.mechanism.announce(local_step.round_index).groups
        return [group.upload.joint.sampling for group in groups]

    def _look(self, local_step: LocalStep, seen: Tensor, norms: np.ndarray) -> None:
        canaries = self._planted.canaries
        for joint, own in self._parts(local_step):
            rows = np.zeros(len(own), dtype=np.int64)
            if canaries.unit == "record":
                rows = np.searchsorted(local_step.cohort, canaries.homes[own])
            if self._count(joint, own):
                self.size = float(
                    torch.linalg.vector_norm(seen[int(rows[0])]).clamp_min(1e-300).log()
                )
            places = (torch.from_numpy(rows), torch.from_numpy(canaries.coordinates[own]))
            values = seen[places].double().cpu().numpy() / norms[rows]
            sampling = joint.sampling
            self.scores[own] += log_likelihood_ratio(
                values,
                joint.query(GRADIENT).noise_multiplier,
                sample_rate_of(sampling),
                sampling.neighbours == REPLACE_ONE,
            )

    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        """Of every release, and of the model now by how far it moved since it was ``before`` [d]."""
        canaries = self._planted.canaries
        moved = (self._context.model.flat - before).double().cpu().numpy()
        towards = -1.0 if canaries.unit == "record" else 1.0  # gradients are subtracted
        return {RELEASES: self.scores, FINAL: towards * moved[canaries.coordinates]}


def sample_rate_of(sampling: Sampling) -> float:
    """q: with which probability one unit is in a sample."""
    if isinstance(sampling, FixedSizeSampling):
        return sampling.lot_size / sampling.records
    return sampling.poisson_rate
