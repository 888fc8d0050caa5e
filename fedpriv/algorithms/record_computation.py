"""Record level with local noise: every client clips the records of its lot and noises the sum itself.

In the first local step of a round all participants have the global weights, and their lots go through the
engine in one pass. In later steps each client has weights of its own, and the clients go side by side
(:class:`fedpriv.engine.StackedModel`).
"""

from __future__ import annotations

from functools import cache
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented, words_of_copies
from fedpriv.algorithms.client_computation import ClientComputation, LocalStep, StepState
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, StackedModel, padded_lots, rows_at, sum_dtype
from fedpriv.engine.interface import Factors
from fedpriv.engine.parts import asking_for
from fedpriv.privacy.clippers.parts import rows_like
from fedpriv.privacy.clippers.step_clip import ChunkAnswer, ChunkClip
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms.visible import Visible


class RecordComputation(ClientComputation):
    """Lots, and the clipped sums of their gradients. Every client holds a clip norm and an optimiser.

        g̃_k = (1/L_k) (Σ_{i in lot k} g_i min(1, C_k/‖g_i‖) + noise_k),    L_k the expected size of the lot

    Args:
        context: What the run works on.
        samplings: Sampling of the lots of each client [K].
        steps: Local steps of a round.
        server: The server step, which knows the weight of each upload; attackers scale theirs by it.
        proximal: μ of FedProx's μ/2 ‖w - θ‖².
        augmentation: The changed copies of each record; None: records are used as they are.
    """

    holds_norms = True

    def __init__(
        self,
        context: RunContext,
        samplings: list[Sampling],
        steps: int,
        server: ServerStep,
        proximal: float = 0.0,
        augmentation: Augmentation | None = None,
    ):
        self.proximal, self._augmentation = proximal, augmentation
        self.context, self.steps, self._server = context, steps, server
        self._samplings = samplings
        context.prove_engine(None if augmentation is None else augmentation.multiplicity)
        self.device = context.model.device
        expected_size = cache(lambda sampling, n: sampling.expected_size(n))
        records = context.data.records_per_client.tolist()
        sizes = [expected_size(sampling, n) for sampling, n in zip(samplings, records, strict=True)]
        self._lot_sizes = torch.tensor(sizes, dtype=torch.float32, device=self.device)
        self._stacked = StackedModel(context.model, engine=context.engine)

    def holder_count(self) -> int:
        return self.context.data.client_count

    def holders(self, cohort: np.ndarray) -> Tensor:
        return torch.from_numpy(cohort).to(self.device)

    def initial_norm(self) -> float:
        return self.context.mean_norm_on_noise()

    def compute(self, state: StepState) -> ChunkAnswer:
        """Sample the clients' lots, and clip and sum the gradients of their records."""
        model, clients, changes = self.context.model, state.local_step.cohort, state.changes
        clip = self.chunk_clip(state)
        records, units = self._lots(state.local_step)
        if changes is None:  # all clients have the global weights
            factors = asking_for(clip.parts, clip.factors)
            result = self.context.engine.clipped_sums(
                records.inputs, records.targets, units, len(clients), factors
            )
        elif self._augmentation is not None:  # records that are copies go client by client
            counts = torch.bincount(units, minlength=len(changes)).tolist()
            lots = zip(records.inputs.split(counts), records.targets.split(counts), strict=True)
            factors = asking_for(clip.parts, clip.factors)
            result = self._stacked.clipped_apart(changes + model.flat, lots, factors)
        else:
            result = self._side_by_side(records, units, changes, clip)
        units = units.to(self.device)
        losses = result.losses
        if model.weight_decay:
            weights = model.flat if changes is None else model.flat + changes
            losses = losses + model.penalty(weights).expand(len(clients))[units]
        return ChunkAnswer(
            clients,
            result.sums,
            partial=False,
            scaled=clip.scaled,
            norms=result.norms.masked_fill(~rows_like(result.finite, result.norms), 0.0),
            finite=result.finite,
            units=units,
            losses=torch.where(result.finite, losses, 0.0),
            records=result.finite,
        )

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        lot_sizes = self._lot_sizes[self.holders(cohort)]
        return released.to(self.context.model.flat.dtype).div_(lot_sizes[:, None]), lot_sizes

    def sent(self, local_step: LocalStep, changes: Visible) -> Visible:
        if self.context.others is None:
            return changes
        weights = self._server.weights(local_step.cohort)
        aggregation = RoundWeights(local_step.round_index, local_step.cohort, weights)
        is_attacker, foreign = self.context.foreign(aggregation, local_step.cohort, changes.values)
        norms = torch.linalg.vector_norm(foreign.values, dim=1)
        self.context.note_sent(local_step.round_index, local_step.cohort, norms)
        return changes.with_foreign(is_attacker, foreign)

    def draw(self, local_step: LocalStep) -> None:
        lots = self._drawn(local_step)
        if self._augmentation is not None:
            words_of_copies(self._augmentation, self.context, local_step, lots)

    def _drawn(self, local_step: LocalStep) -> list[np.ndarray]:
        clients = local_step.cohort
        samplings = [self._samplings[client] for client in clients]
        return self.context.sample_lots(samplings, local_step.round_index, local_step.step, clients)

    def _lots(self, local_step: LocalStep) -> tuple[Records, Tensor]:
        """Return (records of all lots [n], or their copies; position of each record's client [n])."""
        lots = self._drawn(local_step)
        owners = np.repeat(np.arange(len(lots)), [len(lot) for lot in lots])
        records = self.context.data.train.subset(np.concatenate(lots))
        if self._augmentation is not None:
            copies = augmented(self._augmentation, self.context, local_step, lots, records.inputs)
            # the engine takes copies in the place of a tensor
            records = Records(cast("Tensor", copies), records.targets)
        return records, torch.from_numpy(owners)

    def _side_by_side(
        self, records: Records, owners: Tensor, changes: Tensor, clip: ChunkClip
    ) -> ClippedSums:
        """Return clipped sums as the engine's joint pass does, for clients with weights of their own.

        Clients with lots of similar size are computed together, so the results are written back to the
        places of their records.
        """
        model = self.context.model
        losses = changes.new_zeros(len(records))
        finite = torch.zeros_like(losses, dtype=torch.bool)
        columns = () if clip.parts is None else (len(clip.parts),)
        norms = losses.new_zeros(len(records), *columns)
        counts = torch.bincount(owners, minlength=len(changes)).tolist()
        sums = torch.zeros_like(changes, dtype=sum_dtype(counts, changes.dtype))

        def factors_of(members: Tensor) -> Factors:
            return lambda norms, clients: clip.factors(norms, members[clients])

        for lots in padded_lots(counts):
            members, positions = lots.clients.to(self.device), lots.records.to(self.device)
            present = lots.present.to(self.device)
            result = self._stacked.clipped_sums(
                changes[members].add_(model.flat),
                rows_at(records.inputs, positions),
                rows_at(records.targets, positions),
                present,
                asking_for(clip.parts, factors_of(members)),
            )
            sums[members] = result.sums.to(sums.dtype)
            places = positions[present]
            norms[places], losses[places] = result.norms, result.losses
            finite[places] = result.finite
        return ClippedSums(sums, norms, losses, finite)
