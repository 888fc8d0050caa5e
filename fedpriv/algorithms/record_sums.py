"""The unit is the record, and the server needs one sum of the clipped gradients of all clients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented
from fedpriv.algorithms.problem import Problem
from fedpriv.algorithms.work import StepState, Turn, Work
from fedpriv.engine.interface import Sliced
from fedpriv.engine.parts import asking_for
from fedpriv.privacy.clippers.clip import ChunkAnswer
from fedpriv.privacy.clippers.parts import rows_like
from fedpriv.privacy.core.sampling import Sampling, sample_lot

_RECORDS_OF_NO_DATA = 256


class RecordSums(Work):
    """Lots of all clients, their records clipped one by one to the one clip norm, which the server holds."""

    def __init__(
        self,
        problem: Problem,
        sampling: Sampling,
        *,
        rows: bool,
        combines: bool = False,
        augmentation: Augmentation | None = None,
    ):
        """``rows``: each client's sum is an answer of its own, for what adds them up; else their sum is;
        ``combines``: each is released by itself, for a rule; ``augmentation``: the copies of each record."""
        self.problem, self._sampling, self._rows = problem, sampling, rows or combines
        self.combines = combines
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

    def compute(self, state: StepState) -> ChunkAnswer:
        """Sample the clients' lots, and scale and sum the gradients of their records."""
        model, turn, clip = self.problem.model, state.turn, self.chunk_clip(state)
        lots = self._lots(turn)
        sizes = torch.tensor([len(lot) for lot in lots])
        inputs: Sliced
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
        losses = result.losses
        if model.weight_decay:
            losses = losses + model.penalty(model.flat)
        return ChunkAnswer(
            turn.cohort,
            result.sums if self._rows else result.sums.double().sum(0, keepdim=True),
            partial=not self._rows,
            scaled=clip.scaled,
            norms=torch.where(rows_like(result.finite, result.norms), result.norms, 0.0),
            finite=result.finite,
            units=units.to(self.device),
            losses=torch.where(result.finite, losses, 0.0),
            records=result.finite,
        )

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        sizes = self.problem.data.records_per_client[cohort]
        expected = [self._sampling.expected_size(int(n)) for n in sizes]
        whole, flat = sum(expected), self.problem.model.flat
        if self.combines:
            own = flat.new_tensor(expected)[:, None]
            return released.to(flat.dtype) / own, flat.new_tensor([whole])
        return released.to(flat.dtype) / whole, flat.new_tensor([whole])
