"""What clients compute in a round before anything is clipped: gradients, or changes of weights."""

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
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData, sample_lot, shuffle
from fedpriv.privacy.mechanisms.bounded import sum_per_owner

Projection = Callable[[Tensor, Tensor], None]
"""(weights of clients [c, d], those that they began with [d]): moves the weights, in place."""
_GATHERED = 2  # the training data so many times over, at most, are held in the order of clients


@dataclass(frozen=True)
class UploadBatch:
    """Uploads of some clients, and the losses of the records they read.

    Attributes:
        uploads: A row for each client [c, d].
        loss_sum: The sum of the losses of each client's records [c] (λ/2 ‖θ‖² in each), or of all of them.
        records: How many records each of these sums is of.
        not_finite: How many records were left out because their gradient is not finite.
    """

    uploads: Tensor
    loss_sum: Tensor
    records: int | Tensor
    not_finite: int = 0


class Uploads(Protocol):
    """What clients compute. ``sign``: 1 if an upload is a gradient, -1 if a change of weights, or the
    weights themselves (``replaces``: their mean takes the place of the global ones)."""

    sign: int
    replaces: bool

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        """The uploads of ``clients`` [c] at the model's current weights."""

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The upload [d] of a client with just these records [n]."""


class Gradients:
    """g_k = (1/(q n_k)) Σ_{i in lot} ∇ℓ_i, the lot being the whole data when q = 1."""

    sign = 1
    replaces = False

    def __init__(self, sample_rate: float, context: RunContext):
        self.context = context
        context.prove_engine()
        self._sampling = WholeData() if sample_rate == 1 else PoissonSampling(sample_rate)

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        data = self.context.data
        lots = [self._lot(round_index, int(client)) for client in clients]
        sizes = torch.tensor([len(lot) for lot in lots])
        records = data.train.subset(np.concatenate(lots))
        expected = [self._sampling.expected_size(len(data.clients[k])) for k in clients]
        return self._gradients(records.inputs, records.targets, sizes, expected)

    def _lot(self, round_index: int, client: int) -> np.ndarray:
        own, streams = self.context.records_of(round_index, client), self.context.streams
        return sample_lot(streams, self._sampling, own, round_index, 0, client)

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
        for k in broken:  # each alone: what one client holds changes nothing for another
            own = slice(ends[k] - int(sizes[k]), ends[k])
            alone = self._alone(inputs[own], targets[own])
            sums[k], losses[own], finite[own] = alone.sums[0], alone.losses, alone.finite
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
        """The gradient sum of one client. A record that is not finite spills into the sums of others
        (0 · nan is nan) where norms are not measured, and contributes zero where they are."""
        lot = (inputs, targets, torch.zeros(len(targets), dtype=torch.int64), 1)
        found = self.context.engine.clipped_sums(*lot, None)
        if bool(found.sums.isfinite().all()):
            return found
        found = self.context.engine.clipped_sums(*lot, lambda norms, _: torch.ones_like(norms))
        return replace(found, sums=found.sums.to(self.context.model.flat.dtype))


class LocalChanges:
    """Δ_k = θ_k - θ after E epochs of SGD over batches of B, the clients of a block side by side."""

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
        """``proximal``: μ of FedProx (Li et al. 2020), which adds μ/2 ‖θ_k - θ‖² to a client's loss."""
        self.context, self.proximal = context, proximal
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self._stacked = StackedModel(context.model)

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        data, streams = self.context.data, self.context.streams
        records = [self.context.records_of(round_index, int(k)) for k in clients]

        def order(client: int, epoch: int) -> np.ndarray:
            return shuffle(streams, records[client], round_index, epoch, clients[client])

        sizes = [len(own) for own in records]
        project = self.projection(round_index)
        return self._train(data.train.inputs, data.train.targets, sizes, order, project)

    def projection(self, round_index: int) -> Projection | None:
        """Return what weights are projected by after every batch; None: by nothing."""
        return None

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        size = len(targets)
        return self._train(inputs, targets, [size], lambda _, epoch: np.arange(size)).uploads[0]

    def _train(
        self,
        inputs: Tensor,
        targets: Tensor,
        sizes: list[int],
        order: Callable[[int, int], np.ndarray],
        project: Projection | None = None,
    ) -> UploadBatch:
        """``order(client, epoch)``: the indices of a client's records as the epoch visits them; ``project``:
        called after every batch."""
        start = self.context.model.flat
        batch = self.batch_size or max(sizes)
        weights = start.repeat(len(sizes), 1)
        loss_sum = start.new_zeros(len(sizes), dtype=torch.float64)
        for epoch in range(self.epochs):
            visits = [order(client, epoch) for client in range(len(sizes))]
            indices, present = _padded(visits, start.device)
            for own, there in zip(indices.split(batch, 1), present.split(batch, 1), strict=True):
                gradients, losses = self._stacked.gradients(
                    weights, rows_at(inputs, own), rows_at(targets, own), there
                )
                if self.proximal:  # a client whose batches are over stays where it is
                    pull = (weights - start) * there.any(1, keepdim=True)
                    gradients = gradients.add_(pull, alpha=self.proximal)
                weights.sub_(gradients, alpha=self.learning_rate)
                if project is not None:
                    project(weights, start)
                loss_sum += losses.sum(1)
        records = torch.tensor(sizes, device=start.device).mul_(self.epochs)
        return UploadBatch(weights.sub_(start), loss_sum, records)


class ProjectedChanges(LocalChanges):
    """The same, projected onto a ball around θ after every batch: that of radius S, the clip norm."""

    def projection(self, round_index: int) -> Projection:
        server = torch.zeros(1, dtype=torch.int64, device=self.context.model.device)
        radius = float(self.context.clipper.clip_norm(round_index, server))
        return partial(project_to_ball, radius=radius)


def project_to_ball(weights: Tensor, start: Tensor, radius: float | Tensor) -> None:
    """Δ ← Δ min(1, radius/‖Δ‖) for the changes Δ of weights [c, d] since ``start`` [d], in place."""
    changes = weights - start
    norms = torch.linalg.vector_norm(changes, dim=1, keepdim=True)
    outside = norms > radius
    if bool(outside.any()):
        projected = changes.mul_(radius / norms).add_(start)
        torch.where(outside, projected, weights, out=weights)


class FullBatchDescent:
    """w_k after E steps of gradient descent on all of its records, from w; or w_k - w.

    ``replaces``: the weights are uploaded, else their change. The records of a block of clients are
    gathered once and kept by who they are, for rounds in which the same clients come together again.
    """

    sign = -1

    def __init__(self, context: RunContext, steps: int, learning_rate: float, replaces: bool):
        self.context, self.steps, self.learning_rate = context, steps, learning_rate
        self.replaces = replaces
        self._stacked = StackedModel(context.model)
        self._gathered: dict[bytes, tuple[list[np.ndarray], tuple[Tensor, Tensor, Tensor]]] = {}

    def of(self, round_index: int, clients: np.ndarray) -> UploadBatch:
        own = [self.context.records_of(round_index, int(client)) for client in clients]
        key = np.asarray(clients).tobytes()
        if key not in self._gathered or not _same(self._gathered[key][0], own):
            data = self.context.data
            indices, present = _padded(own, data.train.targets.device)
            inputs, targets = (rows_at(x, indices) for x in (data.train.inputs, data.train.targets))
            held = sum(kept[2].numel() for _, kept in self._gathered.values())
            if held + present.numel() > _GATHERED * len(
                data.train
            ):  # other cohorts come: begin anew
                self._gathered.clear()
            self._gathered[key] = (own, (inputs, targets, present))
        return self._train(*self._gathered[key][1])

    def of_records(self, inputs: Tensor, targets: Tensor) -> Tensor:
        there = torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        return self._train(inputs[None], targets[None], there[None]).uploads[0]

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


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Whether they are the same lists, as they are from round to round, or lists of the same."""
    return len(one) == len(other) and all(
        a is b or np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def _padded(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """(indices [c, b], which of them are there [c, b]): shorter rows repeat index 0, marked absent."""
    width = max(len(row) for row in rows)
    indices = np.zeros((len(rows), width), dtype=np.int64)
    present = np.zeros((len(rows), width), dtype=bool)
    for k, row in enumerate(rows):
        indices[k, : len(row)] = row
        present[k, : len(row)] = True
    return torch.from_numpy(indices).to(device), torch.from_numpy(present).to(device)
