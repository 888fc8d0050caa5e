"""Properties of a client's data that have nothing to do with the task.

A property is a number of each client. The clients above the median have the property. ``writer`` and a file
of zeros and ones say directly which clients have it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.data.mnist import Mnist
from fedpriv.data.partitions import Natural
from fedpriv.tools.audit.request import parse_property
from fedpriv.tools.audit.subject import AuditedRun

FEWEST = 10  # clients with the property, and without it
_ALIKE = 1e-6  # relative difference that rounding makes of equal numbers
STUDENTS = range(2100, 2600)
"""Writers of NIST's partition hsf_4: high school students. The others are census employees."""


@dataclass(frozen=True)
class ClientProperty:
    """A property of the clients of a run.

    Attributes:
        choice: The choice, as in ``--property``.
        meaning: The meaning of "has the property", in words.
        value: The number of each client [K]; nan if it is not known.
        has: 1 for a client with the property, 0 for one without, -1 if not known [K].
    """

    choice: str
    meaning: str
    value: np.ndarray
    has: np.ndarray

    @property
    def clients(self) -> np.ndarray:
        """Numbers of the clients whose property is known, ascending."""
        return np.flatnonzero(self.has >= 0)


def read_property(subject: AuditedRun, choice: str) -> ClientProperty:
    """Return a property of every honest client.

    Args:
        subject: The run.
        choice: The choice, as in ``--property``.

    Raises:
        ConfigError: The data do not have the property, or too few clients have it or lack it.
    """
    name, argument = parse_property(choice)
    meaning, value = _READERS[name](subject, argument)
    if subject.context.attack is not None:
        value[subject.context.attack.attackers] = math.nan  # attackers train on other records
    known = np.isfinite(value)
    if not known.any():
        raise ConfigError(f"the property {choice} is known of no client")
    if np.ptp(value[known]) <= _ALIKE * (1.0 + np.abs(value[known]).max()):
        clients_alike = (
            "every client" if known.all() else f"all of the {known.sum()} clients it is known of"
        )
        explanation = "; its records are standardised one by one" if name == "intensity" else ""
        raise ConfigError(
            f"the property {choice} ({meaning}) is the same for {clients_alike}{explanation}"
        )
    if set(np.unique(value[known])) == {0.0, 1.0}:
        above = value > 0.5
    else:
        median = float(np.median(value[known]))
        above, meaning = value > median, f"{meaning} above {median:.4g}, the median of the clients"
    has = np.where(known, above.astype(int), -1)
    with_it, without = int((has == 1).sum()), int((has == 0).sum())
    if min(with_it, without) < FEWEST:
        raise ConfigError(
            f"the property {choice} ({meaning}): {with_it} clients have it and {without} do not, where an "
            f"attack needs {FEWEST} of each to learn from and to be judged by"
        )
    return ClientProperty(choice, meaning, value, has)


def _intensity(subject: AuditedRun, _: str) -> tuple[str, np.ndarray]:
    inputs = subject.context.data.train.inputs
    if not inputs.is_floating_point():
        raise ConfigError(
            "the property intensity is a mean of inputs, and these are tokens; take length"
        )
    return "mean input", _mean_of_records(subject, inputs.flatten(1).mean(1))


def _length(subject: AuditedRun, _: str) -> tuple[str, np.ndarray]:
    inputs = subject.context.data.train.inputs
    if inputs.is_floating_point():
        raise ConfigError("the property length counts tokens, and these inputs are numbers")
    return "mean number of tokens", _mean_of_records(subject, (inputs.flatten(1) != 0).sum(1))


def _label(subject: AuditedRun, argument: str) -> tuple[str, np.ndarray]:
    data, label = subject.context.data, int(argument)
    if data.labels_per_client is None:
        raise ConfigError(
            "the property label needs one label for each record; this is a language model"
        )
    if label >= data.classes:
        raise ConfigError("--property", f"label:{label}", f"a label from 0 to {data.classes - 1}")
    return f"share of label {label}", data.labels_per_client[:, label] / np.maximum(
        data.clients.sizes, 1
    )


def _writer(subject: AuditedRun, _: str) -> tuple[str, np.ndarray]:
    parts = subject.parts
    dataset = parts.dataset.without_features()
    if not (isinstance(dataset, Mnist) and isinstance(parts.partition, Natural)):
        raise ConfigError(
            "the property writer needs one writer for each client: dataset=mnist partition=natural"
        )
    makers = dataset.load().client_ids
    assert makers is not None  # a natural partition needs the writer of each record
    numbers = subject.context.data.numbers
    makers = makers if numbers is None else makers[numbers]
    clients = subject.context.data.clients
    writers = makers[clients.indices[clients.offsets[:-1]]]
    student = (writers >= STUDENTS.start) & (writers < STUDENTS.stop)
    return "writer a student (NIST hsf_4), not a census employee", student.astype(float)


def _file(subject: AuditedRun, argument: str) -> tuple[str, np.ndarray]:
    """Read rows ``client,value``; a header is skipped, and clients that are missing are not audited."""
    clients = subject.context.data.client_count
    value = np.full(clients, math.nan)
    try:
        with open(argument, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("--property", f"file:{argument}", f"a readable CSV ({reason})") from None
    for line, row in enumerate(rows, start=1):
        try:
            client, number = int(row[0]), float(row[1])
        except (ValueError, IndexError):
            if line == 1:
                continue
            raise ConfigError(
                f"{argument}, row {line}", ",".join(row), "client,value, both of them numbers"
            ) from None
        if not (0 <= client < clients and math.isfinite(number)):
            allowed = f"a client from 0 to {clients - 1} and a finite value"
            raise ConfigError(f"{argument}, row {line}", ",".join(row), allowed)
        value[client] = number
    return f"value in {Path(argument).name}", value


def _mean_of_records(subject: AuditedRun, of_record: torch.Tensor) -> np.ndarray:
    """Return each client's mean [K] of a number of each training record."""
    values = of_record.double().cpu().numpy()
    return np.array([values[records].mean() for records in subject.context.data.clients])


_READERS: dict[str, Callable[[AuditedRun, str], tuple[str, np.ndarray]]] = {
    "intensity": _intensity,
    "length": _length,
    "label": _label,
    "writer": _writer,
    "file": _file,
}
