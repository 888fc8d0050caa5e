"""Uploads of clients before anything is clipped: gradients, changes of weights, or weights.

Uploads are private. :mod:`fedpriv.algorithms.upload_computation` clips and sums them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.engine import ClippedSums, StackedModel, rows_at
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData, shuffle
from fedpriv.privacy.mechanisms.bounded import sum_per_owner

Projection = Callable[[Tensor, Tensor], None]
"""(weights of clients [c, d], weights with which the round began [d]) → None: moves the former in place."""
# Records that FullBatchDescent holds in the order of clients, at most, as a multiple of the training data.
_MOST_GATHERED = 2


@dataclass(frozen=True)
class UploadBatch:
    """Uploads of some clients, and the losses of the records they read.

    Attributes:
        uploads: The upload of each client [c, d].
        loss_sum: Sum of the losses of each client's records [c] (λ/2 ‖θ‖² in each), or of all records.
        records: Number of records in each of these sums.
        not_finite: Number of records that were left out because their gradient is not finite.
    """

    uploads: Tensor
    loss_sum: Tensor
    records: int | Tensor
    not_finite: int = 0


class Uploads(Protocol):
    """A computation of uploads. An algorithm of your own returns one from its method ``uploads(context)``.

    Uploads that draw lots or orders also have ``draw(round_index, clients)``, which makes all draws of
    ``of``: with several processes they are made where the secret streams are.

    Attributes:
        sign: 1 if an upload is a gradient; -1 if it is a change of weights, or weights.
        replaces: Whether uploads are weights, whose mean takes the place of the global weights.
    """

    sign: int
    replaces: bool

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        """Compute the uploads of some clients at the model's current weights.

        The method must give each client the same upload whatever other clients are computed with it.

        Args:
            round_index: The round.
            clients: Some clients of the cohort [c], ascending.
        """

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the upload [d] of a client that has just these records.

        Args:
            inputs: Inputs of the records [n, …].
            targets: Targets of the records [n, …].
        """


class Gradients:
    """Uploads that are gradients: g_k = (1/(q n_k)) Σ_{i in lot k} ∇ℓ_i(θ).

    Args:
        sample_rate: q; with 1 the lot is the whole data of the client.
        context: What the run works on.
    """

    sign = 1
    replaces = False

    def __init__(self, sample_rate: float, context: RunContext):
        self.context = context
        context.prove_engine()
        self._sampling = WholeData() if sample_rate == 1 else PoissonSampling(sample_rate)

    def draw(self, round_index: int, clients: np.ndarray) -> list[np.ndarray]:
        """Draw the lot of each client [c]."""
        samplings = [self._sampling] * len(clients)
        return self.context.sample_lots(samplings, round_index, 0, clients)

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        data, lots = self.context.data, self.draw(round_index, clients)
        sizes = torch.tensor([len(lot) for lot in lots])
        records = data.train.subset(np.concatenate(lots))
        sizes_of_clients = data.records_per_client[clients].tolist()
        expected = [self._sampling.expected_size(size) for size in sizes_of_clients]
        return self._gradients(records.inputs, records.targets, sizes, expected)

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        size = len(targets)
        return self._gradients(inputs, targets, torch.tensor([size]), [size]).uploads[0]

    def _gradients(
        self, inputs: Tensor, targets: Tensor, sizes: Tensor, expected: list[float]
    ) -> UploadBatch:
        client_of_record = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        lots = (inputs, targets, client_of_record, len(sizes))
        result = self.context.engine.clipped_sums(*lots, None)
        sums, losses, finite = result.sums, result.losses, result.finite
        broken = (~sums.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if broken:
            losses, finite, ends = losses.clone(), finite.clone(), sizes.cumsum(0).tolist()
        # A client with a record that is not finite is computed again, by itself: no norms are measured here,
        # so such a record spills into the sums of other clients (0 · nan is nan).
        for k in broken:
            lot = slice(ends[k] - int(sizes[k]), ends[k])
            alone = self._alone(inputs[lot], targets[lot])
            sums[k], losses[lot], finite[lot] = alone.sums[0], alone.losses, alone.finite
        model = self.context.model
        denominators = torch.tensor(expected, dtype=sums.dtype).to(sums.device)
        if model.weight_decay:
            losses = losses + model.penalty(model.flat)
        return UploadBatch(
            uploads=sums.div_(denominators[:, None]),
            loss_sum=sum_per_owner(
                torch.where(finite, losses, 0.0), client_of_record.to(losses.device), len(sizes)
            ),
            records=sizes,
            not_finite=len(targets) - int(finite.sum()),
        )

    def _alone(self, inputs: Tensor, targets: Tensor) -> ClippedSums:
        """Return the gradient sum of one client, without its records that are not finite.

        Norms are measured only if the plain sum is not finite: with norms such records contribute zero.
        """
        lot = (inputs, targets, torch.zeros(len(targets), dtype=torch.int64), 1)
        result = self.context.engine.clipped_sums(*lot, None)
        if bool(result.sums.isfinite().all()):
            return result
        result = self.context.engine.clipped_sums(*lot, lambda norms, _: torch.ones_like(norms))
        return replace(result, sums=result.sums.to(self.context.model.flat.dtype))


class LocalChanges:
    """Uploads that are changes of weights: Δ_k = θ_k - θ after E epochs of SGD over batches of B.

    The clients of a block train side by side.

    Args:
        context: What the run works on.
        epochs: E.
        batch_size: B; None: a client's whole data.
        learning_rate: η of the clients.
        proximal: μ of FedProx (Li et al. 2020), which adds μ/2 ‖θ_k - θ‖² to a client's loss.
    """

    sign = -1
    replaces = False

    def __init__(
        self,
        context: RunContext,
        epochs: int,
        batch_size: int | None,
        learning_rate: float,
        proximal: float = 0.0,
    ):
        self.context, self.proximal = context, proximal
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self._stacked = StackedModel(context.model)

    def draw(self, round_index: int, clients: np.ndarray) -> None:
        """Draw the order in which each client visits its records in each epoch."""
        for client in clients:
            records = self.context.records_of(round_index, int(client))
            for epoch in range(self.epochs):
                shuffle(self.context.streams, records, round_index, epoch, client)

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        data, streams = self.context.data, self.context.streams
        records = [self.context.records_of(round_index, int(k)) for k in clients]

        def order(client: int, epoch: int) -> np.ndarray:
            return shuffle(streams, records[client], round_index, epoch, clients[client])

        sizes = [len(indices) for indices in records]
        project = self.projection(round_index)
        return self._train(data.train.inputs, data.train.targets, sizes, order, project)

    def projection(self, round_index: int) -> Projection | None:
        """Return the projection of the weights after every batch; None: no projection."""
        return None

    def of_records(
        self,
        inputs: Tensor,
        targets: Tensor,
        order: Callable[[int], np.ndarray] | None = None,
    ) -> Tensor:
        """Compute the upload [d] of a client that has just these records.

        Args:
            inputs: Inputs of the records [n, …].
            targets: Targets of the records [n, …].
            order: Epoch → order of the records [n] in this epoch; None: always as they stand.
        """
        size = len(targets)

        def visited(_: int, epoch: int) -> np.ndarray:
            return np.arange(size) if order is None else order(epoch)

        return self._train(inputs, targets, [size], visited).uploads[0]

    def _train(
        self,
        inputs: Tensor,
        targets: Tensor,
        sizes: list[int],
        order: Callable[[int, int], np.ndarray],
        project: Projection | None = None,
    ) -> UploadBatch:
        """Train clients side by side.

        Args:
            inputs: Inputs of all records.
            targets: Targets of all records.
            sizes: Number of records of each client [c].
            order: (client, epoch) → indices of the client's records in the order of the epoch.
            project: Projection after every batch; None: none.
        """
        start = self.context.model.flat
        batch = self.batch_size or max(sizes)
        weights = start.repeat(len(sizes), 1)
        loss_sum = start.new_zeros(len(sizes), dtype=torch.float64)
        for epoch in range(self.epochs):
            visits = [order(client, epoch) for client in range(len(sizes))]
            indices, present = _padded(visits, start.device)
            for rows, mask in zip(indices.split(batch, 1), present.split(batch, 1), strict=True):
                gradients, losses = self._stacked.gradients(
                    weights, rows_at(inputs, rows), rows_at(targets, rows), mask
                )
                if self.proximal:  # a client whose batches are over stays where it is
                    pull = (weights - start) * mask.any(1, keepdim=True)
                    gradients = gradients.add_(pull, alpha=self.proximal)
                weights.sub_(gradients, alpha=self.learning_rate)
                if project is not None:
                    project(weights, start)
                loss_sum += losses.sum(1)
        records = torch.tensor(sizes, device=start.device).mul_(self.epochs)
        return UploadBatch(weights.sub_(start), loss_sum, records)


class ProjectedChanges(LocalChanges):
    """Changes of weights that are projected onto a ball around θ after every batch.

    The radius is the clip norm S, so clipping the upload changes nothing more.
    """

    def projection(self, round_index: int) -> Projection:
        server = torch.zeros(1, dtype=torch.int64, device=self.context.model.device)
        radius = float(self.context.clipper.clip_norm(round_index, server))
        return partial(project_to_ball, radius=radius)


def project_to_ball(weights: Tensor, start: Tensor, radius: float | Tensor) -> None:
    """Project weights onto a ball, in place: Δ ← Δ min(1, radius/‖Δ‖) for Δ = weights - start.

    Args:
        weights: Weights of clients [c, d].
        start: Center of the ball [d].
        radius: Radius of the ball.
    """
    changes = weights - start
    norms = torch.linalg.vector_norm(changes, dim=1, keepdim=True)
    outside = norms > radius
    if bool(outside.any()):
        projected = changes.mul_(radius / norms).add_(start)
        torch.where(outside, projected, weights, out=weights)


class FullBatchDescent:
    """Uploads after E steps of gradient descent on all records of a client: weights w_k, or w_k - w.

    The records of a block of clients are gathered once and kept for rounds with the same block.

    Args:
        context: What the run works on.
        steps: E.
        learning_rate: η of the clients.
        replaces: Whether the weights are uploaded; else their change is.
    """

    sign = -1

    def __init__(self, context: RunContext, steps: int, learning_rate: float, replaces: bool):
        self.context, self.steps, self.learning_rate = context, steps, learning_rate
        self.replaces = replaces
        self._stacked = StackedModel(context.model)
        self._gathered: dict[bytes, tuple[list[np.ndarray], tuple[Tensor, Tensor, Tensor]]] = {}

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        records = [self.context.records_of(round_index, int(client)) for client in clients]
        key = np.asarray(clients).tobytes()
        if key not in self._gathered or not _are_equal(self._gathered[key][0], records):
            train = self.context.data.train
            indices, present = _padded(records, train.targets.device)
            inputs, targets = rows_at(train.inputs, indices), rows_at(train.targets, indices)
            held = sum(lots[2].numel() for _, lots in self._gathered.values())
            if held + present.numel() > _MOST_GATHERED * len(train):  # cohorts change: begin anew
                self._gathered.clear()
            self._gathered[key] = (records, (inputs, targets, present))
        return self._train(*self._gathered[key][1])

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        present = torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        return self._train(inputs[None], targets[None], present[None]).uploads[0]

    def _train(self, inputs: Tensor, targets: Tensor, present: Tensor) -> UploadBatch:
        start = self.context.model.flat
        weights = start.repeat(len(targets), 1)
        loss_sum = start.new_zeros(len(targets), dtype=torch.float64)
        for step in range(self.steps):
            gradients, losses = self._stacked.gradients(weights, inputs, targets, present)
            weights.sub_(gradients, alpha=self.learning_rate)
            if step == 0:
                loss_sum = losses.sum(1).double()
        uploads = weights if self.replaces else weights.sub_(start)
        return UploadBatch(uploads, loss_sum, present.sum(1))


def _are_equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    """Return whether two lists hold equal arrays; mostly they hold the same objects, which is fast."""
    return len(first) == len(second) and all(
        a is b or np.array_equal(a, b) for a, b in zip(first, second, strict=True)
    )


def _padded(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Fill up rows of indices to the longest: (indices [c, b], mask of the indices that count [c, b])."""
    width = max(len(row) for row in rows)
    indices = np.zeros((len(rows), width), dtype=np.int64)
    present = np.zeros((len(rows), width), dtype=bool)
    for k, row in enumerate(rows):
        indices[k, : len(row)] = row
        present[k, : len(row)] = True
    return torch.from_numpy(indices).to(device), torch.from_numpy(present).to(device)
