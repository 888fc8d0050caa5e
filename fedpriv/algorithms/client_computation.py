"""The clients' computation of one local step: pure, in chunks of clients.

    state   = what is public before the step, cut to the clients of a chunk
    answers = compute(state, clients) for every chunk     # reads records, changes nothing
    answer  = clip.merge(answers, cohort)                 # the one Bounded, in cohort order

Optimisers, clippers and attackers change outside :meth:`ClientComputation.compute`, so that a chunk may
be computed anywhere, and twice. Partial sums are added in the order of the chunks. Losses and statistics are
computed from vectors with a number for each unit, joined in the order of the cohort.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.common.base_classes import fact
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.clippers.step_clip import ChunkAnswer, ChunkClip, StepClip
from fedpriv.privacy.mechanisms import Bounded, Visible

if TYPE_CHECKING:
    from fedpriv.algorithms.uploads import Uploads


@dataclass(frozen=True)
class LocalStep:
    """One local step of one round. ``cohort`` [c]: who takes part, ascending."""

    round_index: int
    step: int
    cohort: np.ndarray


@dataclass(frozen=True)
class StepState:
    """All that a chunk of c clients computes from, beside the clients' records and the run's settings.

    Attributes:
        turn: The local step, with the clients of the chunk as its cohort.
        weights: The global weights θ [d].
        changes: What each client added to θ in earlier local steps [c, d]; None: nothing yet.
        limits: The clip norm of each client [c], or the one of the server [1]; of each part [., G].
        transform: Shift and scale of each coordinate where units are clipped in another space; else None.
        aggregation: What attackers know of the round; None where nobody attacks in this computation.
    """

    local_step: LocalStep
    weights: Tensor
    changes: Tensor | None
    limits: Tensor
    transform: tuple[Tensor, Tensor] | None
    aggregation: RoundWeights | None


@dataclass(frozen=True)
class CohortAnswer:
    """What a cohort computed in one local step: its clipped answer, and exact statistics for the analyst.

    Attributes:
        answer: The clipped sum, or mean, of each holder of a clip norm [h, d].
        norms: Of each unit before clipping [n], or of its parts [n, G]; 0 for one that is not finite.
        owners: The position of each unit's holder [n].
        units: The position in the cohort of the client that each norm is of [n].
    """

    answer: Bounded
    norms: Tensor
    owners: Tensor
    units: Tensor
    train_loss: float
    gradient_norm: float
    not_finite: int


def joined(vectors: list[Tensor]) -> Tensor:
    """Return vectors of the chunks as one, without a copy where there is one chunk."""
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors)


class ClientComputation(ABC):
    """What the clients of a round compute, and whose clip norm bounds it.

    Attributes:
        problem: Data, model, engine and clipper.
        steps: Local steps of a round.
        holds_norms: Whether each client holds a clip norm and an optimiser; else the one server does.
        divides: Whether ``mean`` divides what was released by the denominators.
        combines: Whether ``mean`` returns a row for each client [c, d], released by itself, which a rule
            combines before the server's optimiser.
        has_weight_decay: Whether the gradient of λ/2‖θ‖² joins after the noise (it reads no record).
        proximal: μ of FedProx's μ/2 ‖w - θ‖², whose gradient joins there too.
    """

    context: RunContext
    steps: int = 1
    holds_norms: bool = False
    divides: bool = True
    combines: bool = False
    has_weight_decay: bool = True
    proximal: float = 0.0

    @fact
    def uploads(self) -> Uploads | None:
        """What clients send where whole uploads are clipped; None: records are."""
        return None

    @abstractmethod
    def compute(self, state: StepState) -> ChunkAnswer:
        """Compute the answer of a chunk of clients. Pure: nothing that outlives the call is changed."""

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        """Let a cohort compute in chunks, and join their answers.

        Args:
            turn: The local step.
            changes: What earlier local steps add to the global weights [h, d]; None: nothing yet.
            clip: The clip norms of this step, and the only maker of a bounded sum.
        """
        cohort, context = local_step.cohort, self.context
        size = context.chunk or len(cohort) or 1
        starts = range(0, len(cohort) or 1, size)
        states = [self.step_state(local_step, changes, clip, slice(at, at + size)) for at in starts]
        answers = [self.compute(state) for state in states]
        answer = clip.merge(answers, cohort, *self.divisors(cohort), apart=self.combines)
        if answers[0].sent_norms is not None:
            sent = joined([one.sent_norms for one in answers if one.sent_norms is not None])
            context.note_sent(local_step.round_index, cohort, sent)
        norms, finite, losses, records = (
            joined([getattr(one, name) for one in answers])
            for name in ("norms", "finite", "losses", "records")
        )
        units = joined([one.units + at for one, at in zip(answers, starts, strict=True)])
        counted = finite.sum()
        left_out = sum(one.left_out for one in answers)
        train_loss = losses.sum() / (records.sum() - left_out)
        gradient_norm = whole_norms(norms).sum().to(train_loss.dtype) / counted
        numbers = torch.stack([train_loss, gradient_norm, counted.to(train_loss.dtype)]).tolist()
        return CohortAnswer(
            answer,
            norms,
            units if self.holds_norms else torch.zeros_like(units),
            units,
            train_loss=numbers[0],
            gradient_norm=numbers[1],
            not_finite=len(norms) - int(numbers[2]) + left_out,
        )

    def step_state(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip, chunk: slice
    ) -> StepState:
        """Return what the clients of a chunk of the cohort compute from."""
        own = chunk if self.holds_norms else slice(None)
        transform = clip.transform
        return StepState(
            LocalStep(local_step.round_index, local_step.step, local_step.cohort[chunk]),
            self.context.model.flat,
            None if changes is None else changes[own],
            clip.limits[own],
            None if transform is None else (transform[0][own], transform[1][own]),
            self.known_to_attackers(local_step),
        )

    def chunk_clip(self, state: StepState) -> ChunkClip:
        """Return what scales the units of a chunk."""
        return ChunkClip(self.context.clipper, state.limits, state.transform)

    def known_to_attackers(self, local_step: LocalStep) -> RoundWeights | None:
        """Return what attackers know when the cohort computes; None where nobody attacks by then."""
        return None

    def divisors(self, cohort: np.ndarray) -> tuple[float | None, float]:
        """Return the denominator of the cohort's sum, by which it is divided before the noise (None: it is
        not), and the public denominator that the record of the release states."""
        return None, 1.0

    def sent(self, local_step: LocalStep, changes: Visible) -> Visible:
        """Return what reaches the server: the changes, unless attackers send something else."""
        return changes

    @abstractmethod
    def holders(self, cohort: np.ndarray) -> Tensor:
        """Return who holds the clip norms, and the optimiser's state, of a round [h]."""

    @abstractmethod
    def holder_count(self) -> int:
        """Return how many holders there are in all."""

    @abstractmethod
    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return (the mean of each holder [h, d] of what was released, the public denominators [h])."""

    @abstractmethod
    def initial_norm(self) -> float:
        """Return the mean norm of a unit on random records: no data is read, so it is free."""
