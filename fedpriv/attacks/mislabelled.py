"""Canaries that look like records: copies of training inputs with wrong labels, chosen at random.

Somebody who sees no gradient can plant them, and look for them by asking the final model. Nothing is put in
the place of what a client computes: they go through the run's own code as any record does. A canary that is a
client has nothing but copies of one such record, as many as the others have records in the median.

Under replace-one adjacency the coin chooses between two wrong labels of the same input. A score is

    add/remove    ℓ(θ_0; x, a) - ℓ(θ_T; x, a)
    replace-one   [ℓ(θ_0; x, a) - ℓ(θ_T; x, a)] - [ℓ(θ_0; x, b) - ℓ(θ_T; x, b)]

Guesses made from it are post-processing of what the run releases, so every bound on guesses holds. It is far
from the best score that whoever sees the releases could have.
Source: wrong labels as canaries: Steinke, Nasr, Jagielski 2023; Nasr et al. 2021 (adversary instantiation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.canaries import Canaries, PlantedCanaries, coins_of, homes_of, with_records
from fedpriv.attacks.canary_scores import WatchedComputation
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.store.canary_file import BLACK_BOX


@dataclass(frozen=True)
class Mislabelled(Canaries):
    """The record of canary i is ``first`` + i in ``data``; ``first`` + m + i has its other wrong label, where
    the coins choose."""

    def records(self, other: bool = False) -> Records:
        """Of all canaries [m]; with the ``other`` label."""
        numbers = self.first + np.arange(len(self)) + other * len(self)
        return self.data.train.subset(numbers)


def make_mislabelled(
    data: FederatedData, *, count: int, unit: str, neighbours: str, seed: int
) -> Mislabelled:
    """``count`` canaries in ``data``, each a copy of another training input. ``seed``: of coins, inputs and
    labels.

    Raises ArgumentError where there are more canaries than training records.
    """
    most = most_mislabelled(data)
    if count > most:
        raise ArgumentError("canaries", count, f"<= {most}, the training records")
    signed = neighbours == REPLACE_ONE
    stream = numpy_stream(seed, "canary_labels")
    chosen = stream.permutation(np.concatenate(data.clients))[:count]
    labels = 2 if signed else 1
    if data.classes <= labels:
        raise ArgumentError("canaries", count, f"0: of {data.classes} labels too few are wrong")
    # which of the wrong ones, each another: 1 … classes - 1 beyond the right one
    beyond = 1 + np.argsort(stream.random((count, data.classes - 1)), axis=1)[:, :labels]
    copied = data.train.subset(chosen)
    wrong = [
        (copied.targets + torch.from_numpy(beyond[:, i]).to(copied.targets)) % data.classes
        for i in range(labels)
    ]
    records = Records(
        copied.inputs.repeat(labels, *[1] * (copied.inputs.dim() - 1)), torch.cat(wrong)
    )
    homes = homes_of(data, count, unit)
    copies = None if unit == "record" else int(np.median(data.records_per_client))
    return Mislabelled(
        unit=unit,
        signed=signed,
        homes=homes,
        coins=coins_of(count, seed),
        data=with_records(data, records, homes, copies),
        first=len(data.train),
    )


def most_mislabelled(data: FederatedData) -> int:
    """How many there is room for: no training input is copied twice."""
    return int(data.records_per_client.sum())


class PlantedMislabelled(PlantedCanaries):
    """They train on their records as anybody would."""

    canaries: Mislabelled

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """A client's records: without the canaries that are not there, with the label that a coin chose."""
        canaries, own = self.canaries, super().records_of(round_index, client)
        if not canaries.signed:
            return own
        numbers = own - canaries.first
        theirs = numbers >= 0
        other = np.zeros(len(own), dtype=bool)
        other[theirs] = ~canaries.coins[numbers[theirs]]
        return own + other * len(canaries)


class WatchedMislabelled(WatchedComputation):
    """What somebody finds out who asks the final model alone."""

    _planted: PlantedMislabelled

    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        canaries = self._planted.canaries
        score = self._fallen(before, canaries.records())
        if canaries.signed:
            score = score - self._fallen(before, canaries.records(other=True))
        return {BLACK_BOX: score}

    def _fallen(self, before: Tensor, records: Records) -> np.ndarray:
        """By how much the loss of each record has fallen [m]; one that is not finite counts as very large."""
        model = self._context.model
        now = model.flat.clone()
        losses = []
        for weights in (before, now):  # the second are the model's own
            model.set(weights)
            losses.append(
                model.losses(records.inputs, records.targets).nan_to_num(1e30, 1e30, -1e30)
            )
        return (losses[0] - losses[1]).cpu().numpy()
