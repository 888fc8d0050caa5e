"""Canaries that look like records: copies of training inputs with wrong labels, chosen at random.

An attacker who sees no gradient can plant such canaries and look for them by querying the final model.
Nothing replaces what a client computes: the canaries go through the run's own code as any record does. A
canary client has only copies of one such record, as many as the median client has records.

Under replace-one adjacency the coin chooses between two wrong labels a and b of the same input x. The score
is

    add/remove    ℓ(θ_0; x, a) - ℓ(θ_T; x, a)
    replace-one   [ℓ(θ_0; x, a) - ℓ(θ_T; x, a)] - [ℓ(θ_0; x, b) - ℓ(θ_T; x, b)]

Guesses made from these scores are post-processing of what the run releases, so every bound on guesses holds.
An attacker who sees the releases themselves could have much better scores.

Reference:
    Wrong labels as canaries: Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", 2023;
    Nasr et al., "Adversary instantiation", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.canaries import Canaries, PlantedCanaries, coins_of, homes_of, with_records
from fedpriv.attacks.canary_scores import WatchedComputation
from fedpriv.attacks.triggers import concatenated
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.store.canary_file import BLACK_BOX


@dataclass(frozen=True)
class Mislabelled(Canaries):
    """Canaries with wrong labels.

    Canary i has record number ``first`` + i in ``data``. Where coins choose between two labels, record
    ``first`` + m + i has the other wrong label of canary i.
    """

    def records(self, other: bool = False) -> Records:
        """Return the records of all canaries [m], with their first or their ``other`` label."""
        numbers = self.first + np.arange(len(self)) + other * len(self)
        return self.data.train.subset(numbers)


def make_mislabelled(
    data: FederatedData, *, count: int, unit: str, neighbours: str, seed: int
) -> Mislabelled:
    """Plant ``count`` canaries in ``data``, each a copy of another training input.

    Args:
        data: The data of the run.
        count: Number of canaries m.
        unit: ``record`` or ``client``.
        neighbours: The adjacency, which says what a coin decides.
        seed: Seed of coins, inputs and labels.

    Returns:
        The canaries, with the data that contain them.

    Raises:
        ArgumentError: There are more canaries than training records, or too few classes for wrong labels.
    """
    most = most_mislabelled(data)
    if count > most:
        raise ArgumentError("canaries", count, f"<= {most}, the training records")
    signed = neighbours == REPLACE_ONE
    stream = numpy_stream(seed, "canary_labels")
    chosen = stream.permutation(data.clients.indices)[:count]
    labels = 2 if signed else 1
    if data.classes <= labels:
        raise ArgumentError(
            "canaries", count, f"0: {data.classes} classes have too few wrong labels"
        )
    # A wrong label is the right one plus 1 … classes - 1. The two of one canary differ.
    offsets = 1 + np.argsort(stream.random((count, data.classes - 1)), axis=1)[:, :labels]
    copied = data.train.subset(chosen)
    records = concatenated(
        [
            Records(copied.inputs, (copied.targets + offset) % data.classes)
            for offset in torch.from_numpy(offsets).to(copied.targets).unbind(dim=1)
        ]
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
    """Return the largest possible number of canaries: no training input is copied twice."""
    return len(data.clients.indices)


class PlantedMislabelled(PlantedCanaries):
    """Mislabelled canaries, which train on their records as anybody would."""

    canaries: Mislabelled

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return a client's records without absent canaries, each canary with the label of its coin.

        Args:
            round_index: The round, 0-based.
            client: Number of the client.
        """
        canaries, records = self.canaries, super().records_of(round_index, client)
        if not canaries.signed:
            return records
        canary_numbers = records - canaries.first
        is_canary = canary_numbers >= 0
        other_label = np.zeros(len(records), dtype=bool)
        other_label[is_canary] = ~canaries.coins[canary_numbers[is_canary]]
        return records + other_label * len(canaries)


class WatchedMislabelled(WatchedComputation):
    """An algorithm's computation whose auditor queries only the final model."""

    _planted: PlantedMislabelled

    def scores_by_observer(self, before: Tensor) -> dict[str, np.ndarray]:
        canaries = self._planted.canaries
        score = self._loss_decrease(before, canaries.records())
        if canaries.signed:
            score = score - self._loss_decrease(before, canaries.records(other=True))
        return {BLACK_BOX: score}

    def _loss_decrease(self, before: Tensor, records: Records) -> np.ndarray:
        """Return by how much the loss of each record has fallen [m]; non-finite losses count as ±1e30."""
        model = self._context.model
        now = model.flat.clone()
        losses = []
        for weights in (before, now):  # ends with the model's current weights, which stay
            model.set(weights)
            losses.append(
                model.losses(records.inputs, records.targets).nan_to_num(1e30, 1e30, -1e30)
            )
        return (losses[0] - losses[1]).cpu().numpy()
