"""The scores that an auditor gives canaries, from what a run releases.

For canaries with a direction, the auditor looks at one coordinate of each release: that of the canary, in its
client's upload or, under central trust, in the sum. From it the auditor subtracts what everybody else is
known to add. What is left is, in units of the clip norm,

    x = ±s + z N(0, 1)

with s = 1 if the canary was sampled and 0 otherwise. The auditor does not know s. The score is the sum over
all releases of the log-likelihood ratio

    add/remove    log((1 - q) + q exp((x - 1/2)/z²))
    replace-one   log((1 - q) + q exp((x - 1/2)/z²)) - log((1 - q) + q exp((-x - 1/2)/z²))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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
    """Return the log-likelihood ratio of one release for each canary.

    Args:
        seen: x of each canary [m].
        noise_multiplier: z of each canary [m], or of all.
        sample_rate: q, the probability that a canary is sampled.
        signed: True for replace-one adjacency.

    Returns:
        The ratio [m]; x itself where there is no noise.
    """
    z = np.asarray(noise_multiplier, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = _log_mixture(seen, z, sample_rate)
        if signed:
            ratio = ratio - _log_mixture(-seen, z, sample_rate)
    return np.where(z > 0, ratio, seen)


def _log_mixture(seen: np.ndarray, z: np.ndarray, sample_rate: float) -> np.ndarray:
    inside = (seen - 0.5) / z**2
    if sample_rate >= 1.0:
        return inside
    return np.logaddexp(math.log1p(-sample_rate), math.log(sample_rate) + inside)


@dataclass(frozen=True)
class Kind:
    """A kind of release that a canary is part of.

    Attributes:
        noise_multiplier: The noise multiplier z of all queries on the sample together, as in the ledger.
        sample_rate: The probability q of being sampled.
        signed: True for replace-one adjacency.
        event: The event that the ledger charges.
    """

    noise_multiplier: float
    sample_rate: float
    signed: bool
    event: DpEvent

    def plain(self) -> dict[str, object]:
        """Return the kind as values for JSON."""
        return {**vars(self), "event": describe_event(self.event)}

    @classmethod
    def of_plain(cls, plain: Mapping[str, object]) -> Kind:
        """Return the kind that :meth:`plain` wrote.

        Raises:
            ValueError, TypeError, KeyError: The values are anything else.
        """
        values: Mapping[str, Any] = plain
        noise, rate = float(values["noise_multiplier"]), float(values["sample_rate"])
        if not (noise >= 0 and 0 < rate <= 1):
            raise ValueError("no noise multiplier, or no sample rate")
        return cls(noise, rate, values["signed"] is True, parse_event(str(values["event"])))

    def ideal(self, there: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Return scores [m] of one release, drawn from the pair of distributions that the ledger charges for.

        Args:
            there: The factor of each canary [m]: 1 if present, 0 if absent, -1 for the other sign.
            stream: Random stream of samples and noise.
        """
        z = self.noise_multiplier
        sampled = stream.random(len(there)) < self.sample_rate
        seen = there * sampled + z * stream.standard_normal(len(there))
        return log_likelihood_ratio(seen, z, self.sample_rate, self.signed)


def ideal_scores(
    released: Counter[Kind], coins: np.ndarray, stream: np.random.Generator
) -> np.ndarray:
    """Return the scores [m] that canaries with these coins would have if exactly the ledger's ε leaked.

    Args:
        released: Kinds of the releases of a canary, each with its count.
        coins: The coin of each canary [m] (bool).
        stream: Random stream of samples and noise.
    """
    total = np.zeros(len(coins))
    for kind, count in released.items():
        factors = np.where(coins, 1.0, -1.0 if kind.signed else 0.0)
        for _ in range(count):
            total += kind.ideal(factors, stream)
    return total


class WatchedComputation(ABC):
    """An algorithm's computation, beside which an auditor notes what canaries are part of.

    Everything else that is asked of this object goes to the algorithm's own computation.

    Args:
        computation: The algorithm's computation.
        context: The context of the run.
        planted: The canaries that take part.
        alone: See the attribute.

    Attributes:
        scores: The score of each canary so far [m], from what is released; 0 where releases are not used.
        released: The kinds of release that the first canary was part of so far, each with its count.
        size: log ‖·‖ of the last release that the first canary was part of; it shows how much noise the
            release has. None if only the final model is used.
        alone: Whether no other client takes part, so that nothing has to be subtracted.
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
        for joint, members in self._queries_with_canaries(local_step):
            self._note_release(joint, members)
        return self._computation.compute_cohort(local_step, changes, clip)

    @abstractmethod
    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        """Return the scores [m] of each observer, higher for a canary that is likelier present.

        Args:
            before: The weights of the model before the first round [d].
        """

    def _queries_with_canaries(
        self, local_step: LocalStep
    ) -> Iterator[tuple[JointQuery, np.ndarray]]:
        """Yield each query of a local step, with the numbers of the canaries that may be part of it."""
        canaries = self._planted.canaries
        for group in self._context.mechanism.announce(local_step.round_index).groups:
            members = np.flatnonzero(np.isin(canaries.homes, group.clients))
            if canaries.unit == "record" or self.alone:
                members = members[np.isin(canaries.homes[members], local_step.cohort)]
            yield group.upload.joint, members

    def _note_release(self, joint: JointQuery, members: np.ndarray) -> bool:
        """Count a release of the first canary; return whether that canary is part of it."""
        if not len(members) or members[0]:
            return False
        signed = joint.sampling.neighbours == REPLACE_ONE
        rate = sample_rate_of(joint.sampling)
        self.released[Kind(joint.noise_multiplier, rate, signed, joint.event())] += 1
        return True


class WatchedDirections(WatchedComputation):
    """A watched computation that adds up the log-likelihood ratio of each canary's coordinate."""

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
        known = self._sum_of_others(local_step, changes)
        result = self._computation.compute_cohort(local_step, changes, clip)
        norms = clip.norms.double().cpu().numpy() / result.answer.divided_by
        self._pending = (local_step, known, norms)
        return result

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """Update the scores with what was released, then return the algorithm's own mean.

        Args:
            released: The released sums [h, d].
            cohort: The clients of the round.
        """
        assert self._pending is not None  # every mean follows a call of compute_cohort
        local_step, known, norms = self._pending
        self._update_scores(local_step, released - known if len(known) else released, norms)
        return self._computation.mean(released, cohort)

    def _sum_of_others(self, local_step: LocalStep, changes: Tensor | None) -> Tensor:
        """Return the sum of everybody else [h, d], or an empty tensor if it is not to be subtracted.

        Lots of a fixed or bounded size depend on whether the canary is in them. Their sum without the canary
        would tell more than an auditor may know.
        """
        context = self._context
        groups = context.mechanism.announce(local_step.round_index).groups
        if self.alone or any(
            isinstance(group.upload.joint.sampling, (FixedSizeSampling, TruncatedPoissonSampling))
            for group in groups
        ):
            return torch.zeros(0)
        holders = self._computation.holders(local_step.cohort)
        with self._planted.silenced():
            clip = StepClip(context.clipper, local_step.round_index, holders)
            return self._computation.compute_cohort(local_step, changes, clip).answer.values

    def _update_scores(self, local_step: LocalStep, seen: Tensor, norms: np.ndarray) -> None:
        """Add the log-likelihood ratios of one release to the scores.

        Args:
            local_step: The local step.
            seen: The release without what others add [h, d].
            norms: The clip norm of each holder in the release's unit [h].
        """
        canaries = self._planted.canaries
        for joint, members in self._queries_with_canaries(local_step):
            rows = np.zeros(len(members), dtype=np.int64)
            if canaries.unit == "record":
                rows = np.searchsorted(local_step.cohort, canaries.homes[members])
            if self._note_release(joint, members):
                self.size = float(
                    torch.linalg.vector_norm(seen[int(rows[0])]).clamp_min(1e-300).log()
                )
            positions = (torch.from_numpy(rows), torch.from_numpy(canaries.coordinates[members]))
            values = seen[positions].double().cpu().numpy() / norms[rows]
            sampling = joint.sampling
            self.scores[members] += log_likelihood_ratio(
                values,
                joint.query(GRADIENT).noise_multiplier,
                sample_rate_of(sampling),
                sampling.neighbours == REPLACE_ONE,
            )

    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        """Return the scores from every release, and those from how far the final model moved."""
        canaries = self._planted.canaries
        moved = (self._context.model.flat - before).double().cpu().numpy()
        # The server subtracts gradients (records) and adds changes of weights (clients).
        towards = -1.0 if canaries.unit == "record" else 1.0
        return {RELEASES: self.scores, FINAL: towards * moved[canaries.coordinates]}


def sample_rate_of(sampling: Sampling) -> float:
    """Return q, the probability that one unit is in a sample.

    For lots of a fixed size it is the share of the records in a lot, else the rate of the Poisson draw.
    """
    if isinstance(sampling, FixedSizeSampling):
        return sampling.lot_size / sampling.records
    return sampling.poisson_rate
