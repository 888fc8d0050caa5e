"""The unit is the client: uploads are clipped one by one, and only their noised sum is used.

The uploads of a few hundred clients are held at a time, however many there are in a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.problem import Aggregation, Problem
from fedpriv.algorithms.trainer import Clipped, Turn
from fedpriv.algorithms.uploads import Uploads
from fedpriv.engine.parts import scaled_sum, upload_norms
from fedpriv.privacy.clippers.clip import Clip
from fedpriv.privacy.clippers.parts import rows_like, whole_norms
from fedpriv.privacy.mechanisms.bounded import Bounded
from fedpriv.privacy.mechanisms.visible import Visible

AT_ONCE = 256
"""Clients whose uploads are held at a time: bounds memory by this many models."""
_PIECE = 16  # uploads added up in single precision; the rest in double, so that none moves the sum further
_RECORDS_OF_NO_DATA = 256


class ClientWork:
    """A cohort's uploads, and their clipped mean."""

    steps = 1
    divides = False  # what is released is a mean already
    proximal = 0.0  # that of the clients is in their uploads

    def __init__(
        self,
        problem: Problem,
        uploads: Uploads,
        denominator: Callable[[int, int], float],
        *,
        noise_on_the_mean: bool,
        upload_weight: float | None,
    ):
        """
        Args:
            denominator: Of the sum of c of K clients' uploads; public, unless ``noise_on_the_mean``.
            noise_on_the_mean: Whether the noise, and the sensitivity that it hides, are of the mean over
                whoever came, bounded over all cohorts (as one work prints it); else of the sum.
            upload_weight: By how much the mean upload moves the weights; None: that is no number.
        """
        self.problem, self._uploads, self._denominator_of = problem, uploads, denominator
        self._noise_on_the_mean, self._upload_weight = noise_on_the_mean, upload_weight
        self.device = problem.model.device
        self.has_weight_decay = uploads.sign == 1  # else the clients' own steps have it
        self._server = torch.zeros(1, dtype=torch.int64, device=self.device)

    def holder_count(self) -> int:
        return 1

    def holders(self, cohort: np.ndarray) -> Tensor:
        return self._server

    def initial_norm(self) -> float:
        """Norm of the upload of a client whose records are random: no data is read, so it is free."""
        upload = self._uploads.of_records(*self.problem.random_records(_RECORDS_OF_NO_DATA))
        return float(upload.norm())

    def denominator(self, cohort: np.ndarray) -> float:
        """Of the sum of a cohort's uploads."""
        return self._denominator_of(len(cohort), self.problem.data.client_count)

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        flat = self.problem.model.flat
        # the realised size of a cohort is nobody's to know: what is noised as a mean is one already
        known = 1.0 if self._noise_on_the_mean else self.denominator(cohort)
        return released.to(flat.dtype), flat.new_tensor([known])

    def sent(self, turn: Turn, changes: Visible) -> Visible:
        return changes  # attackers took part before the sum was clipped and noised

    def clipped(self, turn: Turn, changes: Tensor | None, clip: Clip) -> Clipped:
        """Σ_k factor_k u_k over the cohort, a few hundred clients at a time, divided by its denominator.

        What is released is noised as it is released, a mean: the grid of a sum's noise would tell the size of
        a secret cohort where the noise is scaled by it.
        """
        problem, cohort = self.problem, turn.cohort
        total = torch.zeros_like(problem.model.flat, dtype=torch.float64)
        denominator = self.denominator(cohort)
        weight = self._upload_weight
        weights = None if weight is None else np.full(len(cohort), weight / denominator)
        aggregation = Aggregation(turn.round_index, cohort, weights)
        norms, batches = [upload_norms(problem.model.flat.new_zeros(0, len(total)), clip.parts)], []
        uploads_lost = 0
        for first in range(0, len(cohort), AT_ONCE):
            clients = cohort[first : first + AT_ONCE]
            batch = self._uploads.of(turn.round_index, clients)
            uploads = batch.uploads
            if (found := problem.foreign(aggregation, clients, uploads)) is not None:
                rows, foreign = found
                uploads = foreign.values.where(rows[:, None], uploads)
            uploads = clip.transformed(uploads, self._owners(uploads))
            norm = upload_norms(uploads, clip.parts)
            finite = whole_norms(norm).isfinite()
            if not bool(finite.all()):  # a factor of 0 would not do: 0 · nan is nan
                uploads = uploads.masked_fill(~finite[:, None], 0.0)
                uploads_lost += int((~finite).sum())
            counted = rows_like(finite, norm)
            factors = clip.factors(norm, self._owners(norm)).masked_fill(~counted, 0.0)
            self._add(total, uploads, factors, clip)
            norms.append(norm.masked_fill(~counted, 0.0))
            batches.append((float(batch.loss_sum), batch.records, batch.not_finite))
        loss_sum, records, lost = np.sum(batches, axis=0) if batches else (0.0, 0, 0)
        norm = torch.cat(norms)
        used, uploads_used = int(records) - int(lost), len(norm) - uploads_lost
        return Clipped(
            self._answer(clip, total, denominator),
            norm,
            self._owners(norm),
            torch.arange(len(norm), device=self.device),
            train_loss=loss_sum / used if used else math.nan,
            gradient_norm=float(whole_norms(norm).sum()) / uploads_used
            if uploads_used
            else math.nan,
            not_finite=int(lost) + uploads_lost,
        )

    def _add(self, total: Tensor, uploads: Tensor, factors: Tensor, clip: Clip) -> None:
        """Add the scaled uploads [c, d] of some clients to what is aggregated."""
        for own, factor in zip(uploads.split(_PIECE), factors.split(_PIECE), strict=True):
            total += scaled_sum(own, factor, clip.parts)

    def _answer(self, clip: Clip, total: Tensor, denominator: float) -> Bounded:
        """What is to be noised: the mean of the scaled uploads."""
        return clip.bounded(
            total.div_(denominator)[None], 1.0 if self._noise_on_the_mean else denominator
        )

    def _owners(self, norms: Tensor) -> Tensor:
        """The server holds the one clip norm of all."""
        return torch.zeros(len(norms), dtype=torch.int64, device=self.device)
