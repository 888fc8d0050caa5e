"""The unit is the record: every client clips the records of its lot and noises the sum itself.

All participants' lots go through the engine in one pass while they share weights (the first local
step); in later steps each has its own, and they go side by side.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import augmented
from fedpriv.algorithms.problem import Problem, RoundWeights
from fedpriv.algorithms.record_coordinates import transformed_sums
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.algorithms.work import StepState, Turn, Work
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, StackedModel, padded_lots, rows_at, sum_dtype
from fedpriv.engine.interface import Factors
from fedpriv.engine.parts import asking_for
from fedpriv.privacy.clippers.clip import ChunkAnswer, ChunkClip
from fedpriv.privacy.clippers.parts import rows_like
from fedpriv.privacy.core.sampling import Sampling, sample_lot
from fedpriv.privacy.mechanisms.visible import Visible

_RECORDS_OF_NO_DATA = 256


class RecordWork(Work):
    """Lots, and the clipped sums of their gradients. Every client holds a clip norm."""

    holds_norms = True

    def __init__(
        self,
        problem: Problem,
        samplings: list[Sampling],
        steps: int,
        server: ServerStep,
        proximal: float = 0.0,
        augmentation: Augmentation | None = None,
    ):
        """``samplings``: how each client samples its lots [K]; ``proximal``: μ of μ/2 ‖w - θ‖²;
        ``augmentation``: the copies of each record."""
        self.proximal, self._augmentation = proximal, augmentation
        self.problem, self.steps, self._server = problem, steps, server
        self._samplings = samplings
        problem.prove_engine(None if augmentation is None else augmentation.multiplicity)
        self.device = problem.model.device
        sizes = [
            sampling.expected_size(int(n))
            for sampling, n in zip(samplings, problem.data.records_per_client, strict=True)
        ]
        self._lot_sizes = torch.tensor(sizes, dtype=torch.float32, device=self.device)
        self._stacked = StackedModel(problem.model, engine=problem.engine)

    def holder_count(self) -> int:
        return self.problem.data.client_count

    def holders(self, cohort: np.ndarray) -> Tensor:
        return torch.from_numpy(cohort).to(self.device)

    def initial_norm(self) -> float:
        """Mean gradient norm of the initial model on random records.

        No data is read, so it is free (the paper: "training on random noise for one round").
        """
        records = _RECORDS_OF_NO_DATA
        result = self.problem.engine.clipped_sums(
            *self.problem.random_records(records),
            torch.zeros(records, dtype=torch.int64),
            1,
            lambda norms, clients: torch.ones_like(norms),
        )
        return float(result.norms.mean())

    def compute(self, state: StepState) -> ChunkAnswer:
        """Sample the clients' lots, and scale and sum the gradients of their records."""
        model, clients, changes = self.problem.model, state.turn.cohort, state.changes
        clip = self.chunk_clip(state)
        records, units = self._lots(state.turn)
        if self.problem.clipper.transforms:
            result = transformed_sums(
                self.problem, self._stacked, records, units, changes, clip, len(clients)
            )
        elif changes is None:
            factors = asking_for(clip.parts, clip.factors)
            result = self.problem.engine.clipped_sums(
                records.inputs, records.targets, units, len(clients), factors
            )
        elif self._augmentation is not None:
            result = self._one_by_one(records, units, changes, clip)
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
        return released.to(self.problem.model.flat.dtype).div_(lot_sizes[:, None]), lot_sizes

    def sent(self, turn: Turn, changes: Visible) -> Visible:
        if self.problem.others is None:
            return changes
        weights = self._server.weights(turn.cohort)
        aggregation = RoundWeights(turn.round_index, turn.cohort, weights)
        attackers = self.problem.foreign(aggregation, turn.cohort, changes.values)
        assert attackers is not None
        attack, foreign = attackers
        norms = torch.linalg.vector_norm(foreign.values, dim=1)
        self.problem.note_sent(turn.round_index, turn.cohort, norms)
        return changes.with_foreign(attack, foreign)

    def _lots(self, turn: Turn) -> tuple[Records, Tensor]:
        """(the records of all lots [n], or the copies of each; position in the cohort of each [n])."""
        problem, t = self.problem, turn.round_index
        lots = [
            sample_lot(
                problem.streams,
                self._samplings[client],
                problem.records_of(t, client),
                t,
                turn.step,
                client,
            )
            for client in turn.cohort
        ]
        sizes = torch.tensor([len(lot) for lot in lots])
        records = problem.data.train.subset(np.concatenate(lots))
        if self._augmentation is not None:
            place, inputs = (t, turn.step), records.inputs
            copies = augmented(self._augmentation, problem, place, turn.cohort, lots, inputs)
            records = Records(
                cast("Tensor", copies), records.targets
            )  # the engine takes copies too
        return records, torch.repeat_interleave(torch.arange(len(turn.cohort)), sizes)

    def _one_by_one(
        self, records: Records, owners: Tensor, changes: Tensor, clip: ChunkClip
    ) -> ClippedSums:
        """As the engine's joint pass, where weights have come apart, for records that are copies."""
        counts = torch.bincount(owners, minlength=len(changes)).tolist()
        lots = zip(records.inputs.split(counts), records.targets.split(counts), strict=True)
        factors = asking_for(clip.parts, clip.factors)
        return self._stacked.clipped_apart(changes + self.problem.model.flat, lots, factors)

    def _side_by_side(
        self, records: Records, owners: Tensor, changes: Tensor, clip: ChunkClip
    ) -> ClippedSums:
        """As the engine's joint pass, for members whose weights have come apart."""
        model = self.problem.model
        losses = changes.new_zeros(len(records))
        finite = torch.zeros_like(losses, dtype=torch.bool)
        norms = (
            losses.clone()
            if clip.parts is None
            else losses.new_zeros(len(records), len(clip.parts))
        )
        counts = torch.bincount(owners, minlength=len(changes)).tolist()
        sums = torch.zeros_like(changes, dtype=sum_dtype(counts, changes.dtype))

        def factors_of(members: Tensor) -> Factors:
            return lambda norms, clients: clip.factors(norms, members[clients])

        for lots in padded_lots(counts):
            members, own = lots.clients.to(self.device), lots.records.to(self.device)
            present = lots.present.to(self.device)
            result = self._stacked.clipped_sums(
                changes[members].add_(model.flat),
                rows_at(records.inputs, own),
                rows_at(records.targets, own),
                present,
                asking_for(clip.parts, factors_of(members)),
            )
            sums[members] = result.sums.to(sums.dtype)
            found = own[present]
            norms[found], losses[found], finite[found] = result.norms, result.losses, result.finite
        return ClippedSums(sums, norms, losses, finite)
