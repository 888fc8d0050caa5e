"""One crafted record of one client, there or not (or with one label or another), in runs of its own.

Its input is zero but for one very large number, so that its gradient dwarfs all others. Nothing is put in the
place of what a client computes: the record is read by the model like any other. An auditor who knows all data
but the coin computes what is released without noise under either coin, a₁ and a₀, and looks at

    x = ⟨released - (a₁ + a₀)/2, a₁ - a₀⟩ / (s ‖a₁ - a₀‖)

s the standard deviation of the noise: a Gaussian at ± ‖a₁ - a₀‖/(2 s). Each round adds its
log-likelihood ratio. Only for releases on whole data: what is sampled would have to be known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, CohortAnswer, LocalStep
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import GRADIENT

_LARGE = 1e5
HOME = 0
"""The client whose record it is."""


class CraftedRecord:
    """The crafted record of a run (:class:`fedpriv.algorithms.run_context.Participants`).

    ``replaced``: the coin chooses the label of the record, which takes the place of the client's last record;
    otherwise the coin chooses whether the record is there.
    """

    def __init__(self, data: FederatedData, replaced: bool):
        self.attackers = np.zeros(0, dtype=int)
        self.coin = True
        own = data.clients[HOME]
        train = data.train
        inputs = torch.zeros_like(train.inputs[:1]).repeat(2, *[1] * (train.inputs.dim() - 1))
        inputs.view(2, -1)[:, 0] = _LARGE
        targets = torch.tensor([0, 1], dtype=train.targets.dtype, device=train.targets.device)
        joined = Records(torch.cat([train.inputs, inputs]), torch.cat([train.targets, targets]))
        first = len(train)
        rest = own[:-1] if replaced else own
        self._with = np.append(rest, first)
        self._without = np.append(rest, first + 1) if replaced else own
        clients = [self._with, *data.clients[1:]]
        self.data = replace(data, train=joined, clients=clients)

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        return cohort

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        if client != HOME:
            return self.data.clients[client]
        return self._with if self.coin else self._without

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        return uploads


class NeighboursSeen:
    """An algorithm's work, beside which an auditor adds up the log-likelihood ratio of the two neighbours."""

    def __init__(self, computation: ClientComputation, context: RunContext, record: CraftedRecord):
        self._computation, self._context, self._record = computation, context, record
        self.score = 0.0
        self._pending: tuple[LocalStep, Tensor, Tensor, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._computation, name)

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        one, other = (self._noiseless(local_step, changes, coin) for coin in (True, False))
        found = self._computation.compute_cohort(local_step, changes, clip)
        self._pending = (local_step, one, other, clip.norms / found.answer.divided_by)
        return found

    def _noiseless(self, local_step: LocalStep, changes: Tensor | None, coin: bool) -> Tensor:
        before, self._record.coin = self._record.coin, coin
        try:
            clip = StepClip(
                self._context.clipper,
                local_step.round_index,
                self._computation.holders(local_step.cohort),
            )
            return (
                self._computation.compute_cohort(local_step, changes, clip)
                .answer.values[0]
                .double()
                .clone()
            )
        finally:
            self._record.coin = before

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        assert self._pending is not None  # clipped() came before
        local_step, one, other, norms = self._pending
        apart = one - other
        distance = float(torch.linalg.vector_norm(apart))
        noise = self._multiplier(local_step) * float(norms[0])
        if distance > 0:
            along = float((released[0].double() - (one + other) / 2) @ apart) / distance
            self.score += distance * along / noise**2 if noise > 0 else along
        return self._computation.mean(released, cohort)

    def _multiplier(self, local_step: LocalStep) -> float:
        for group in self._context.mechanism.announce(local_step.round_index).groups:
            if HOME in group.clients:
                return group.upload.joint.query(GRADIENT).noise_multiplier
        raise AssertionError("a client is in one of the groups")
