"""Record level with one clip norm: the server needs the sum of the clipped gradients of all clients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented, words_of_copies
from fedpriv.algorithms.client_computation import ClientComputation, LocalStep, StepState
from fedpriv.algorithms.run_context import RunContext
from fedpriv.engine.interface import Sliced
from fedpriv.engine.parts import asking_for
from fedpriv.privacy.clippers.parts import rows_like
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.privacy.core.sampling import Sampling


class RecordSums(ClientComputation):
    """Lots of all clients, their records clipped one by one to the clip norm that the server holds.

        g̃ = (1/L) (Σ_k Σ_{i in lot k} g_i min(1, C/‖g_i‖) + noise),    L = Σ_k (expected size of lot k)

    Args:
        context: What the run works on.
        sampling: Sampling of every client's lot.
        rows: Whether each client's sum is an answer of its own, for a mechanism that adds them up; else
            their sum is one answer.
        combines: Whether an aggregation rule combines what is released: each client's sum by itself, or with
            ``buckets`` the sums of buckets.
        buckets: Number B of buckets of clients, whose sums are released as one vector of B d numbers; None:
            there are no buckets.
        augmentation: The changed copies of each record; None: records are used as they are.
    """

    def __init__(
        self,
        context: RunContext,
        sampling: Sampling,
        *,
        rows: bool,
        combines: bool = False,
        buckets: int | None = None,
        augmentation: Augmentation | None = None,
    ):
        self.context, self._sampling = context, sampling
        self._rows = rows or (combines and buckets is None)
        self.combines, self.buckets = combines, buckets
        self._augmentation = augmentation
        context.prove_engine(None if augmentation is None else augmentation.multiplicity)
        self.device = context.model.device
        self._server = torch.zeros(1, dtype=torch.int64, device=self.device)

    def holder_count(self) -> int:
        return 1

    def holders(self, cohort: np.ndarray) -> Tensor:
        return self._server

    def initial_norm(self) -> float:
        return self.context.mean_norm_on_noise()

    def draw(self, local_step: LocalStep) -> None:
        super().draw(local_step)
        lots = self._lots(local_step)
        if self._augmentation is not None:
            words_of_copies(self._augmentation, self.context, local_step, lots)

    def _lots(self, local_step: LocalStep) -> list[np.ndarray]:
        clients = local_step.cohort
        samplings = [self._sampling] * len(clients)
        return self.context.sample_lots(samplings, local_step.round_index, local_step.step, clients)

    def compute(self, state: StepState) -> ChunkAnswer:
        """Sample the clients' lots, and clip and sum the gradients of their records."""
        model, local_step, clip = self.context.model, state.local_step, self.chunk_clip(state)
        lots = self._lots(local_step)
        sizes = torch.tensor([len(lot) for lot in lots])
        inputs: Sliced
        inputs, targets = self.context.data.train.rows(np.concatenate(lots))
        if self._augmentation is not None:
            inputs = augmented(self._augmentation, self.context, local_step, lots, inputs)
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
        sums = result.sums if self._rows else result.sums.double()
        sums = self.stacked(sums, self.buckets_of(local_step))
        if not self._rows:
            sums = sums.sum(0, keepdim=True)
        return ChunkAnswer(
            local_step.cohort,
            sums,
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
        total, flat = sum(expected), self.context.model.flat
        means, divisor = released.to(flat.dtype), flat.new_tensor([total])
        if self.buckets is not None:
            # A client is in each bucket with the same probability, so all have one public denominator.
            return means.view(self.buckets, -1) / (total / self.buckets), divisor
        of_rows = flat.new_tensor(expected)[:, None] if self.combines else total
        return means / of_rows, divisor
