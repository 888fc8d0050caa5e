"""The unit is the record, and the server needs one sum of the clipped gradients of all clients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented
from fedpriv.algorithms.client_computation import ClientComputation, LocalStep, StepState
from fedpriv.algorithms.run_context import RunContext
from fedpriv.engine.interface import Sliced
from fedpriv.engine.parts import asking_for
from fedpriv.privacy.clippers.parts import rows_like
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.privacy.core.sampling import Sampling, sample_lot

_RECORDS_OF_NO_DATA = 256


class RecordSums(ClientComputation):
    """Lots of all clients, their records clipped one by one to the one clip norm, which the server holds."""

    def __init__(
        self,
        context: RunContext,
        sampling: Sampling,
        *,
        rows: bool,
        combines: bool = False,
        augmentation: Augmentation | None = None,
    ):
        """``rows``: each client's sum is an answer of its own, for what adds them up; else their sum is;
        ``combines``: each is released by itself, for a rule; ``augmentation``: the copies of each record."""
        self.context, self._sampling, self._rows = context, sampling, rows or combines
        self.combines = combines
        self._augmentation = augmentation
        context.prove_engine(None if augmentation is None else augmentation.multiplicity)
        self.device = context.model.device
        self._server = torch.zeros(1, dtype=torch.int64, device=self.device)

    def holder_count(self) -> int:
        return 1

    def holders(self, cohort: np.ndarray) -> Tensor:
        return self._server

    def initial_norm(self) -> float:
        """Mean gradient norm of the initial model on random records: no data is read, so it is free."""
        inputs, targets = self.context.random_records(_RECORDS_OF_NO_DATA)
        owners = torch.zeros(len(targets), dtype=torch.int64)
        result = self.context.engine.clipped_sums(
            inputs, targets, owners, 1, lambda norms, clients: torch.ones_like(norms)
        )
        return float(result.norms.mean())

    def _lots(self, local_step: LocalStep) -> list[np.ndarray]:
        context, t = self.context, local_step.round_index
        return [
            sample_lot(
                context.streams,
                self._sampling,
                context.records_of(t, client),
                t,
                local_step.step,
                client,
            )
            for client in local_step.cohort
        ]

    def compute(self, state: StepState) -> ChunkAnswer:
        """Sample the clients' lots, and scale and sum the gradients of their records."""
        model, local_step, clip = self.context.model, state.local_step, self.chunk_clip(state)
        lots = self._lots(local_step)
        sizes = torch.tensor([len(lot) for lot in lots])
        inputs: Sliced
        inputs, targets = self.context.data.train.rows(np.concatenate(lots))
        if self._augmentation is not None:
            place = (local_step.round_index, local_step.step)
            inputs = augmented(
                self._augmentation, self.context, place, local_step.cohort, lots, inputs
            )
        units = torch.repeat_interleave(torch.arange(len(lots)), sizes)
        result = self.context.engine.clipped_sums(
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
            local_step.cohort,
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
        sizes = self.context.data.records_per_client[cohort]
        expected = [self._sampling.expected_size(int(n)) for n in sizes]
        whole, flat = sum(expected), self.context.model.flat
        if self.combines:
            own = flat.new_tensor(expected)[:, None]
            return released.to(flat.dtype) / own, flat.new_tensor([whole])
        return released.to(flat.dtype) / whole, flat.new_tensor([whole])
