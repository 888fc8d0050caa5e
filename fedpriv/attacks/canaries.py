"""Canaries: records or clients that an auditor plants, each with a fair coin.

Under add/remove adjacency the coin decides whether the canary takes part. Under replace-one adjacency it
decides which of two canaries takes part. Canaries are sampled, clipped, summed and noised by the same code as
everybody else.

The canaries here have a gradient that points in one direction, which the auditor knows: +L v (or -L v). The
direction v is a coordinate of the weights that no other canary of the same upload has, and L is longer than
any clip norm. What clipping leaves of the gradient is exactly the sensitivity that the ledger allows. So the
scores of these canaries can show all of the ledger's ε. :mod:`fedpriv.attacks.mislabelled` has canaries that
look like records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.attacks.triggers import concatenated
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, Engine
from fedpriv.engine.interface import Factors, Sliced
from fedpriv.privacy.core.names import REPLACE_ONE

LENGTH = 1e6
"""L, the norm of a canary's gradient before clipping."""
# The input of a canary begins with a mark that no real record has, so that the engine recognises it.
_MARK = 2.0**60
_TOKEN_MARK = 2**40
_STEP = 2.0**-22  # relative distance between the marks of two canaries, exact in float32


@dataclass(frozen=True)
class Canaries:
    """The canaries of a run, and the data that contain them.

    Attributes:
        unit: ``record`` or ``client``: what each canary is.
        signed: True under replace-one adjacency: all canaries take part, and a coin chooses one of two
            variants.
        homes: The client that each canary is a record of, or that it is itself [m], ascending.
        coins: The coin of each canary [m] (bool).
        data: The data of the run with the canaries' records behind the others.
        first: Number of the first canary's record in ``data``; the others follow in order.
    """

    unit: str
    signed: bool
    homes: np.ndarray
    coins: np.ndarray
    data: FederatedData
    first: int

    def __len__(self) -> int:
        return len(self.coins)

    @property
    def present(self) -> np.ndarray:
        """Mask of the canaries that take part [m] (bool)."""
        return np.ones(len(self), dtype=bool) if self.signed else self.coins


@dataclass(frozen=True)
class Directions(Canaries):
    """Canaries whose gradient has one direction.

    Attributes:
        coordinates: The coordinate v of each canary among the weights [m].
    """

    coordinates: np.ndarray

    @property
    def signs(self) -> np.ndarray:
        """Factor of each canary's direction [m]: 1 or -1, and 0 for a canary that is absent."""
        return np.where(self.coins, 1.0, -1.0) if self.signed else self.coins.astype(float)


def homes_of(data: FederatedData, count: int, unit: str) -> np.ndarray:
    """Return the client of each of ``count`` canaries.

    Canary records are spread evenly over the clients. Canary clients get the numbers after the existing ones.

    Args:
        data: The data without canaries.
        count: Number of canaries.
        unit: ``record`` or ``client``.

    Returns:
        Client numbers [count], ascending.
    """
    if unit == "record":
        return np.sort(np.arange(count) % data.client_count)
    return data.client_count + np.arange(count)


def coins_of(count: int, seed: int) -> np.ndarray:
    """Return ``count`` fair coins (bool), which follow from ``seed``."""
    return numpy_stream(seed, "canary_coins").random(count) < 0.5


def with_records(
    data: FederatedData, records: Records, homes: np.ndarray, copies: int | None = None
) -> FederatedData:
    """Return ``data`` with one further record for each canary.

    Args:
        data: The data without canaries.
        records: The records to append to the training records. The first m belong to the canaries; more may
            follow, which no client has.
        homes: The client of each canary [m].
        copies: None adds each record to the existing client in ``homes``. A number makes each canary a new
            client, which has so many copies of its record.
    """
    numbers = len(data.train) + np.arange(len(homes))
    if copies is None:
        clients = data.clients.with_records(homes, numbers)
    else:
        clients = data.clients.with_clients(
            ClientRecords(np.repeat(numbers, copies), copies * np.arange(len(numbers) + 1))
        )
    return replace(data, train=concatenated([data.train, records]), clients=clients)


def make_canaries(
    data: FederatedData, *, count: int, unit: str, neighbours: str, size: int, seed: int
) -> Directions:
    """Plant ``count`` canaries with one direction each in ``data``.

    Args:
        data: The data of the run.
        count: Number of canaries m.
        unit: ``record`` or ``client``.
        neighbours: The adjacency, which says what a coin decides.
        size: Number of weights of the model.
        seed: Seed of coins and directions.

    Returns:
        The canaries, with the data that contain them.

    Raises:
        ArgumentError: One upload would have more canaries than there are weights.
    """
    homes = homes_of(data, count, unit)
    most = most_canaries(data, unit, size)
    if count > most:
        raise ArgumentError("canaries", count, f"<= {most}: the model has {size} weights")
    stream = numpy_stream(seed, "canary_directions")
    # Canaries of one group must not share a direction. If there are more canaries than weights, only the
    # canaries of one client (whose records are in one upload) form a group.
    groups = homes if count > size else np.zeros(count, dtype=np.int64)
    coordinates = np.empty(count, dtype=np.int64)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        coordinates[members] = stream.permutation(size)[: len(members)]
    # The record of a canary stands for what the canary sends. It is marked, so that the engine finds it; or
    # it is the only record of a client, which has a loss like any other.
    train = data.train
    records = Records(
        train.inputs.new_zeros(count, *train.inputs.shape[1:]),
        train.targets[:1].repeat_interleave(count, dim=0),
    )
    if unit == "record":
        _mark(records.inputs)
    return Directions(
        unit=unit,
        signed=neighbours == REPLACE_ONE,
        homes=homes,
        coins=coins_of(count, seed),
        data=with_records(data, records, homes, copies=None if unit == "record" else 1),
        first=len(train),
        coordinates=coordinates,
    )


def most_canaries(data: FederatedData, unit: str, size: int) -> int:
    """Return the largest possible number of canaries: two of one upload share no weight.

    Args:
        data: The data of the run.
        unit: ``record`` or ``client``.
        size: Number of weights of the model.
    """
    return size * data.client_count if unit == "record" else size


def _mark(inputs: Tensor) -> None:
    """Write the number of each canary into the first value of its input, as :func:`marked` reads it."""
    numbers = torch.arange(len(inputs), device=inputs.device)
    first = inputs.view(len(inputs), -1)
    if inputs.dtype.is_floating_point:
        first[:, 0] = (-_MARK * (1.0 + numbers.double() * _STEP)).to(inputs.dtype)
    else:
        first[:, 0] = -_TOKEN_MARK - numbers


def marked(inputs: Tensor) -> Tensor:
    """Return the canary number of each record [n], -1 for a record that is no canary."""
    first = inputs.flatten(1)[:, 0]
    if inputs.dtype.is_floating_point:
        numbers = ((first.double() / -_MARK - 1.0) / _STEP).round()
        return torch.where(first <= -_MARK / 2, numbers, -1.0).long()
    return torch.where(first <= -_TOKEN_MARK, -_TOKEN_MARK - first, -1)


class PlantedCanaries:
    """The canaries that take part in a run (see :class:`fedpriv.algorithms.run_context.Participants`).

    Subclasses say what canaries send.

    Attributes:
        canaries: The canaries, with their current coins.
        attackers: Numbers of the clients whose uploads are replaced.
        silent: Whether the gradients of all canaries are zero at present.
    """

    silent = False

    def __init__(self, canaries: Canaries):
        self.canaries = canaries
        self.attackers = np.zeros(0, dtype=int)
        self.toss(canaries.coins)

    def toss(self, coins: np.ndarray) -> None:
        """Give the canaries new coins [m] (bool), which decide from the next round on who takes part."""
        self.canaries = canaries = replace(self.canaries, coins=coins)
        absent = ~canaries.present
        self._absent_records = canaries.first + np.flatnonzero(absent)
        self._absent_clients = canaries.homes[absent]

    def join(self, context: RunContext) -> None:
        """Take part in a run whose data are those of the canaries: it becomes ``context.canaries``."""
        context.canaries = self

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """Return the cohort without the canary clients that are absent.

        Args:
            round_index: The round, 0-based.
            cohort: Clients that the algorithm sampled, ascending.
        """
        if self.canaries.unit == "record":
            return cohort
        return np.setdiff1d(cohort, self._absent_clients)

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return the record numbers of a client without the canary records that are absent.

        Args:
            round_index: The round, 0-based.
            client: Number of the client.
        """
        numbers = self.canaries.data.clients[client]
        if self.canaries.unit == "client" or not len(self._absent_records):
            return numbers
        return numbers[~np.isin(numbers, self._absent_records)]

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Return what some clients send: here what they would send anyway.

        Args:
            aggregation: The round, and the weight of each upload in it.
            clients: Numbers of clients of the cohort [c], ascending.
            uploads: What they would send if all were honest [c, d].
        """
        return uploads


class PlantedDirections(PlantedCanaries):
    """Canaries of one direction, which send that direction instead of a gradient."""

    canaries: Directions

    def join(self, context: RunContext) -> None:
        """Take part in a run, whose engine or uploads then contain the canaries' directions."""
        super().join(context)
        if self.canaries.unit == "record":
            context.engine = _EngineWithCanaries(context.engine, self)
        else:
            self.attackers = self.canaries.homes

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Set the gradients of all canaries to zero for a while, to compute everybody else's sum."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Replace the uploads of the canaries among ``clients`` [c]; other rows of [c, d] stay."""
        numbers = np.searchsorted(self.canaries.homes, clients)
        rows = np.flatnonzero(np.isin(clients, self.canaries.homes))
        if not len(rows):
            return uploads
        sent = uploads.clone()
        sent[torch.from_numpy(rows)] = 0.0
        if not self.silent:
            canary_numbers = numbers[rows]
            length = sent.new_tensor(LENGTH * self.canaries.signs[canary_numbers])
            sent[
                torch.from_numpy(rows), torch.from_numpy(self.canaries.coordinates[canary_numbers])
            ] = length
        return sent


class _EngineWithCanaries:
    """An engine that replaces the gradients of marked records.

    The name of this engine makes models with weights of their own go through it one by one.
    """

    def __init__(self, engine: Engine, planted: PlantedDirections):
        self._engine, self._planted = engine, planted
        self._coordinates = torch.from_numpy(planted.canaries.coordinates)

    @property
    def name(self) -> str:
        return f"{self._engine.name}, with canaries"

    def clipped_sums(
        self,
        inputs: Tensor | Sliced,
        targets: Tensor | Sliced,
        client_of_record: Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """Return the clipped sums; see :meth:`fedpriv.engine.interface.Engine.clipped_sums`."""
        # Secure sums and augmented copies, which pass other types, are refused together with canaries.
        assert isinstance(inputs, Tensor)
        assert isinstance(targets, Tensor)
        numbers = marked(inputs)
        if not bool((numbers >= 0).any()):
            return self._engine.clipped_sums(inputs, targets, client_of_record, clients, factors)
        canary_rows, other_rows = (numbers >= 0).nonzero()[:, 0], (numbers < 0).nonzero()[:, 0]
        result = self._engine.clipped_sums(
            inputs[other_rows],
            targets[other_rows],
            client_of_record[other_rows.to(client_of_record.device)],
            clients,
            factors,
        )
        sums = result.sums
        owners, numbers = client_of_record.to(sums.device)[canary_rows], numbers[canary_rows]
        lengths = LENGTH * torch.from_numpy(self._planted.canaries.signs).to(sums)[numbers]
        # The norm is L even where the sign is 0: the factors must not depend on the coin.
        norms = torch.full_like(lengths, LENGTH, dtype=result.losses.dtype)
        scale = torch.ones_like(norms) if factors is None else factors(norms, owners)
        if not self._planted.silent:
            positions = (owners, self._coordinates.to(sums.device)[numbers])
            sums.index_put_(positions, lengths * scale.to(lengths), accumulate=True)

        def merged(of_others: Tensor, of_canaries: Tensor) -> Tensor:
            values = of_others.new_zeros(len(inputs))
            values[other_rows], values[canary_rows] = of_others, of_canaries.to(of_others.dtype)
            return values

        return ClippedSums(
            sums=sums,
            norms=result.norms if factors is None else merged(result.norms, norms),
            losses=merged(result.losses, torch.zeros_like(norms)),
            finite=merged(result.finite, torch.ones_like(norms)),
        )
