"""The clients' computation of one local step: a pure function of chunks of clients.

    state   = what is public before the step, cut to the clients of a chunk
    answers = compute(state) for every chunk              # reads records, changes nothing
    answer  = clip.merge(answers, cohort)                 # one bounded sum, in the order of the cohort

Optimisers, clippers and attackers change outside :meth:`ClientComputation.compute`. So a chunk may be
computed anywhere, and twice. Partial sums are added in the order of the chunks. Losses and statistics are
computed from vectors with a number for each unit, joined in the order of the cohort. Results therefore
depend on the size of the chunks only through the rounding of the sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.common.base_classes import fact
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.clippers.step_clip import ChunkAnswer, ChunkClip, StepClip
from fedpriv.privacy.core.sampling import sample_buckets
from fedpriv.privacy.mechanisms import Bounded, Visible

if TYPE_CHECKING:
    from fedpriv.algorithms.uploads import Uploads


@dataclass(frozen=True)
class LocalStep:
    """One local step of one round.

    Attributes:
        round_index: The round t = 0, 1, …
        step: The local step within the round, 0, 1, …
        cohort: Clients that take part [c], ascending.
    """

    round_index: int
    step: int
    cohort: np.ndarray


@dataclass(frozen=True)
class StepState:
    """Everything that a chunk of c clients computes from, beside its records and the run's settings.

    Attributes:
        local_step: The local step, with the clients of the chunk as its cohort.
        weights: The global weights θ [d].
        changes: What each client added to θ in earlier local steps [c, d]; None: nothing yet.
        limits: The clip norm of each client [c], or of the server [1]; [., G] where parts are clipped apart.
        aggregation: What attackers know of the round; None where nobody attacks in this computation.
    """

    local_step: LocalStep
    weights: Tensor
    changes: Tensor | None
    limits: Tensor
    aggregation: RoundWeights | None


@dataclass(frozen=True)
class CohortAnswer:
    """A cohort's answer in one local step, and exact statistics for the analyst.

    Attributes:
        answer: The clipped sum, or mean, of each holder of a clip norm [h, d]; not yet noised.
        norms: Norm of each unit before clipping [n], or of its parts [n, G]; 0 for a unit that is not finite.
        owners: Position of the holder whose clip norm bounds each unit [n].
        units: Position in the cohort of the client that each unit belongs to [n].
        train_loss: Mean loss of the records.
        gradient_norm: Mean norm of the finite units before clipping.
        not_finite: Number of units that were not finite.
    """

    answer: Bounded
    norms: Tensor
    owners: Tensor
    units: Tensor
    train_loss: float
    gradient_norm: float
    not_finite: int


def _joined(vectors: list[Tensor]) -> Tensor:
    """Return the vectors of all chunks as one vector, without a copy where there is one chunk."""
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors)


class ClientComputation(ABC):
    """The computation of a cohort in one local step, and the holders of the clip norms that bound it.

    A *unit* is what is clipped: a record's gradient, or a client's whole upload. A *holder* has a clip norm
    and an optimiser: each client, or the server for all of them. From units to the mean gradient,

        sum_j = Σ_i factor_i unit_i over the units i of holder j       computed by the clients
        mean_j = (sum_j + noise_j) / denominator_j                     by :meth:`mean`, after the release

    The denominator is public. It may also divide the sum before the noise is added (:meth:`divisors`); then
    the released value is a mean already and ``divides`` is False.

    Attributes:
        context: Data, model, engine, clipper and secret streams of the run.
        steps: Number of local steps of a round.
        holds_norms: Whether each client holds a clip norm and an optimiser; else the server does.
        divides: Whether :meth:`mean` divides the released values by the denominators, and so the standard
            deviation of their noise too. False where they are means already.
        combines: Whether :meth:`mean` returns rows that a rule combines before the server's optimiser: one
            for each client, released by itself [c, d], or one for each bucket [B, d].
        buckets: Number B of buckets, whose sums are released together; None: there are none.
        has_weight_decay: Whether the trainer adds the gradient of λ/2 ‖θ‖² after the noise: it reads no
            record. False where clients add it in their own training.
        proximal: μ of FedProx's μ/2 ‖w - θ‖², whose gradient is added after the noise too.
    """

    context: RunContext
    steps: int = 1
    holds_norms: bool = False
    divides: bool = True
    combines: bool = False
    buckets: int | None = None
    has_weight_decay: bool = True
    proximal: float = 0.0

    @fact
    def uploads(self) -> Uploads | None:
        """The computation of whole uploads, where these are the units; None where records are."""
        return None

    @abstractmethod
    def compute(self, state: StepState) -> ChunkAnswer:
        """Compute the answer of a chunk of clients.

        The method is pure: it changes nothing that outlives the call.

        Args:
            state: What the chunk computes from; ``state.local_step.cohort`` [c] are its clients.

        Returns:
            The clipped sums of the chunk and a number for each of its units.
        """

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        """Let a cohort compute in chunks, and join the answers.

        Args:
            local_step: The local step.
            changes: What earlier local steps add to the global weights [h, d]; None: nothing yet.
            clip: The clip norms of this step, and the only maker of a bounded sum.

        Returns:
            The bounded sum of each holder, and statistics over all units.

        Raises:
            ReleaseError: A chunk left out a client, or answered for one twice, or did not clip.
        """
        cohort, context = local_step.cohort, self.context
        size = context.chunk or len(cohort) or 1
        starts = range(0, len(cohort) or 1, size)  # an empty cohort is one empty chunk
        known = self.known_to_attackers(local_step)
        states = [
            self.step_state(local_step, changes, clip, slice(at, at + size), known) for at in starts
        ]
        answers: list[ChunkAnswer] = []  # without their sums, which are added up as they come

        def computed() -> Iterator[ChunkAnswer]:
            for chunk in context.map_chunks(self.compute, states):
                answers.append(replace(chunk, sums=chunk.sums[:0]))
                yield chunk

        apart = self.combines and self.buckets is None
        answer = clip.merge(computed(), cohort, *self.divisors(cohort), apart=apart)

        # Statistics of the units, for the analyst and for the clipper's own question.
        if answers[0].sent_norms is not None:
            sent = _joined([chunk.sent_norms for chunk in answers if chunk.sent_norms is not None])
            context.note_sent(local_step.round_index, cohort, sent)
        norms, finite, losses, records = (
            _joined([getattr(chunk, name) for chunk in answers])
            for name in ("norms", "finite", "losses", "records")
        )
        units = _joined([chunk.units + at for chunk, at in zip(answers, starts, strict=True)])
        counted = finite.sum()
        left_out = sum(chunk.left_out for chunk in answers)
        train_loss = losses.sum() / (records.sum() - left_out)
        gradient_norm = whole_norms(norms).sum().to(train_loss.dtype) / counted
        # One transfer for all numbers: each would make an accelerator wait.
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
        self,
        local_step: LocalStep,
        changes: Tensor | None,
        clip: StepClip,
        chunk: slice,
        known: RoundWeights | None = None,
    ) -> StepState:
        """Return what the clients of a chunk of the cohort compute from.

        Args:
            local_step: The local step, with the whole cohort.
            changes: What earlier local steps add to the global weights [h, d]; None: nothing yet.
            clip: The clip norms of this step.
            chunk: Positions of the chunk's clients in the cohort.
            known: What attackers know of the round, see :meth:`known_to_attackers`.
        """
        clients = local_step.cohort[chunk]
        holders = chunk if self.holds_norms else slice(None)  # rows of the chunk's holders
        return StepState(
            LocalStep(local_step.round_index, local_step.step, clients),
            self.context.model.flat,
            None if changes is None else changes[holders],
            clip.limits[holders],
            None if known is None else known.of_chunk(clients),
        )

    def chunk_clip(self, state: StepState) -> ChunkClip:
        """Return the clip that scales the units of a chunk."""
        return ChunkClip(self.context.clipper, state.limits, state.local_step.round_index)

    def known_to_attackers(self, local_step: LocalStep) -> RoundWeights | None:
        """Return what attackers know when the cohort computes, and what they forged before.

        The default is None: nobody attacks by then.
        """
        return None

    def received(self, local_step: LocalStep, uploads: Visible) -> Visible:
        """Return the uploads that reach the server, where ``combines``; by default all as they are.

        A computation with attackers that send after the release puts what they send into their rows.

        Args:
            local_step: The local step.
            uploads: The released upload of each client [c, d].
        """
        return uploads

    def divisors(self, cohort: np.ndarray) -> tuple[float | None, float]:
        """Return (the denominator before the noise, the stated denominator) of the cohort's sum.

        The first divides the clipped sum before noise is added; None: noise is added to the sum itself. The
        second is the public denominator that the ledger's release states: the ledger enters sensitivity and
        noise of the sum, that is of the released value times this number. The default is (None, 1): a sum.

        Args:
            cohort: The clients that take part [c].
        """
        return None, 1.0

    def sent(self, local_step: LocalStep, changes: Visible) -> Visible:
        """Return what reaches the server at the end of a round; this default returns the changes as they are.

        A computation with attackers overrides it, and puts what they send into their rows.

        Args:
            local_step: The last local step of the round.
            changes: The released change of each holder [h, d] (see :meth:`holders`), added up over local
                steps.
        """
        return changes

    @abstractmethod
    def holders(self, cohort: np.ndarray) -> Tensor:
        """Return the holders of the clip norms and of the optimiser's state in a round [h]."""

    @abstractmethod
    def holder_count(self) -> int:
        """Return the number of all holders, whether they take part or not."""

    @abstractmethod
    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the mean of each holder and the public denominators.

        Args:
            released: The noised value of each holder [h, d]; where ``combines``, of each client [c, d] or of
                all buckets together [1, B d].
            cohort: The clients that take part [c].

        Returns:
            (means, one row for each holder, client or bucket [., d]; denominators [h]).
        """

    @property
    def numbers_released(self) -> int:
        """The number of numbers in one released row: d, or B d for the sums of B buckets."""
        return self.context.model.size * (self.buckets or 1)

    def draw(self, local_step: LocalStep) -> None:
        """Make all draws of a chunk, for the process that computes it without the streams.

        The draws are noted by :class:`fedpriv.privacy.core.sampling.ChunkDraws`, and returned to
        :meth:`compute` when it makes them again.

        Args:
            local_step: The local step, with the clients of the chunk as its cohort.
        """
        self.buckets_of(local_step)

    def buckets_of(self, local_step: LocalStep) -> Tensor | None:
        """Return the bucket of each client [c], in 0 … B-1; None where there are no buckets."""
        if self.buckets is None:
            return None
        t, step, clients = local_step.round_index, local_step.step, local_step.cohort
        drawn = sample_buckets(self.context.streams, self.buckets, t, step, clients)
        return torch.from_numpy(drawn).to(self.context.model.device)

    def stacked(self, vectors: Tensor, places: Tensor | None) -> Tensor:
        """Return each client's vector in its bucket, with zeros in the others [c, B d].

        Args:
            vectors: The clients' vectors [c, d].
            places: Bucket of each client [c]; None: vectors are returned as they are.
        """
        if places is None:
            return vectors
        assert self.buckets is not None
        rows = torch.arange(len(vectors), device=vectors.device)
        of_buckets = vectors.new_zeros(len(vectors), self.buckets, vectors.shape[1])
        of_buckets[rows, places] = vectors
        return of_buckets.view(len(vectors), -1)

    @abstractmethod
    def initial_norm(self) -> float:
        """Return the mean norm of a unit on random records. No data is read, so it costs no privacy."""
