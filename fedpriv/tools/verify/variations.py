"""The replacements of one unit: huge, not a number, cancelling the rest, a copy, absent, in one layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.core.names import REPLACE_ONE, ZERO_OUT
from fedpriv.tools.verify.interventions import Craft, Variation
from fedpriv.tools.verify.subject import Subject

ABSENT = "absent"
_HUGE = 1e4
_UPLOAD = 1e6
_LAYERS = 24


def adversarial(subject: Subject, neighbours: str) -> list[Variation]:
    """Return every way in which the unit is replaced, and its absence, unless ``neighbours`` replace one."""
    found = [_of_data(subject, name, change) for name, change in _changes(subject).items()]
    if not subject.per_record:
        client = subject.unit_client
        found += [
            Variation(f"upload {name}", upload=(client, craft))
            for name, craft in _uploads(subject).items()
        ]
    if neighbours != REPLACE_ONE and (gone := absent(subject, neighbours)) is not None:
        found.append(gone)
    return found


def absent(subject: Subject, neighbours: str) -> Variation | None:
    """Leave the unit out. Under zero-out adjacency a client takes part and contributes zeros; else one
    that is seen to take part cannot be absent."""
    client, record = subject.unit_client, subject.unit_record
    if not subject.per_record:
        if neighbours == ZERO_OUT:
            return Variation(ABSENT, silent=client)
        return Variation(ABSENT, absent=client) if subject.secret_cohort else None

    def without(data: FederatedData) -> FederatedData:
        return _with_clients(data, client, Without.of(data.clients[client], record))

    return Variation(ABSENT, data=without)


class Without(np.ndarray):
    """Records of a client of which one is not there: whoever it would be sampled among, its place stays, so
    that all others are sampled as before. What is sampled of them lacks it."""

    missing: int

    @classmethod
    def of(cls, records: np.ndarray, missing: int) -> Without:
        made = records.copy().view(cls)
        made.missing = missing
        return made

    def __array_finalize__(self, source: object) -> None:
        self.missing = getattr(source, "missing", -1)

    def __getitem__(self, places: Any) -> np.ndarray:
        found = np.asarray(self)[places]
        return found[found != self.missing] if np.ndim(found) else found


def _with_clients(data: FederatedData, client: int, records: np.ndarray) -> FederatedData:
    clients = list(data.clients)
    clients[client] = records
    made = replace(data, clients=clients)
    made.__dict__["records_per_client"] = data.records_per_client  # public, as its denominator is
    return made


def empty(subject: Subject, adds_or_removes: bool) -> Variation | None:
    """Let nothing be sampled; None where that cannot happen."""
    if not adds_or_removes:
        return None
    if not subject.per_record:
        return Variation("nobody sampled", nobody=True) if subject.secret_cohort else None

    def without(data: FederatedData) -> FederatedData:
        own = data.clients[subject.unit_client]
        return _with_clients(data, subject.unit_client, own[:0])

    return Variation("an empty lot", data=without)


def everything(subject: Subject) -> Variation:
    """Replace all training records."""

    def other(data: FederatedData) -> FederatedData:
        inputs, targets = data.train.inputs.flip(0), data.train.targets.flip(0)
        if inputs.is_floating_point():
            inputs = -inputs
        return _with(data, Records(inputs, _other_label(targets, data.classes)))

    return Variation("all records", data=other)


Change = Callable[[Tensor, Tensor, FederatedData], tuple[Tensor, Tensor]]


def _of_data(subject: Subject, name: str, change: Change) -> Variation:
    def places_of(data: FederatedData) -> Tensor:
        own = np.array([subject.unit_record])
        if not subject.per_record:
            own = data.clients[subject.unit_client]
        return torch.from_numpy(own).to(data.train.targets.device)

    def write(train: Records, data: FederatedData) -> None:
        places = places_of(data)
        train.inputs[places], train.targets[places] = change(
            train.inputs[places], train.targets[places], data
        )

    def changed(data: FederatedData) -> FederatedData:
        train = Records(data.train.inputs.clone(), data.train.targets.clone())
        write(train, data)
        return _with(data, train)

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


def _with(data: FederatedData, train: Records) -> FederatedData:
    made = replace(data, train=train)
    made.__dict__["records_per_client"] = data.records_per_client
    return made


def _changes(subject: Subject) -> dict[str, Change]:
    """Return maps from (inputs, targets) of the unit's records to what they become."""

    def copied(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
        other = data.clients[(subject.unit_client + (not subject.per_record)) % data.client_count]
        place = torch.from_numpy(np.resize(other, len(targets))).to(targets.device)
        return data.train.inputs[place], data.train.targets[place]

    def filled(value: float) -> Change:
        def fill(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
            return torch.full_like(inputs, value), targets

        return fill

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
        "cancelling the rest": _cancelling(subject),
        "duplicated": copied,
    }


def _cancelling(subject: Subject) -> Change:
    """Return minus the sum of the client's records, labelled as most of them are."""

    def cancel(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
        own = torch.from_numpy(data.clients[subject.unit_client]).to(targets.device)
        total = -data.train.inputs[own].sum(0, keepdim=True)
        label = data.train.targets[own].mode(0).values
        return total.expand_as(inputs), label.expand_as(targets)

    return cancel


def _other_label(targets: Tensor, classes: int, further: int = 1) -> Tensor:
    if targets.ndim == 1:
        return (targets + max(1, further)) % classes
    return torch.where(targets > 0, targets % (classes - 1) + 1, targets)  # 0: no token


def _other_tokens(inputs: Tensor, targets: Tensor, data: FederatedData) -> tuple[Tensor, Tensor]:
    most = int(data.train.inputs.max())
    others = torch.where(inputs > 0, inputs % max(1, most) + 1, inputs).clamp(max=most)
    return others, _other_label(targets, data.classes)


def _uploads(subject: Subject) -> dict[str, Craft]:
    """Return what a malicious client may send instead of its upload; the server's clip meets all of it."""

    def in_layer(place: slice) -> Craft:
        def craft(uploads: Tensor, row: int) -> Tensor:
            made = torch.zeros_like(uploads[row])
            made[place] = _UPLOAD
            return made

        return craft

    def others(uploads: Tensor, row: int) -> Tensor:
        return uploads.sum(0) - uploads[row]

    found: dict[str, Craft] = {
        "huge": lambda uploads, row: _UPLOAD * (uploads[row] + 1e-3),
        "huge, negated": lambda uploads, row: -_UPLOAD * (uploads[row] + 1e-3),
        "not a number": lambda uploads, row: torch.full_like(uploads[row], float("nan")),
        "infinite": lambda uploads, row: torch.full_like(uploads[row], float("inf")),
        "cancelling the rest": lambda uploads, row: -others(uploads, row),
        "duplicated": lambda uploads, row: uploads[(row + 1) % len(uploads)],
    }
    layers = subject.layers()
    found |= {f"huge in {name}": in_layer(place) for name, place in layers[:_LAYERS]}
    return found
