"""The unit is the client: uploads are clipped one by one, and only their noised sum is used.

The uploads of a few hundred clients are held at a time, however many there are in a round.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, LocalStep, StepState
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.uploads import Uploads
from fedpriv.common.base_classes import fact
from fedpriv.engine.parts import scaled_sum, upload_norms
from fedpriv.privacy.clippers.parts import rows_like, whole_norms
from fedpriv.privacy.clippers.step_clip import ChunkAnswer, ChunkClip

AT_ONCE = 256
"""Clients whose uploads are held at a time: bounds memory by this many models."""
_PIECE = 16  # uploads added up in single precision; the rest in double, so that none moves the sum further
_RECORDS_OF_NO_DATA = 256


class UploadComputation(ClientComputation):
    """A cohort's uploads, and their clipped mean. The server holds the one clip norm."""

    divides = False  # what is released is a mean already

    def __init__(
        self,
        context: RunContext,
        uploads: Uploads,
        denominator: Callable[[int, int], float],
        *,
        noise_on_the_mean: bool,
        upload_weight: float | None,
        rows: bool = False,
        combines: bool = False,
    ):
        """
        Args:
            denominator: Of the sum of c of K clients' uploads; public, unless ``noise_on_the_mean``.
            noise_on_the_mean: Whether the noise, and the sensitivity that it hides, are of the mean over
                whoever came, bounded over all cohorts (as one work prints it); else of the sum.
            upload_weight: By how much the mean upload moves the weights; None: that is no number.
            rows: Whether each scaled upload is an answer of its own, for what adds them up; all are held.
            combines: Whether each is released by itself, for a rule.
        """
        self.context, self._uploads, self._denominator_of = context, uploads, denominator
        self._noise_on_the_mean, self._upload_weight = noise_on_the_mean, upload_weight
        self._rows, self.combines = rows or combines, combines
        self.device = context.model.device
        self.has_weight_decay = uploads.sign == 1  # else the clients' own steps have it
        self._server = torch.zeros(1, dtype=torch.int64, device=self.device)

    @fact
    def uploads(self) -> Uploads:
        return self._uploads

    def holder_count(self) -> int:
        return 1

    def holders(self, cohort: np.ndarray) -> Tensor:
        return self._server

    def initial_norm(self) -> float:
        """Norm of the upload of a client whose records are random: no data is read, so it is free."""
        upload = self._uploads.of_records(*self.context.random_records(_RECORDS_OF_NO_DATA))
        return float(upload.norm())

    def denominator(self, cohort: np.ndarray) -> float:
        """Of the sum of a cohort's uploads."""
        return self._denominator_of(len(cohort), self.context.data.client_count)

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        flat = self.context.model.flat
        # the realised size of a cohort is nobody's to know: what is noised as a mean is one already
        known = 1.0 if self._noise_on_the_mean else self.denominator(cohort)
        return released.to(flat.dtype), flat.new_tensor([known])

    def divisors(self, cohort: np.ndarray) -> tuple[float | None, float]:
        """What is released is noised as it is released, a mean: the grid of a sum's noise would tell the size
        of a secret cohort where the noise is scaled by it."""
        if self.combines:
            return None, 1.0
        denominator = self.denominator(cohort)
        stated = 1.0 if self._noise_on_the_mean else denominator
        return (None if self._rows else denominator), stated

    def known_to_attackers(self, local_step: LocalStep) -> RoundWeights | None:
        if self.context.others is None:
            return None
        weights, weight = None, self._upload_weight
        if weight is not None:
            weights = np.full(len(local_step.cohort), weight / self.denominator(local_step.cohort))
        return RoundWeights(local_step.round_index, local_step.cohort, weights)

    def compute(self, state: StepState) -> ChunkAnswer:
        """Compute Σ_k factor_k u_k over a chunk, a few hundred clients at a time."""
        context, clients, clip = self.context, state.local_step.cohort, self.chunk_clip(state)
        total = torch.zeros_like(state.weights, dtype=torch.float64)
        norms = [upload_norms(state.weights.new_zeros(0, len(total)), clip.parts)]
        finites, losses = [norms[0].new_zeros(0, dtype=torch.bool)], [total[:0]]
        records, rows, sent, left_out = [torch.zeros(0, dtype=torch.int64)], [], [], 0
        for first in range(0, len(clients), AT_ONCE):
            own = clients[first : first + AT_ONCE]
            batch = self._uploads.of(state.local_step.round_index, own)
            uploads = batch.uploads
            if state.aggregation is not None:
                attackers = context.foreign(state.aggregation, own, uploads)
                assert attackers is not None
                attack, foreign = attackers
                sent.append(torch.linalg.vector_norm(foreign.values, dim=1))
                uploads = foreign.values.where(attack[:, None], uploads)
            holders = torch.zeros(len(own), dtype=torch.int64, device=self.device)  # the server
            if clip.transform is not None:
                uploads = clip.transformed(uploads, holders)
            norm = upload_norms(uploads, clip.parts)
            finite = whole_norms(norm).isfinite()
            if not bool(finite.all()):  # a factor of 0 would not do: 0 · nan is nan
                uploads = uploads.masked_fill(~finite[:, None], 0.0)
            counted = rows_like(finite, norm)
            factors = clip.factors(norm, holders).masked_fill(~counted, 0.0)
            if self._rows:
                rows += self._scaled(uploads, factors, clip, 1)
            else:
                for piece in self._scaled(uploads, factors, clip, _PIECE):
                    total += piece
            norms.append(norm.masked_fill(~counted, 0.0))
            finites.append(finite)
            losses.append(batch.loss_sum.reshape(-1).double())
            records.append(torch.as_tensor(batch.records).reshape(-1).cpu())
            left_out += int(batch.not_finite)
        return ChunkAnswer(
            clients,
            self._sums(total, rows),
            partial=not self._rows,
            scaled=clip.scaled,
            norms=torch.cat(norms),
            finite=torch.cat(finites),
            units=torch.arange(len(clients), device=self.device),
            losses=torch.cat(losses),
            records=torch.cat(records).to(self.device),
            left_out=left_out,
            sent_norms=torch.cat(sent) if sent else None,
        )

    def _sums(self, total: Tensor, rows: list[Tensor]) -> Tensor:
        """Return what a chunk answers: a row for each client, or their sum."""
        if not self._rows:
            return total[None]
        return torch.stack(rows) if rows else total.new_zeros(0, len(total))

    def _scaled(
        self, uploads: Tensor, factors: Tensor, clip: ChunkClip, together: int
    ) -> list[Tensor]:
        """Return the sums of the scaled uploads [c, d] of some clients, so many ``together``."""
        pieces = zip(uploads.split(together), factors.split(together), strict=True)
        return [scaled_sum(own, factor, clip.parts) for own, factor in pieces]
