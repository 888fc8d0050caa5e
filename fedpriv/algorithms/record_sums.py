"""Work of algorithms whose server needs one sum: clipped records of all clients, or rows for a secure sum."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented
from fedpriv.algorithms.client_work import ClientWork
from fedpriv.algorithms.problem import Problem
from fedpriv.algorithms.trainer import Clipped, Turn
from fedpriv.engine.parts import asking_for, scaled_sum
from fedpriv.privacy.clippers.clip import Clip
from fedpriv.privacy.clippers.parts import rows_like, whole_norms
from fedpriv.privacy.core.sampling import Sampling, sample_lot
from fedpriv.privacy.mechanisms.bounded import Bounded
from fedpriv.privacy.mechanisms.visible import Visible

_RECORDS_OF_NO_DATA = 256


class RecordSums:
    """Lots of all clients, their records clipped one by one to the one clip norm, which the server holds."""

    steps = 1
    has_weight_decay = True
    divides = True
    proximal = 0.0

    def __init__(
        self,
        problem: Problem,
        sampling: Sampling,
        *,
        rows: bool,
        augmentation: Augmentation | None = None,
    ):
        """``rows``: each client's sum is an answer of its own, for what adds them up; else their sum is;
        ``augmentation``: the copies of each record."""
        self.problem, self._sampling, self._rows = problem, sampling, rows
        self._augmentation = augmentation
        problem.prove_engine(None if augmentation is None else augmentation.multiplicity)
        self.device = problem.model.device
        self._server = torch.zeros(1, dtype=torch.int64, device=self.device)

    def holder_count(self) -> int:
        return 1

    def holders(self, cohort: np.ndarray) -> Tensor:
        return self._server

    def initial_norm(self) -> float:
        """Mean gradient norm of the initial model on random records: no data is read, so it is free."""
        inputs, targets = self.problem.random_records(_RECORDS_OF_NO_DATA)
        owners = torch.zeros(len(targets), dtype=torch.int64)
        result = self.problem.engine.clipped_sums(
            inputs, targets, owners, 1, lambda norms, clients: torch.ones_like(norms)
        )
        return float(result.norms.mean())

    def _lots(self, turn: Turn) -> list[np.ndarray]:
        problem, t = self.problem, turn.round_index
        return [
            sample_lot(
                problem.streams, self._sampling, problem.records_of(t, client), t, turn.step, client
            )
            for client in turn.cohort
        ]

    def clipped(self, turn: Turn, changes: Tensor | None, clip: Clip) -> Clipped:
        model, lots = self.problem.model, self._lots(turn)
        sizes = torch.tensor([len(lot) for lot in lots])
        inputs, targets = self.problem.data.train.rows(np.concatenate(lots))
        if self._augmentation is not None:
            place = (turn.round_index, turn.step)
            inputs = augmented(self._augmentation, self.problem, place, turn.cohort, lots, inputs)
        units = torch.repeat_interleave(torch.arange(len(lots)), sizes)
        result = self.problem.engine.clipped_sums(
            inputs,
            targets,
            units,
            len(lots),
            asking_for(
                clip.parts, lambda norms, clients: clip.factors(norms, torch.zeros_like(clients))
            ),
        )
        sums = result.sums if self._rows else result.sums.double().sum(0, keepdim=True)
        norms = torch.where(rows_like(result.finite, result.norms), result.norms, 0.0)
        losses = torch.where(result.finite, result.losses, 0.0)
        used = int(result.finite.sum())
        penalty = float(model.penalty(model.flat)) if model.weight_decay else 0.0
        return Clipped(
            clip.bounded(sums),
            norms,
            torch.zeros(len(norms), dtype=torch.int64, device=self.device),
            units.to(self.device),
            train_loss=float(losses.sum()) / used + penalty if used else math.nan,
            gradient_norm=float(whole_norms(norms).sum()) / used if used else math.nan,
            not_finite=len(norms) - used,
        )

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        sizes = self.problem.data.records_per_client[cohort]
        whole = sum(self._sampling.expected_size(int(n)) for n in sizes)
        flat = self.problem.model.flat
        return released.to(flat.dtype) / whole, flat.new_tensor([whole])

    def sent(self, turn: Turn, changes: Visible) -> Visible:
        return changes


class UploadRows(ClientWork):
    """A cohort's scaled uploads, each for itself: they are held all at once."""

    def _add(self, total: Tensor, uploads: Tensor, factors: Tensor, clip: Clip) -> None:
        own = zip(uploads.split(1), factors.split(1), strict=True)
        rows = [scaled_sum(row, factor, clip.parts)[None] for row, factor in own]
        self._held = [*getattr(self, "_held", ()), *rows]

    def _answer(self, clip: Clip, total: Tensor, denominator: float) -> Bounded:
        rows, self._held = torch.cat(self._held), []
        return clip.bounded(rows, denominator)
