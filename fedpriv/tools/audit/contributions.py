"""What an observer sees of a client in one round, made by the algorithm itself.

    row = what a round with a cohort adds to the weights θ_t

Local trust: the cohort is the one client, so the row is its noised upload. Central trust: the client and
others drawn as the algorithm draws them, for only their noised sum leaves the server. Lots and noise are
fresh; the clip norm is that of the snapshot and σ that of the run's next round.

The server's optimiser, and Adam of one local step, are replaced by SGD: their moments are functions of what
was seen before, so an observer undoes them. Where a client takes several local steps of Adam, they begin
with fresh moments.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.dp_scaffold import DpScaffold
from fedpriv.algorithms.server_optimizer import ServerOptimizer
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.engine import FlatModel
from fedpriv.experiment.snapshots import Snapshot
from fedpriv.tools.audit.subject import AuditedRun

BINS = 32
NEEDLESS = 1024  # with so few parameters they are taken as they are


class ContributionObserver:
    """Makes rows for one run; ``seed``: of lots, cohorts and noise. The run's problem is given over to it."""

    def __init__(self, subject: AuditedRun, seed: int):
        self._algorithm = _as_seen(subject)
        self._context = subject.context
        self._seed = seed
        self._sigmas = subject.noise_multipliers()
        self._trainer = self._algorithm.start(self._context)

    def rows(self, snapshot: Snapshot, clients: np.ndarray) -> np.ndarray:
        """Pooled contributions of ``clients`` at one snapshot, a row each."""
        sigma = self._sigma(snapshot.rounds)
        pooled = []
        for client in clients:
            change = self.contribution(snapshot, int(client), sigma)
            pooled.append(pool(self._context.model, change))
        return torch.stack(pooled).double().cpu().numpy()

    def contribution(self, snapshot: Snapshot, client: int, noise_multiplier: float) -> Tensor:
        """What a round with ``client`` adds to the weights of the snapshot [d]."""
        context, place = self._context, (snapshot.rounds, client)
        # a server's noise is named by its round alone: every row gets a seed of its own
        context.streams = SecretStreams.simulated(self._seed, 0, f"audit {place}")
        context.model.set(snapshot.weights)
        context.clipper.load_state_dict(deepcopy(snapshot.clipper))
        cohort = self.cohort(snapshot.rounds, client)
        mechanism = context.mechanism
        announced = mechanism.announce(snapshot.rounds, noise_multiplier)
        self._trainer.round(mechanism.open(announced, cohort, context.streams))
        return context.model.flat - snapshot.weights.to(context.model.device)

    def cohort(self, round_index: int, client: int) -> np.ndarray:
        """Who is in the round in which ``client`` is observed, ascending."""
        if self._algorithm.trust.sees_each_upload:
            return np.array([client])
        everyone = np.ones(self._context.data.client_count, dtype=bool)
        drawn = self._algorithm.cohort(self._context.streams, round_index, everyone)
        if client not in drawn and self._algorithm.clients_per_round is not None:
            shuffled = self._context.streams.sampling("audit_out").permutation(drawn)
            drawn = shuffled[1:]  # the cohort has a fixed size
        return np.union1d(drawn, [client])

    def _sigma(self, rounds_done: int) -> float:
        """That of the next round; of the last one where there is no next."""
        if not self._sigmas:
            return 0.0
        return self._sigmas.get(rounds_done + 1, self._sigmas[max(self._sigmas)])


def _as_seen(subject: AuditedRun) -> Algorithm:
    """The run's algorithm with what its observer can undo undone; see the module."""
    algorithm: Any = subject.parts.algorithm
    if isinstance(algorithm, DpScaffold):
        return algorithm.without_variates()
    if algorithm.server is not None:
        algorithm.server = ServerOptimizer(
            optimizer="sgd", learning_rate=algorithm.server.learning_rate
        )
    elif algorithm.optimizer == "adam":
        if algorithm.local_steps == 1:
            algorithm.optimizer = "sgd"
        else:
            algorithm.optimizer_state = "reset"
    return algorithm


def pool(model: FlatModel, change: Tensor) -> Tensor:
    """A contribution [d] in few numbers: of every parameter tensor its norm and mean, and in ``BINS``
    stretches of it the mean and the largest absolute value (max pooling as in Melis et al.)."""
    change = change.nan_to_num()
    if len(change) <= NEEDLESS:
        return change
    found = []
    for own in change.split([p.numel() for p in model.parameters()]):
        bins = min(BINS, len(own))
        stretches = torch.tensor_split(own, bins)
        found.append(torch.stack([torch.linalg.vector_norm(own), own.mean()]))
        found.append(torch.stack([part.mean() for part in stretches]))
        found.append(torch.stack([part.abs().max() for part in stretches]))
    return torch.cat(found)
