"""The clients' answer when a noise schedule asks them for the loss of the new model."""

from __future__ import annotations

import numpy as np
import torch

from fedpriv.algorithms.run_context import RunContext
from fedpriv.privacy.mechanisms import Bounded, OpenRound, Visible
from fedpriv.privacy.mechanisms.bounded import mean_of_reports
from fedpriv.privacy.noise_schedules import LossQuery


class ReportedLoss:
    """The noised mean loss over the clients of a round.

        F̃ = (1/m) Σ_k ( (1/n_k) Σ_i ℓ_i + N(0, (z D_k)²) ) + λ/2 ‖θ‖²

    Each ℓ_i is cut to [0, b]; a loss that is not a number counts as b. So one record moves a client's mean by
    at most D_k = b/n_k (unit ``record``), and all records of a client move it by D_k = b (unit ``client``).
    Only the mean is used, so one Gaussian of its variance is drawn.

    Args:
        context: What the run works on.
        query: The question with its bound b.
        unit: Protected unit, ``record`` or ``client``.
    """

    def __init__(self, context: RunContext, query: LossQuery, unit: str):
        self.context, self.query, self.unit = context, query, unit

    def ask(self, opened: OpenRound) -> Visible:
        """Return the noised answer of the round's clients about the model as it is now."""
        model = self.context.model
        answer = opened.release_after(
            self.query.query.name, self.answer(opened.cohort, opened.round_index)
        )
        # the penalty reads no record, so it is added to the released mean
        penalty = float(model.penalty(model.flat))
        return answer.then(lambda mean: float(mean) + penalty)

    def answer(self, cohort: np.ndarray, round_index: int) -> Bounded:
        """Return the mean of the reports of ``cohort`` [c], not yet noised."""
        context, model = self.context, self.context.model
        losses = []
        with torch.no_grad():
            for client in cohort:
                records = context.data.train.subset(context.records_asked(round_index, client))
                losses.append(model.record_losses(records.inputs, records.targets))
            return mean_of_reports(losses, self.query.bound, self.unit == "client")
