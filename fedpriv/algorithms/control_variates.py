"""Control variates of DP-SCAFFOLD; the formulas are in :mod:`fedpriv.algorithms.dp_scaffold`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.optimizers import OfChanges, refuse_if_too_large
from fedpriv.algorithms.server_optimizer import ServerOptimizer
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.engine import FlatModel
from fedpriv.privacy.mechanisms.visible import Visible


class ControlVariates:
    """The clients' optimiser Δ = -η (g̃ - c_k + c), with c_k of each of N clients [N, d] and c [d].

    The optimiser sees noised gradients alone, so its state is a function of released values. In the first
    ``warm_start`` rounds Δ = 0.

    Args:
        learning_rate: η of the clients.
        steps: Local steps of a round.
        warm_start: Rounds at the beginning that move nothing.
        clients: Number of all clients N.
        size: Number of weights d.
        device: Device of the state.

    Raises:
        ConfigError: N control variates do not fit into memory.
    """

    def __init__(
        self,
        learning_rate: float,
        steps: int,
        warm_start: int,
        clients: int,
        size: int,
        device: torch.device,
    ):
        refuse_if_too_large(clients, size, 1, device, "algorithm", "dp_scaffold", "DP-SCAFFOLD")
        self.learning_rate, self.steps, self.warm_start = learning_rate, steps, warm_start
        self._own = torch.zeros(clients, size, device=device)
        self._common = torch.zeros(size, device=device)
        self._rounds = 0
        self._gradients: Tensor | None = None  # their sum over the steps of this round [m, d]

    @property
    def warming(self) -> bool:
        """True while a round of the warm start runs, which moves nothing."""
        return self._rounds < self.warm_start

    def begin_round(self, clients: Tensor) -> None:
        self._gradients = None

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        if self._gradients is None:
            self._gradients = torch.zeros_like(gradients)
        self._gradients.add_(gradients)
        if self.warming:
            return gradients.zero_()
        return gradients.sub_(self._own[clients]).add_(self._common).mul_(-self.learning_rate)

    def end_round(self, cohort: np.ndarray) -> None:
        """Move the control variates of a cohort [m], with c_k⁺ the mean noised gradient of the round.

        c ← c + (1/N) Σ_k (c_k⁺ - c_k);   c_k ← c_k⁺
        """
        assert self._gradients is not None
        clients = torch.from_numpy(cohort).to(self._own.device)
        new_variates = self._gradients.div_(self.steps)
        self._common.add_((new_variates - self._own[clients]).sum(0).div_(len(self._own)))
        self._own[clients] = new_variates
        self._gradients = None
        self._rounds += 1

    def state_dict(self) -> dict[str, object]:
        return {
            "own": self._own.clone(),
            "common": self._common.clone(),
            "rounds": torch.tensor(self._rounds),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self._own.copy_(saved["own"])
        self._common.copy_(saved["common"])
        self._rounds = int(saved["rounds"])


class ScaffoldStep(ServerStep):
    """The server step θ ← optimiser(θ, (1/m) Σ_k Δ_k), after which the control variates are renewed.

    Args:
        model: The global model.
        variates: The control variates, which are the clients' optimiser.
        optimizer: The server's optimiser.
    """

    def __init__(self, model: FlatModel, variates: ControlVariates, optimizer: ServerOptimizer):
        super().__init__(model)
        self._variates, self._settings = variates, optimizer
        self._optimizer = OfChanges(optimizer.make(model))
        self._server = torch.zeros(1, dtype=torch.int64, device=model.device)

    def weights(self, cohort: np.ndarray) -> np.ndarray | None:
        if self._settings.name != "sgd":
            return None
        return np.full(len(cohort), self._settings.learning_rate / max(1, len(cohort)))

    def apply(self, cohort: np.ndarray, uploads: Visible) -> None:
        mean = self.average(cohort, uploads)
        if not len(cohort):
            return
        if not self._variates.warming:
            self.model.flat.add_(self._optimizer.step(self._server, mean[None])[0])
        self._variates.end_round(cohort)

    def _weighted_sum(self, cohort: np.ndarray, uploads: Tensor) -> Tensor:
        return uploads.mean(0)

    def state_dict(self) -> dict[str, object]:
        return dict(self._optimizer.state_dict())

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        if state:
            self._optimizer.load_state_dict(state)
