"""What the server does with what reached it: it takes visible values and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.engine import FlatModel
from fedpriv.privacy.mechanisms.visible import Visible, seen

WHOSE = "the server step"


class ServerStep(ABC):
    """Moves the global weights."""

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

    def weights(self, cohort: np.ndarray) -> np.ndarray | None:
        """By how much each upload moves the global weights, where that is a number [c]."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""


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

    def average(self, cohort: np.ndarray, uploads: Visible) -> Tensor:
        """Σ_k p_k Δ_k [d]."""
        changes = seen(uploads, WHOSE)
        share = self._shares(cohort).to(device=self.model.device, dtype=changes.dtype)
        return share @ changes

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(self.average(cohort, uploads))


class AddChange(ServerStep):
    """θ ← θ + Δ, the change that the server's optimiser made of the mean upload [1, d]."""

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(seen(uploads, WHOSE)[0])


class ReplaceWeights(ServerStep):
    """θ ← the mean of the uploaded weights [1, d]."""

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.set(seen(uploads, WHOSE)[0])
