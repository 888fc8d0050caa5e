"""What the server does with what reached it: it takes visible values and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.saved import Saved
from fedpriv.engine import FlatModel
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    from fedpriv.aggregation.checked import CheckedRule

WHOSE = "the server step"


class ServerStep(Saved, ABC):
    """Moves the global weights.

    At client level the server's optimiser has made the change already (:mod:`fedpriv.algorithms.optimizers`,
    called by the trainer), and the step adds it.

    Attributes:
        rule: What combines the uploads in the place of their weighted sum, set by the trainer; None: the sum.
    """

    rule: CheckedRule | None = None

    def __init__(self, model: FlatModel):
        self.model = model

    @abstractmethod
    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        """Move the weights.

        Args:
            cohort: Who took part [c], ascending.
            uploads: What reached the server: of each client [c, d], or of the whole cohort [1, d].

        Raises:
            ReleaseError: ``uploads`` is not a visible value (``seen`` says so).
        """

    def average(self, cohort: np.ndarray, uploads: Visible) -> Tensor:
        """Return the weighted sum [d] of a cohort's uploads [c, d], or what the rule makes of them. Raises
        ReleaseError where ``uploads`` is not a visible value."""
        values = seen(uploads, WHOSE)
        if self.rule is None:
            return self._weighted_sum(cohort, values)
        return self.rule.combine(cohort, values, self._shares(cohort).to(values))

    def _weighted_sum(self, cohort: np.ndarray, uploads: Tensor) -> Tensor:
        """Return Σ_k p_k u_k [d] of uploads [c, d]."""
        return self._shares(cohort).to(device=self.model.device, dtype=uploads.dtype) @ uploads

    def _shares(self, cohort: np.ndarray) -> Tensor:
        """Return each client's share p of the mean [c], in float64."""
        return torch.full((len(cohort),), 1.0 / max(1, len(cohort)), dtype=torch.float64)

    def weights(self, cohort: np.ndarray) -> np.ndarray | None:
        """By how much each upload moves the global weights, where that is a number [c]."""
        return None


class WeightedAverage(ServerStep):
    """w ← w + Σ_k p_k Δ_k,   p_k = n_k / Σ n over the cohort."""

    def __init__(self, model: FlatModel, records_per_client: np.ndarray):
        super().__init__(model)
        self._records = torch.tensor(records_per_client, dtype=torch.float64)

    def weights(self, cohort: np.ndarray) -> np.ndarray:
        return self._shares(cohort).numpy()

    def _shares(self, cohort: np.ndarray) -> Tensor:
        share = self._records[torch.from_numpy(cohort)]
        return share.div_(share.sum())

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(self.average(cohort, uploads))


class AddChange(ServerStep):
    """θ ← θ + Δ, the change that the server's optimiser made of the mean upload [1, d].

    ``records_per_client``: by these the uploads are weighted that a rule combines; None: all alike.
    """

    def __init__(self, model: FlatModel, records_per_client: np.ndarray | None = None):
        super().__init__(model)
        self._records = None
        if records_per_client is not None:
            self._records = torch.tensor(records_per_client, dtype=torch.float64)

    def _shares(self, cohort: np.ndarray) -> Tensor:
        if self._records is None:
            return super()._shares(cohort)
        share = self._records[torch.from_numpy(cohort)]
        return share.div_(share.sum())

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(seen(uploads, WHOSE)[0])


class ReplaceWeights(ServerStep):
    """θ ← the mean of the uploaded weights [1, d]."""

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.set(seen(uploads, WHOSE)[0])
