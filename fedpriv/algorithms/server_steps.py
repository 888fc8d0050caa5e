"""Server steps: the only code that moves the global weights. They take visible values and nothing else."""

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
    from fedpriv.aggregation.run_rule import RunRule

WHOSE = "the server step"
"""Name of the reader in the error of ``seen``."""


class ServerStep(Saved, ABC):
    """A move of the global weights at the end of a round.

    At client level, and with one clip norm, the server's optimiser has made the change of weights already
    (:mod:`fedpriv.algorithms.optimizers`, called by the trainer), and the step only adds it. At record level
    the clients have optimisers, and the step averages their changes.

    A step of your own extends :class:`WeightedAverage` or this class and overrides :meth:`apply`, with
    :meth:`average` for the mean of the uploads.

    Args:
        model: The global model, whose ``flat`` weights θ [d] the step moves.

    Attributes:
        model: As given.
        rule: The rule that combines uploads in the place of their weighted sum, set by the trainer; None:
            the weighted sum.

    Example:
        >>> class HalfAStep(WeightedAverage):
        ...     def apply(self, cohort, uploads):
        ...         self.model.flat.add_(self.average(cohort, uploads), alpha=0.5)
    """

    rule: RunRule | None = None

    def __init__(self, model: FlatModel):
        self.model = model

    @abstractmethod
    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        """Move the global weights.

        Args:
            cohort: Clients that took part [c], ascending.
            uploads: What reached the server: a row for each client [c, d], or one for the cohort [1, d].

        Raises:
            ReleaseError: ``uploads`` is not a visible value, so no mechanism released it.
        """

    def average(self, cohort: np.ndarray, uploads: Visible) -> Tensor:
        """Return the mean upload: the weighted sum Σ_k p_k u_k, or what the rule makes of the uploads.

        Args:
            cohort: Clients that took part [c], ascending.
            uploads: A visible value with a row for each client [c, d], or for each bucket [B, d] where the
                rule combines the means of buckets.

        Returns:
            The mean upload [d].

        Raises:
            ReleaseError: ``uploads`` is not a visible value, so no mechanism released it.
        """
        values = seen(uploads, WHOSE)
        if self.rule is None:
            return self._weighted_sum(cohort, values)
        if self.rule.buckets is not None:
            equal = values.new_full((len(values),), 1.0 / len(values))
            return self.rule.combine(np.arange(len(values)), values, equal)
        return self.rule.combine(cohort, values, self._shares(cohort).to(values))

    def _weighted_sum(self, cohort: np.ndarray, uploads: Tensor) -> Tensor:
        """Return Σ_k p_k u_k [d] for uploads [c, d]."""
        return self._shares(cohort).to(device=self.model.device, dtype=uploads.dtype) @ uploads

    def _shares(self, cohort: np.ndarray) -> Tensor:
        """Return each client's share p_k of the mean [c], in float64; they add up to 1."""
        return torch.full((len(cohort),), 1.0 / max(1, len(cohort)), dtype=torch.float64)

    def weights(self, cohort: np.ndarray) -> np.ndarray | None:
        """Return each upload's weight in the change of the global weights [c].

        Attackers scale what they send by it. None, the default, where the step is not linear in the uploads.

        Args:
            cohort: Clients that take part [c], ascending.
        """
        return None


def _by_records(records: Tensor, cohort: np.ndarray) -> Tensor:
    """Return p_k = n_k / Σ n over the cohort [c], for the records n of all clients [K]."""
    shares = records[torch.from_numpy(cohort)]
    return shares.div_(shares.sum())


class WeightedAverage(ServerStep):
    """FedAvg's server step: the average of the clients' changes, weighted by their records.

        θ ← θ + Σ_k p_k Δ_k,   p_k = n_k / Σ n over the cohort

    Source: McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017, algorithm 1.

    Args:
        model: The global model.
        records_per_client: Number of records of each client [K].

    Example:
        >>> model = FlatModel(torch.nn.Linear(1, 1))
        >>> step = WeightedAverage(model, records_per_client=np.array([10, 20, 30]))
        >>> step.weights(cohort=np.array([0, 2]))
        array([0.25, 0.75])
    """

    def __init__(self, model: FlatModel, records_per_client: np.ndarray):
        super().__init__(model)
        self._records = torch.tensor(records_per_client, dtype=torch.float64)

    def weights(self, cohort: np.ndarray) -> np.ndarray:
        return self._shares(cohort).numpy()

    def _shares(self, cohort: np.ndarray) -> Tensor:
        return _by_records(self._records, cohort)

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(self.average(cohort, uploads))


class AddChange(ServerStep):
    """The step θ ← θ + Δ, with the change Δ [1, d] that the server's optimiser made of the mean upload.

    Args:
        model: The global model.
        records_per_client: Records of each client [K], by which uploads are weighted that a rule combines;
            None: all weigh the same.
    """

    def __init__(self, model: FlatModel, records_per_client: np.ndarray | None = None):
        super().__init__(model)
        self._records = None
        if records_per_client is not None:
            self._records = torch.tensor(records_per_client, dtype=torch.float64)

    def _shares(self, cohort: np.ndarray) -> Tensor:
        return (
            super()._shares(cohort) if self._records is None else _by_records(self._records, cohort)
        )

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.flat.add_(seen(uploads, WHOSE)[0])


class ReplaceWeights(ServerStep):
    """The step θ ← mean of the uploaded weights [1, d]."""

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        self.model.set(seen(uploads, WHOSE)[0])
