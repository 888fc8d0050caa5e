"""Client level: each client's upload is one unit of privacy, and only the noised sum of the uploads is used.

    mean = (Σ_k u_k min(1, C/‖u_k‖)) / m + noise          m the public denominator of the cohort's sum

The uploads of a few hundred clients are held at a time, however many clients a round has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, LocalStep, StepState
from fedpriv.algorithms.run_context import (
    RECORDS_OF_NOISE,
    MaliciousParticipants,
    RoundWeights,
    RunContext,
)
from fedpriv.algorithms.uploads import Uploads
from fedpriv.common.base_classes import fact
from fedpriv.engine.parts import scaled_sum, upload_norms
from fedpriv.privacy.clippers.parts import LayerGroups, rows_like, whole_norms
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.privacy.mechanisms.visible import Visible

AT_ONCE = 256
"""Clients whose uploads are held at a time: bounds memory by this many models."""
# Uploads added up in single precision; pieces are added up in double. Rounding of short sums is small enough
# that no client moves the total by more than its clip norm.
_PIECE = 16


class UploadComputation(ClientComputation):
    """A cohort's uploads, and their clipped mean. The server holds the clip norm of all uploads.

    Args:
        context: What the run works on.
        uploads: The computation of the uploads.
        denominator: (clients c of the cohort, all clients K) → the number that divides the sum of c uploads;
            public, unless ``noise_on_the_mean``.
        noise_on_the_mean: Whether noise and sensitivity are those of the mean over the clients that came,
            bounded over all possible cohorts (as one published work prints it); else those of the sum.
        upload_weight: Factor by which the mean upload moves the weights, for attackers; None where the
            server's optimiser is not linear.
        rows: Whether each scaled upload is an answer of its own, for a mechanism that adds them up. All
            uploads of a chunk are then held.
        combines: Whether an aggregation rule combines what is released: each upload by itself, or with
            ``buckets`` the sums of buckets. Also true where each upload is released by itself because
            attackers send after they saw the uploads of the others.
        buckets: Number B of buckets of clients, whose sums are released as one vector of B d numbers; None:
            there are no buckets.
    """

    divides = False  # the released value is a mean already

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
        buckets: int | None = None,
    ):
        self.context, self._uploads, self._denominator_of = context, uploads, denominator
        self._noise_on_the_mean, self._upload_weight = noise_on_the_mean, upload_weight
        self._rows = rows or (combines and buckets is None)
        self.combines, self.buckets = combines, buckets
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
        """Return the norm of an upload computed from random records, from which clippers start.

        No data is read, so it costs no privacy.
        """
        upload = self._uploads.of_records(*self.context.random_records(RECORDS_OF_NOISE))
        return float(upload.norm())

    def denominator(self, cohort: np.ndarray) -> float:
        """Return the number that divides the sum of a cohort's uploads."""
        return self._denominator_of(len(cohort), self.context.data.client_count)

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        flat = self.context.model.flat
        # Noise on the mean hides the realised size of the cohort, so that size is not published here.
        denominator = 1.0 if self._noise_on_the_mean else self.denominator(cohort)
        means = released.to(flat.dtype)
        if self.buckets is not None:
            means = means.view(self.buckets, -1)
        return means, flat.new_tensor([denominator])

    def divisors(self, cohort: np.ndarray) -> tuple[float | None, float]:
        """Return (the denominator before the noise, the stated denominator); see the base class.

        The sum is divided before the noise is added, because noise lies on a public grid: dividing a noised
        sum afterwards would scale the grid, and its step would tell the size of a secret cohort.
        """
        if self.combines and self.buckets is None:
            return None, 1.0
        # The expected size of a bucket is public. Its realised size is secret.
        denominator = self.denominator(cohort) / (self.buckets or 1)
        stated = 1.0 if self._noise_on_the_mean else denominator
        return (None if self._rows else denominator), stated

    def known_to_attackers(self, local_step: LocalStep) -> RoundWeights | None:
        if self.context.others is None or self._attackers_after_release() is not None:
            return None
        known, attack = self._round_weights(local_step), self.context.attack
        if self.context.canaries is not None or attack is None or not attack.whole_round:
            return known
        # Attackers that need all uploads of the round forge here, once, so that what they send does not
        # depend on the chunks.
        cohort, t = local_step.cohort, local_step.round_index
        malicious = attack.malicious_among(t, cohort)
        if not malicious.any():
            return known
        seen = cohort if attack.sees_uploads else cohort[malicious]
        _, foreign = self.context.foreign(known, seen, self._of_clients(t, seen))
        forged = foreign.values[torch.from_numpy(malicious[np.isin(cohort, seen)])]
        return replace(known, forgers=cohort[malicious], forged=forged)

    def received(self, local_step: LocalStep, uploads: Visible) -> Visible:
        attack = self._attackers_after_release()
        if attack is None:
            return uploads
        cohort, t = local_step.cohort, local_step.round_index
        malicious = attack.malicious_among(t, cohort)
        # Attackers know their own uploads before clip and noise. Those of the others they see as the server
        # does, unless they are omniscient.
        known_raw = np.ones(len(cohort), dtype=bool) if attack.sees_raw_uploads else malicious
        if malicious.any():
            seen = uploads.values.clone()
            seen[torch.from_numpy(known_raw)] = self._of_clients(t, cohort[known_raw])
            is_attacker, foreign = self.context.foreign(
                self._round_weights(local_step), cohort, seen
            )
            uploads = uploads.with_foreign(is_attacker, foreign)
        norms = torch.linalg.vector_norm(uploads.values, dim=1)
        self.context.note_sent(t, cohort, norms)
        return uploads

    def _attackers_after_release(self) -> MaliciousParticipants | None:
        """Return the attackers if they put uploads into the place of released ones; else None."""
        attack, algorithm = self.context.attack, self.context.mechanism.algorithm
        if self.context.canaries is not None or attack is None or not self.combines:
            return None
        return attack if attack.whole_round and attack.sends_after_release(algorithm) else None

    def _round_weights(self, local_step: LocalStep) -> RoundWeights:
        cohort, weights = local_step.cohort, None
        if self._upload_weight is not None:
            weights = np.full(len(cohort), self._upload_weight / self.denominator(cohort))
        return RoundWeights(local_step.round_index, cohort, weights)

    def draw(self, local_step: LocalStep) -> None:
        super().draw(local_step)
        if (draw := getattr(self._uploads, "draw", None)) is not None:
            clients = local_step.cohort
            for first in range(0, len(clients), AT_ONCE):
                draw(local_step.round_index, clients[first : first + AT_ONCE])

    def _of_clients(self, round_index: int, clients: np.ndarray) -> Tensor:
        """Return the uploads of some clients before clip and noise [c, d]."""
        batches = (clients[at : at + AT_ONCE] for at in range(0, len(clients), AT_ONCE))
        return torch.cat([self._uploads.of(round_index, batch).uploads for batch in batches])

    def compute(self, state: StepState) -> ChunkAnswer:
        """Compute Σ_k factor_k u_k over a chunk, a few hundred clients at a time."""
        context, clients, clip = self.context, state.local_step.cohort, self.chunk_clip(state)
        places = self.buckets_of(state.local_step)
        sums_of_a_chunk = 1 if self._rows else self.buckets or 1
        total = state.weights.new_zeros(sums_of_a_chunk, len(state.weights), dtype=torch.float64)
        # Lists of the batches' vectors. They begin with empty ones, which give an empty chunk its types.
        norms = [upload_norms(state.weights.new_zeros(0, len(state.weights)), clip.parts)]
        finites, losses = [norms[0].new_zeros(0, dtype=torch.bool)], [total.view(-1)[:0]]
        records, rows, sent_norms = [torch.zeros(0, dtype=torch.int64)], [], []
        left_out = 0
        for first in range(0, len(clients), AT_ONCE):
            # 1. What the clients send: their own uploads, or what attackers put in their place.
            some_clients = clients[first : first + AT_ONCE]
            batch = self._uploads.of(state.local_step.round_index, some_clients)
            uploads = batch.uploads
            if state.aggregation is not None:
                is_attacker, foreign = context.foreign(state.aggregation, some_clients, uploads)
                sent_norms.append(torch.linalg.vector_norm(foreign.values, dim=1))
                uploads = foreign.values.where(is_attacker[:, None], uploads)

            # 2. Norms. An upload that is not finite contributes nothing. A factor of 0 would not do:
            #    0 · nan is nan.
            holders = torch.zeros(len(some_clients), dtype=torch.int64, device=self.device)
            norm = upload_norms(uploads, clip.parts)
            finite = whole_norms(norm).isfinite()
            if not bool(finite.all()):
                uploads = uploads.masked_fill(~finite[:, None], 0.0)

            # 3. Clip and sum: one row for each client, or one sum, in double precision from short pieces.
            counted = rows_like(finite, norm)
            factors = clip.factors(norm, holders).masked_fill(~counted, 0.0)
            if self._rows:
                one_by_one = zip(uploads.split(1), factors.split(1), strict=True)
                rows += [scaled_sum(upload, factor, clip.parts) for upload, factor in one_by_one]
            else:
                of_batch = None if places is None else places[first : first + AT_ONCE]
                _add_to_sums(total, uploads, factors, of_batch, clip.parts)

            norms.append(norm.masked_fill(~counted, 0.0))
            finites.append(finite)
            losses.append(batch.loss_sum.reshape(-1).double())
            records.append(torch.as_tensor(batch.records).reshape(-1).cpu())
            left_out += int(batch.not_finite)
        sums = total.view(1, -1)
        if self._rows:
            sums = self.stacked(torch.stack(rows) if rows else sums[:0], places)
        return ChunkAnswer(
            clients,
            sums,
            partial=not self._rows,
            scaled=clip.scaled,
            norms=torch.cat(norms),
            finite=torch.cat(finites),
            units=torch.arange(len(clients), device=self.device),
            losses=torch.cat(losses),
            records=torch.cat(records).to(self.device),
            left_out=left_out,
            sent_norms=torch.cat(sent_norms) if sent_norms else None,
        )


def _add_to_sums(
    sums: Tensor, uploads: Tensor, factors: Tensor, places: Tensor | None, parts: LayerGroups | None
) -> None:
    """Add each client's scaled upload to the sum of its bucket, in double precision from short pieces.

    Args:
        sums: The sum of each bucket [B, d]; one for all clients where ``places`` is None. Changed in place.
        uploads: Uploads [c, d].
        factors: Factor of each upload [c], or of its parts [c, G].
        places: Bucket of each client [c]; None: there are no buckets.
        parts: Parts of an upload that are clipped apart; None: it is clipped as a whole.
    """
    groups: list[slice | Tensor] = [slice(None)]
    if places is not None:
        groups = [places == bucket for bucket in range(len(sums))]
    for into, group in zip(sums, groups, strict=True):
        pieces = zip(uploads[group].split(_PIECE), factors[group].split(_PIECE), strict=True)
        for piece, piece_factors in pieces:
            into += scaled_sum(piece, piece_factors, parts)
