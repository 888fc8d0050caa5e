"""One crafted record of one client, present or not by a coin, in runs of its own.

Under replace-one adjacency the coin chooses between two labels of the record. The input is zero but for one
very large number, so that its gradient dwarfs all others. Nothing replaces what a client computes: the model
reads the record like any other. An auditor who knows all data but the coin computes what would be released
without noise under either coin, a₁ and a₀, and looks at

    x = ⟨released - (a₁ + a₀)/2, a₁ - a₀⟩ / (s ‖a₁ - a₀‖)

where s is the standard deviation of the noise. So x is Gaussian with mean ± ‖a₁ - a₀‖/(2 s). Each round adds
its log-likelihood ratio to the score. This works only for releases on whole data: with sampling, the auditor
would have to know the sample.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, CohortAnswer, LocalStep
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.attacks.triggers import concatenated
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import GRADIENT

_LARGE = 1e5
HOME = 0
"""Number of the client that the record belongs to."""


class CraftedRecord:
    """The crafted record of a run (see :class:`fedpriv.algorithms.run_context.Participants`).

    Attributes:
        coin: Whether the record is there, or which label the record has.
        attackers: Always empty: no client sends anything but its own upload.
        data: The data of the run with the crafted record.
    """

    def __init__(self, data: FederatedData, replaced: bool):
        """Add the record to the data.

        Args:
            data: The data without the crafted record.
            replaced: True if the crafted record takes the place of the client's last record and the coin
                chooses its label; False if the coin chooses whether the record is there.
        """
        self.attackers = np.zeros(0, dtype=int)
        self.coin = True
        train, home_records = data.train, data.clients[HOME]
        inputs = train.inputs.new_zeros(2, *train.inputs.shape[1:])
        inputs.view(2, -1)[:, 0] = _LARGE
        crafted = Records(inputs, train.targets.new_tensor([0, 1]))
        first = len(train)
        rest = home_records[:-1] if replaced else home_records
        self._with = np.append(rest, first)
        self._without = np.append(rest, first + 1) if replaced else home_records
        clients = data.clients.with_client(HOME, self._with)
        self.data = replace(data, train=concatenated([train, crafted]), clients=clients)

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        return cohort

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        if client != HOME:
            return self.data.clients[client]
        return self._with if self.coin else self._without

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        return uploads


class NeighboursSeen:
    """An algorithm's computation, beside which an auditor adds up the log-likelihood ratio of two neighbours.

    Everything else that is asked of this object goes to the algorithm's own computation.

    Args:
        computation: The algorithm's computation.
        context: The context of the run.
        record: The crafted record, whose coin the auditor guesses.

    Attributes:
        score: The sum of the log-likelihood ratios so far; without noise, the sum of the projections.
    """

    def __init__(self, computation: ClientComputation, context: RunContext, record: CraftedRecord):
        self._computation, self._context, self._record = computation, context, record
        self.score = 0.0
        self._pending: tuple[LocalStep, Tensor, Tensor, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._computation, name)

    def compute_cohort(
        self, local_step: LocalStep, changes: Tensor | None, clip: StepClip
    ) -> CohortAnswer:
        a1, a0 = (self._noiseless(local_step, changes, coin) for coin in (True, False))
        result = self._computation.compute_cohort(local_step, changes, clip)
        self._pending = (local_step, a1, a0, clip.norms / result.answer.divided_by)
        return result

    def _noiseless(self, local_step: LocalStep, changes: Tensor | None, coin: bool) -> Tensor:
        """Return what would be released without noise if the coin had fallen as ``coin`` [d]."""
        actual_coin, self._record.coin = self._record.coin, coin
        try:
            holders = self._computation.holders(local_step.cohort)
            clip = StepClip(self._context.clipper, local_step.round_index, holders)
            answer = self._computation.compute_cohort(local_step, changes, clip).answer
            return answer.values[0].double().clone()
        finally:
            self._record.coin = actual_coin

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """Update the score with what was released, then return the algorithm's own mean."""
        assert self._pending is not None  # every mean follows a call of compute_cohort
        local_step, a1, a0, norms = self._pending
        groups = self._context.mechanism.announce(local_step.round_index).groups
        upload = next(group.upload for group in groups if HOME in group.clients)
        noise = upload.joint.query(GRADIENT).noise_multiplier * float(norms[0])
        difference = a1 - a0
        distance = float(torch.linalg.vector_norm(difference))
        if distance > 0:
            along = float((released[0].double() - (a1 + a0) / 2) @ difference) / distance
            self.score += distance * along / noise**2 if noise > 0 else along
        return self._computation.mean(released, cohort)
