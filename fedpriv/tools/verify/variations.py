"""The variations of one unit, such as huge, NaN, a copy, cancelling the rest, or absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData, with_train
from fedpriv.data.records import Records
from fedpriv.privacy.core.names import REPLACE_ONE, ZERO_OUT
from fedpriv.tools.verify.interventions import Craft, Variation
from fedpriv.tools.verify.subject import Subject

ABSENT = "absent"
_HUGE = 1e4  # factor of inputs
_UPLOAD = 1e6  # factor of uploads
_BUCKETS = 4  # most other buckets that are tried
_LAYERS = 24  # most layers that are huge one by one


def adversarial(subject: Subject, neighbours: str) -> list[Variation]:
    """Return every variation of the unit.

    At client level they also include crafted uploads. The unit's absence is among them where it can be absent
    and ``neighbours`` do not replace a unit.

    Args:
        subject: The run that is verified, with its unit.
        neighbours: Name of the adjacency.
    """
    variations = [_of_data(subject, name, change) for name, change in _changes(subject).items()]
    if not subject.per_record:
        client = subject.unit_client
        variations += [
            Variation(f"upload {name}", upload=(client, craft))
            for name, craft in _uploads(subject).items()
        ]
    rule = subject.parts.aggregation
    buckets = None if rule is None else rule.buckets
    # A client's bucket is no part of a record, so neighbours that differ in a record agree on it.
    if not subject.per_record and buckets is not None:
        others = range(1, min(buckets, _BUCKETS + 1))
        moves = {
            "in another bucket" + f", {i} on" * (i > 1): (subject.unit_client, i) for i in others
        }
        variations += [Variation(name, moved=move) for name, move in moves.items()]
        if "huge" in (changes := _changes(subject)):
            huge = _of_data(subject, "huge", changes["huge"])
            variations += [
                replace(huge, name=f"huge, {name}", moved=m) for name, m in moves.items()
            ]
    if neighbours != REPLACE_ONE and (absence := absent(subject, neighbours)) is not None:
        variations.append(absence)
    return variations


def absent(subject: Subject, neighbours: str) -> Variation | None:
    """Return the absence of the unit; None where it cannot be absent.

    Under zero-out adjacency a client takes part and contributes zeros. Under other adjacencies, a client
    cannot be absent if an observer sees that it takes part.
    """
    client, record = subject.unit_client, subject.unit_record
    if not subject.per_record:
        if neighbours == ZERO_OUT:
            return Variation(ABSENT, silent=client)
        return Variation(ABSENT, absent=client) if subject.secret_cohort else None

    def without(data: FederatedData) -> FederatedData:
        return _with_records(data, client, Without.of(data.clients[client], record))

    return Variation(ABSENT, data=without)


class Without(np.ndarray):
    """The record indices of a client, of which one is missing.

    The place of the missing record stays, so that all other records are sampled as before. A sample that has
    the place lacks the record.

    Attributes:
        missing: Index of the missing record.
    """

    missing: int

    @classmethod
    def of(cls, records: np.ndarray, missing: int) -> Without:
        """Return a copy of the indices without one record."""
        result = records.copy().view(cls)
        result.missing = missing
        return result

    def __array_finalize__(self, source: object) -> None:
        self.missing = getattr(source, "missing", -1)

    def __getitem__(self, places: Any) -> np.ndarray:
        records = np.asarray(self)[places]
        return records[records != self.missing] if np.ndim(records) else records


class _OtherRecords(ClientRecords):
    """Clients of which one is read with other records. Its number of records stays as it was.

    Args:
        clients: The clients.
        client: Number of the client that is read otherwise.
        records: Indices that are read of it.
    """

    def __init__(self, clients: ClientRecords, client: int, records: np.ndarray):
        super().__init__(clients.indices, clients.offsets)
        self._client, self._records = client, records

    def __getitem__(self, client: Any) -> Any:
        if not isinstance(client, slice) and client == self._client:
            return self._records
        return super().__getitem__(client)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[client] for client in range(len(self)))


def _with_records(data: FederatedData, client: int, records: np.ndarray) -> FederatedData:
    """Return data in which a client has other records, with the same numbers of records per client.

    These numbers are public, because denominators follow from them. So they must not depend on the unit.
    """
    return replace(data, clients=_OtherRecords(data.clients, client, records))


def empty(subject: Subject, adds_or_removes: bool) -> Variation | None:
    """Return the variation in which no unit is sampled; None where that cannot happen."""
    if not adds_or_removes:
        return None
    if not subject.per_record:
        return Variation("nobody sampled", nobody=True) if subject.secret_cohort else None

    def without(data: FederatedData) -> FederatedData:
        client = subject.unit_client
        return _with_records(data, client, data.clients[client][:0])

    return Variation("an empty lot", data=without)


def everything(subject: Subject) -> Variation:
    """Return the variation that replaces all training records.

    Each becomes another record, numbers negated, with another label.
    """

    def other(data: FederatedData) -> FederatedData:
        inputs, targets = data.train.inputs.flip(0), data.train.targets.flip(0)
        if inputs.is_floating_point():
            inputs = -inputs
        return with_train(data, Records(inputs, _other_label(targets, data.classes)))

    return Variation("all records", data=other)


Change = Callable[[Tensor, Tensor, FederatedData], tuple[Tensor, Tensor]]
"""Function (inputs, targets, data) -> new inputs and targets of the unit's records."""


def _of_data(subject: Subject, name: str, change: Change) -> Variation:
    """Return the variation that changes the records of the unit."""

    def places_of(data: FederatedData) -> Tensor:
        records = np.array([subject.unit_record])
        if not subject.per_record:
            records = data.clients[subject.unit_client]
        return torch.from_numpy(records).to(data.train.targets.device)

    def write(train: Records, data: FederatedData) -> None:
        places = places_of(data)
        train.inputs[places], train.targets[places] = change(
            train.inputs[places], train.targets[places], data
        )

    def changed(data: FederatedData) -> FederatedData:
        train = Records(data.train.inputs.clone(), data.train.targets.clone())
        write(train, data)
        return with_train(data, train)

    @contextmanager
    def within(data: FederatedData) -> Iterator[None]:
        places = places_of(data)
        inputs, targets = data.train.inputs[places], data.train.targets[places]
        try:
            write(data.train, data)
            yield
        finally:
            data.train.inputs[places], data.train.targets[places] = inputs, targets

    return Variation(name, data=changed, within=within)


def _changes(subject: Subject) -> dict[str, Change]:
    """Return the changes of the unit's records, by name."""

    def copied(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
        """Return records of the next client; where the unit is a record, one of the same client."""
        other = data.clients[(subject.unit_client + (not subject.per_record)) % data.client_count]
        index = torch.from_numpy(np.resize(other, len(targets))).to(targets.device)
        return data.train.inputs[index], data.train.targets[index]

    def filled(value: float) -> Change:
        def fill(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
            return torch.full_like(inputs, value), targets

        return fill

    def cancelling(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
        """Return minus the sum of the client's records, with their most frequent label."""
        records = torch.from_numpy(data.clients[subject.unit_client]).to(targets.device)
        total = -data.train.inputs[records].sum(0, keepdim=True)
        label = data.train.targets[records].mode(0).values
        return total.expand_as(inputs), label.expand_as(targets)

    # Tokens cannot be scaled or be infinite.
    if not subject.context.data.train.inputs.is_floating_point():
        return {"other tokens": _other_tokens, "empty": filled(0), "duplicated": copied}
    return {
        "huge": lambda x, y, data: (_HUGE * x + 100.0, _other_label(y, data.classes)),
        "huge, negated": lambda x, y, data: (-_HUGE * x - 100.0, _other_label(y, data.classes)),
        "large": lambda x, y, data: (100.0 * x, _other_label(y, data.classes, data.classes // 2)),
        "mislabelled": lambda x, y, data: (x, _other_label(y, data.classes)),
        "beyond float32": filled(3e38),
        "not a number": filled(float("nan")),
        "infinite": filled(float("inf")),
        "zeros": filled(0.0),
        "cancelling the rest": cancelling,
        "duplicated": copied,
    }


def _other_label(targets: Tensor, classes: int, further: int = 1) -> Tensor:
    if targets.ndim == 1:
        return (targets + max(1, further)) % classes
    return torch.where(targets > 0, targets % (classes - 1) + 1, targets)  # 0 is padding


def _other_tokens(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
    most = int(data.train.inputs.max())
    others = torch.where(inputs > 0, inputs % max(1, most) + 1, inputs).clamp(max=most)
    return others, _other_label(targets, data.classes)


def _uploads(subject: Subject) -> dict[str, Craft]:
    """Return the uploads that a malicious client may send, by name. The server's clip must bound them all."""

    def in_layer(layer: slice) -> Craft:
        def craft(uploads: Tensor, row: int) -> Tensor:
            upload = torch.zeros_like(uploads[row])
            upload[layer] = _UPLOAD
            return upload

        return craft

    def others(uploads: Tensor, row: int) -> Tensor:
        return uploads.sum(0) - uploads[row]

    crafts: dict[str, Craft] = {
        "huge": lambda uploads, row: _UPLOAD * (uploads[row] + 1e-3),
        "huge, negated": lambda uploads, row: -_UPLOAD * (uploads[row] + 1e-3),
        "not a number": lambda uploads, row: torch.full_like(uploads[row], float("nan")),
        "infinite": lambda uploads, row: torch.full_like(uploads[row], float("inf")),
        "cancelling the rest": lambda uploads, row: -others(uploads, row),
        "duplicated": lambda uploads, row: uploads[(row + 1) % len(uploads)],
    }
    layers = subject.layers()[:_LAYERS]
    return crafts | {f"huge in {name}": in_layer(layer) for name, layer in layers}
