"""Canaries: records, or clients, that an auditor plants, each with a coin.

Under add/remove adjacency it decides whether the canary takes part; under replace-one which of two it is.
They take part as everybody does: they are sampled, clipped, added up and noised by the same code. Here are
those whose gradient has one direction that the auditor knows: +L v (or -L v), where v is a coordinate of
the weights that no other canary of the same upload has, and L is longer than any clip norm. What clipping
leaves of it is what the ledger's sensitivity allows, and no more. :mod:`fedpriv.attacks.mislabelled` has
those that look like records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.engine import ClippedSums, Engine
from fedpriv.engine.interface import Factors, Sliced
from fedpriv.privacy.core.names import REPLACE_ONE

LENGTH = 1e6
"""L, the norm of a canary's gradient before clipping."""
_MARK = 2.0**60  # of a canary's input: no record has such a number
_TOKEN_MARK = 2**40
_STEP = 2.0**-22  # between the marks of two canaries, exact in float32


@dataclass(frozen=True)
class Canaries:
    """Who the canaries are. ``homes`` [m]: the client each is a record of, or is; ``coins`` [m] (bool);
    ``signed``: whether a coin chooses between two, and all are there; ``first``: the number of the first
    one's record in ``data``, which the others' follow."""

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
        """Which take part [m] (bool)."""
        return np.ones(len(self), dtype=bool) if self.signed else self.coins


@dataclass(frozen=True)
class Directions(Canaries):
    """``coordinates`` [m]: the v of each."""

    coordinates: np.ndarray

    @property
    def signs(self) -> np.ndarray:
        """By what a canary multiplies its direction: 0 where it is not there [m]."""
        return np.where(self.coins, 1.0, -1.0) if self.signed else self.coins.astype(float)


def homes_of(data: FederatedData, count: int, unit: str) -> np.ndarray:
    """The clients of so many canaries [count], ascending: records are spread evenly over the clients;
    clients come after those that there are."""
    if unit == "record":
        return np.sort(np.arange(count) % data.client_count)
    return data.client_count + np.arange(count)


def coins_of(count: int, seed: int) -> np.ndarray:
    """Fair ones [count] (bool)."""
    return numpy_stream(seed, "canary_coins").random(count) < 0.5


def with_records(
    data: FederatedData, records: Records, homes: np.ndarray, copies: int | None = None
) -> FederatedData:
    """``data`` with ``records`` behind the others. The first of them, a record for each of ``homes`` [m], are
    added to these clients; or are new clients, each with so many ``copies`` of its record."""
    numbers = len(data.train) + np.arange(len(homes))
    clients = [own.copy() for own in data.clients]
    if copies is None:
        clients = [np.concatenate([own, numbers[homes == k]]) for k, own in enumerate(clients)]
    else:
        clients += [np.full(copies, number) for number in numbers]
    parts = (data.train, records)
    joined = Records(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )
    return replace(data, train=joined, clients=clients)


def make_canaries(
    data: FederatedData, *, count: int, unit: str, neighbours: str, size: int, seed: int
) -> Directions:
    """``count`` canaries in ``data``, for a model of ``size`` weights. ``seed``: of coins and directions.

    Raises ArgumentError where there are more canaries of one upload than weights.
    """
    homes = homes_of(data, count, unit)
    most = most_canaries(data, unit, size)
    if count > most:
        raise ArgumentError("canaries", count, f"<= {most}, for the model has {size} weights")
    stream = numpy_stream(seed, "canary_directions")
    apart = np.zeros(count, dtype=np.int64)  # canaries that must not share a direction
    if count > size:
        apart = homes
    coordinates = np.empty(count, dtype=np.int64)
    for group in np.unique(apart):
        own = np.flatnonzero(apart == group)
        coordinates[own] = stream.permutation(size)[: len(own)]
    return Directions(
        unit=unit,
        signed=neighbours == REPLACE_ONE,
        homes=homes,
        coins=coins_of(count, seed),
        data=_extended(data, homes, unit),
        first=len(data.train),
        coordinates=coordinates,
    )


def most_canaries(data: FederatedData, unit: str, size: int) -> int:
    """How many there is room for: two of one upload share no weight."""
    return size * data.client_count if unit == "record" else size


def _extended(data: FederatedData, homes: np.ndarray, unit: str) -> FederatedData:
    """``data`` with a record of each canary, which stands for what it sends: marked, so that the engine finds
    it, or the only one of a client, which has a loss like any other."""
    if unit == "record":
        return with_records(data, _marked(_blank(data.train, len(homes))), homes)
    return with_records(data, _blank(data.train, len(homes)), homes, copies=1)


def _blank(train: Records, count: int) -> Records:
    """Records of zeros, with the first record's target."""
    inputs = torch.zeros_like(train.inputs[:1]).repeat(count, *[1] * (train.inputs.dim() - 1))
    targets = train.targets[:1].repeat(count, *[1] * (train.targets.dim() - 1))
    return Records(inputs, targets)


def _marked(blank: Records) -> Records:
    """Each with a number of its own in the first place of its input."""
    inputs = blank.inputs
    marks, count = torch.arange(len(inputs), device=inputs.device), len(inputs)
    first = inputs.view(count, -1)
    if inputs.dtype.is_floating_point:
        first[:, 0] = (-_MARK * (1.0 + marks.double() * _STEP)).to(inputs.dtype)
    else:
        first[:, 0] = -_TOKEN_MARK - marks
    return blank


def marked(inputs: Tensor) -> Tensor:
    """The number of the canary of each record [n], -1 for a record that is none."""
    first = inputs.flatten(1)[:, 0]
    if inputs.dtype.is_floating_point:
        found = ((first.double() / -_MARK - 1.0) / _STEP).round()
        return torch.where(first <= -_MARK / 2, found, -1.0).long()
    return torch.where(first <= -_TOKEN_MARK, -_TOKEN_MARK - first, -1)


class PlantedCanaries:
    """Canaries at work in a run: which of them take part. What they send is for others to say."""

    def __init__(self, canaries: Canaries):
        self.canaries = canaries
        self.attackers = np.zeros(0, dtype=int)
        self.toss(canaries.coins)

    def toss(self, coins: np.ndarray) -> None:
        """Let them have these coins [m] (bool) from now on."""
        self.canaries = canaries = replace(self.canaries, coins=coins)
        absent = ~canaries.present
        self._absent_records = canaries.first + np.flatnonzero(absent)
        self._absent_clients = canaries.homes[absent]

    def join(self, context: RunContext) -> None:
        """Take part in a run on their ``data``."""
        context.canaries = self

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """The cohort without the canaries that are not there."""
        if self.canaries.unit == "record":
            return cohort
        return np.setdiff1d(cohort, self._absent_clients)

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """A client's records without the canaries that are not there."""
        own = self.canaries.data.clients[client]
        if self.canaries.unit == "client" or not len(self._absent_records):
            return own
        return own[~np.isin(own, self._absent_records)]

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """What ``clients`` [c] send [c, d]: what they would anyway."""
        return uploads


class PlantedDirections(PlantedCanaries):
    """Those of one direction, and what they send."""

    canaries: Directions
    silent = False

    def join(self, context: RunContext) -> None:
        super().join(context)
        if self.canaries.unit == "record":
            context.engine = _EngineWithCanaries(context.engine, self)
        else:
            self.attackers = self.canaries.homes

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Their gradients are zero for a while: what is left is everybody else's."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """What the canaries among ``clients`` [c] send [c, d]; the others' rows stay as they are."""
        numbers = np.searchsorted(self.canaries.homes, clients)
        rows = np.flatnonzero(np.isin(clients, self.canaries.homes))
        if not len(rows):
            return uploads
        sent = uploads.clone()
        sent[torch.from_numpy(rows)] = 0.0
        if not self.silent:
            own = numbers[rows]
            length = sent.new_tensor(LENGTH * self.canaries.signs[own])
            sent[torch.from_numpy(rows), torch.from_numpy(self.canaries.coordinates[own])] = length
        return sent


class _EngineWithCanaries:
    """An engine for records some of which are canaries. Its name makes models with weights of their own go
    through it one by one."""

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
        """See :meth:`fedpriv.engine.interface.Engine.clipped_sums`."""
        assert isinstance(inputs, Tensor)  # canaries in sums, and those that are moved, are refused
        assert isinstance(targets, Tensor)
        number = marked(inputs)
        if not bool((number >= 0).any()):
            return self._engine.clipped_sums(inputs, targets, client_of_record, clients, factors)
        theirs, others = (number >= 0).nonzero()[:, 0], (number < 0).nonzero()[:, 0]
        there = client_of_record.device
        found = self._engine.clipped_sums(
            inputs[others], targets[others], client_of_record[others.to(there)], clients, factors
        )
        owners = client_of_record.to(found.sums.device)[theirs]
        numbers = number[theirs]
        signs = torch.from_numpy(self._planted.canaries.signs).to(found.sums)
        lengths = LENGTH * signs[numbers]
        norms = torch.full_like(lengths, LENGTH, dtype=found.losses.dtype)
        scale = torch.ones_like(norms) if factors is None else factors(norms, owners)
        if not self._planted.silent:
            places = (owners, self._coordinates.to(found.sums.device)[numbers])
            found.sums.index_put_(places, lengths * scale.to(lengths), accumulate=True)

        def merged(values: Tensor, own: Tensor) -> Tensor:
            joined = values.new_zeros(len(inputs), dtype=values.dtype)
            joined[others], joined[theirs] = values, own.to(values.dtype)
            return joined

        return ClippedSums(
            sums=found.sums,
            norms=found.norms if factors is None else merged(found.norms, norms),
            losses=merged(found.losses, torch.zeros_like(norms)),
            finite=merged(found.finite, torch.ones_like(norms)),
        )
