"""The contribution of a client to one round, made by the algorithm itself.

    contribution = what a round with a cohort adds to the weights θ_t

Local trust: the cohort is the client alone, so its contribution is its noised upload. Central trust: the
cohort is the client and others, drawn as the algorithm draws them, because only their noised sum leaves the
server. Lots and noise are fresh. The clip norm is that of the snapshot, and σ that of the run's next round.

The server's optimiser, and Adam of a single local step, are replaced by SGD. Their moments are functions of
what was seen before, so an observer can undo them. Where a client takes several local steps of Adam, they
begin with fresh moments.
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
NEEDLESS = 1024  # a contribution with at most so many parameters is not pooled


class ContributionObserver:
    """An observer of the contributions of a run's clients.

    The observer takes over the run's context and algorithm: the model's weights and the streams change, and
    the optimiser becomes the one that the module describes.

    Args:
        subject: The run.
        seed: Seed of lots, cohorts and noise.
    """

    def __init__(self, subject: AuditedRun, seed: int):
        self._algorithm = _as_seen(subject)
        self._context = subject.context
        self._seed = seed
        self._sigmas = subject.noise_multipliers()
        self._trainer = self._algorithm.start(self._context)

    def rows(self, snapshot: Snapshot, clients: np.ndarray) -> np.ndarray:
        """Return the pooled contributions of clients at one snapshot.

        Args:
            snapshot: Weights, clipper state and number of rounds.
            clients: Numbers of the clients [c].

        Returns:
            A row for each client [c, f].
        """
        sigma = 0.0
        if self._sigmas:  # σ of the next round, or of the last one if there is no next
            sigma = self._sigmas.get(snapshot.rounds + 1, self._sigmas[max(self._sigmas)])
        changes = (self.contribution(snapshot, int(client), sigma) for client in clients)
        pooled = [pool(self._context.model, change) for change in changes]
        return torch.stack(pooled).double().cpu().numpy()

    def contribution(self, snapshot: Snapshot, client: int, noise_multiplier: float) -> Tensor:
        """Return what a round with ``client`` adds to the weights of the snapshot [d].

        Args:
            snapshot: Weights, clipper state and number of rounds.
            client: Number of the client.
            noise_multiplier: σ of the round.
        """
        context, name = self._context, (snapshot.rounds, client)
        # A server's noise stream is named by its round alone, so every contribution gets its own streams.
        context.streams = SecretStreams.simulated(self._seed, 0, f"audit {name}")
        before = context.model.without_frozen(snapshot.weights).to(context.model.device)
        context.model.set(before)
        context.clipper.load_state_dict(deepcopy(snapshot.clipper))
        cohort = self.cohort(snapshot.rounds, client)
        mechanism = context.mechanism
        announced = mechanism.announce(snapshot.rounds, noise_multiplier)
        self._trainer.round(mechanism.open(announced, cohort, context.streams))
        return context.model.flat - before

    def cohort(self, round_index: int, client: int) -> np.ndarray:
        """Return the clients of the round in which a client is observed, ascending.

        Args:
            round_index: The round, 0-based.
            client: The client that is observed.
        """
        if self._algorithm.trust.sees_each_upload:
            return np.array([client])
        everyone = np.ones(self._context.data.client_count, dtype=bool)
        drawn = self._algorithm.cohort(self._context.streams, round_index, everyone)
        if client not in drawn and self._algorithm.clients_per_round is not None:
            # The client replaces another one at random: the cohort has a fixed size.
            drawn = self._context.streams.sampling("audit_out").permutation(drawn)[1:]
        return np.union1d(drawn, [client])


def _as_seen(subject: AuditedRun) -> Algorithm:
    """Return the run's algorithm without what its observer can undo; see the module."""
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
    """Return a contribution in few numbers, for a classifier.

    These are, for every parameter tensor, its norm and mean, and in ``BINS`` stretches of it the mean and the
    largest absolute value (max pooling as in Melis et al., S&P 2019).

    Args:
        model: The model, which says where each parameter tensor ends.
        change: The contribution [d].

    Returns:
        Features [f]; the contribution itself if it has at most ``NEEDLESS`` numbers.
    """
    change = change.nan_to_num()
    if len(change) <= NEEDLESS:
        return change
    features = []
    for parameter in change.split([p.numel() for p in model.parameters()]):
        stretches = torch.tensor_split(parameter, min(BINS, len(parameter)))
        features += [torch.linalg.vector_norm(parameter), parameter.mean()]
        features += [stretch.mean() for stretch in stretches]
        features += [stretch.abs().max() for stretch in stretches]
    return torch.stack(features)
