"""Algorithms, clippers and models with a mistake each, written as a user would write a plug-in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedpriv.algorithms import CdpFedAvg, DpFl
from fedpriv.algorithms.client_computation import CohortAnswer
from fedpriv.algorithms.optimizers import Adam
from fedpriv.algorithms.record_computation import RecordComputation
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.algorithms.uploads import ProjectedChanges
from fedpriv.data.records import Records
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.core.sampling import PoissonSampling

RECORDS = ("algorithm=dp_fl", "partition=iid", "partition.clients=4")
CLIENTS = ("algorithm=cdp_fedavg", "partition.clients=24", "algorithm.client_rate=0.5")
"""Small configurations, to which the mistakes are added."""
COPIES = (
    "algorithm.augmentation_multiplicity=3",
    "algorithm.random_crop=2",
    "algorithm.random_flip=true",
)


def does_not_clip(clip):
    """The clipper's scale is used, its bound is not enforced."""
    clip.factors = lambda norms, owners: torch.ones_like(norms)
    clip.scaled = True
    return clip


# ---- clipping


class NoClipping(RecordComputation):
    def chunk_clip(self, state):
        return does_not_clip(super().chunk_clip(state))


class ClipsTheMean(RecordComputation):
    """The sum of a lot is clipped instead of each gradient in it."""

    def chunk_clip(self, state):
        return does_not_clip(super().chunk_clip(state))

    def compute_cohort(self, local_step, changes, clip):
        found = super().compute_cohort(local_step, changes, clip)
        values = found.answer.values
        lots = self._lot_sizes[self.holders(local_step.cohort)]
        mean = values.norm(dim=1) / lots
        values.mul_((clip.norms / mean.clamp_min(1e-12)).clamp_max(1.0)[:, None])
        return found


class PerLayer(UploadComputation):
    """Each layer of an upload is clipped to C, and the whole is said to be."""

    def compute_cohort(self, local_step, changes, clip):
        batch = self._uploads.of(local_step.round_index, local_step.cohort)
        uploads, first = batch.uploads.nan_to_num(0.0, 0.0, 0.0).double(), 0
        for parameter in self.context.model.module.parameters():
            layer = uploads[:, first : first + parameter.numel()]
            layer.mul_((clip.norms / layer.norm(dim=1)).clamp_max(1.0)[:, None])
            first += parameter.numel()
        return summed(self, local_step, clip, uploads)


class TrustsClients(UploadComputation):
    """Clients clip; the server adds up what it gets."""

    def compute_cohort(self, local_step, changes, clip):
        batch = self._uploads.of(local_step.round_index, local_step.cohort)
        return summed(self, local_step, clip, batch.uploads.double())


class NeighboursNorm(RecordComputation):
    """Gradients of the last client but one are clipped to the last one's norm, and the other way round."""

    def chunk_clip(self, state):
        clip, (one, other) = super().chunk_clip(state), (-2, -1)
        clip.limits = clip.limits.clone()
        clip.limits[[one, other]] = clip.limits[[other, one]]
        return clip


class WeighedByData(UploadComputation):
    """Clipped uploads are weighed by how many records a client has, as FedAvg does."""

    def chunk_clip(self, state):
        clip = super().chunk_clip(state)
        records = torch.from_numpy(self.context.data.records_per_client)
        weights = (records / records.double().mean())[torch.from_numpy(state.local_step.cohort)]
        honest = clip.factors
        clip.factors = lambda norms, owners: honest(norms, owners) * weights.to(norms.dtype)
        return clip


def summed(computation, local_step, clip, uploads):
    """The sum of uploads [c, d], said to be clipped."""
    denominator = computation.denominator(local_step.cohort)
    clip.scaled = True
    norms = uploads.norm(dim=1).float()
    return CohortAnswer(
        clip.bounded(uploads.sum(0, keepdim=True) / denominator, denominator),
        norms, torch.zeros(len(norms), dtype=torch.int64), torch.arange(len(norms)), 0.0, 0.0, 0,
    )  # fmt: skip


# ---- what is done with a release


class RealisedLots(RecordComputation):
    """The noised sum is divided by how many records there are."""

    def _lots(self, local_step):
        records, owners = super()._lots(local_step)
        self.counts = torch.bincount(owners, minlength=len(local_step.cohort)).float()
        return records, owners

    def mean(self, released, cohort):
        mean, lot_sizes = super().mean(released, cohort)
        return mean * (lot_sizes / self.counts.clamp_min(1.0))[:, None], lot_sizes


class TwoLotsAsOne(RecordComputation):
    """Two lots are drawn and added up, noised once and charged once."""

    def _lots(self, local_step):
        parts = [super(TwoLotsAsOne, self)._lots(replace(local_step, step=step)) for step in (0, 1)]
        owners = torch.cat([own for _, own in parts])
        order = torch.argsort(owners, stable=True)
        inputs, targets = (
            torch.cat([getattr(records, what) for records, _ in parts])[order]
            for what in ("inputs", "targets")
        )
        return Records(inputs, targets), owners[order]


class CopiesAsRecords(RecordComputation):
    """Each copy of an image is clipped by itself, and all are added up."""

    def _lots(self, local_step):
        records, owners = super()._lots(local_step)
        copies = records.inputs.copies
        targets = records.targets.repeat_interleave(copies)
        inputs = records.inputs[:].flatten(0, 1)
        return Records(inputs, targets), owners.repeat_interleave(copies)


class RegularisedByTheLot(RecordComputation):
    """A penalty that grows with the loss of the lot."""

    def compute_cohort(self, local_step, changes, clip):
        found = super().compute_cohort(local_step, changes, clip)
        self.loss = found.train_loss
        return found

    def mean(self, released, cohort):
        mean, lot_sizes = super().mean(released, cohort)
        return mean + 0.01 * self.loss * self.context.model.flat, lot_sizes


class StopsAtNotFinite(RecordComputation):
    """A gradient that is not finite ends the run."""

    def compute_cohort(self, local_step, changes, clip):
        found = super().compute_cohort(local_step, changes, clip)
        if found.not_finite:
            raise RuntimeError("a gradient is not finite")
        return found


class KeepsUnclipped(RecordComputation):
    """Remembers the sums before clipping, for the optimiser."""

    def compute_cohort(self, local_step, changes, clip):
        records, owners = self._lots(local_step)
        lots = (records.inputs, records.targets, owners, len(local_step.cohort))
        self.unclipped = self.context.engine.clipped_sums(*lots, None).sums.nan_to_num(
            0.0, 0.0, 0.0
        )
        return super().compute_cohort(local_step, changes, clip)


class UnclippedMoments(Adam):
    """Second moments of what was never clipped or noised."""

    computation: KeepsUnclipped

    def step(self, clients, gradients):
        self._second.mul_(0.9).add_(self.computation.unclipped.float() ** 2)
        return super().step(clients, gradients)


# ---- algorithms


class OwnWork(DpFl):
    """``computation``: the name of one of the classes above."""

    def __init__(self, *args, computation, **settings):
        super().__init__(*args, **settings)
        self.computation = computation

    def start(self, context):
        trainer = super().start(context)
        trainer.computation.__class__ = globals()[self.computation]
        if self.computation == "KeepsUnclipped":
            trainer._optimizer.__class__ = UnclippedMoments
            trainer._optimizer.computation = trainer.computation
        return trainer


class OwnClientWork(CdpFedAvg):
    def __init__(self, *args, computation, **settings):
        super().__init__(*args, **settings)
        self.computation = computation

    def uploads(self, context):
        if self.computation != "TrustsClients":
            return super().uploads(context)
        return ProjectedChanges(
            context, self.local_epochs, self.batch_size, self.local_learning_rate
        )

    def start(self, context):
        trainer = super().start(context)
        trainer.computation.__class__ = globals()[self.computation]
        return trainer


class BlockSampling(PoissonSampling):
    """As many as Poisson lots have, one beside the other."""

    def sample(self, stream, count):
        size = int((stream.random(count) < self.sample_rate).sum())
        first = int(stream.random() * count)
        return np.sort((first + np.arange(size)) % count)


class CohortOfState(CdpFedAvg):
    """Who takes part needs what is set ``when``: at the start of a run, or by its first round."""

    def __init__(self, *args, when, **settings):
        super().__init__(*args, **settings)
        self.when = when

    def start(self, context):
        trainer = super().start(context)
        if self.when == "start":
            self.ready = True
        honest = trainer.round

        def done(opened):
            self.ready = True
            return honest(opened)

        trainer.round = done
        return trainer

    def cohort(self, streams, round_index, eligible):
        return (
            super().cohort(streams, round_index, eligible)
            if not round_index or self.ready
            else None
        )


class OwnSampling(DpFl):
    def __init__(self, *args, how, **settings):
        super().__init__(*args, **settings)
        self.how = how

    def sampling_of(self, records):
        return globals()[self.how](self.sample_rate)


# ---- clippers and models


class Peeks(ConstantClipper):
    """The next clip norm is the median of this lot's, which nobody is asked for."""

    def factors(self, norms, clip_norms):
        self._norms[:] = 0.9 * self._norms + 0.1 * norms.nan_to_num(0.0, 0.0, 0.0).median()
        return super().factors(norms, clip_norms)


class BatchNormed(nn.Module):
    """A batch norm of its own, whose name tells nothing."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("running", torch.zeros(64))

    def forward(self, inputs):
        flat = inputs.flatten(1)
        if self.training:
            with torch.no_grad():
                self.running.lerp_(flat.mean(0), 0.1)
        return self.linear(flat - self.running)


class BatchNormModel:
    seed = 0

    def __init__(self, seed=0):
        self.seed = seed

    def build(self, input_shape, classes):
        torch.manual_seed(self.seed)
        return BatchNormed()
