"""Members and non-members of a run, and what a model says of each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedpriv.audit.subject import Subject
from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.partitions import Natural
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel
from fedpriv.engine.interface import Engine

FEWEST = 20  # of each: fewer say nothing
_NUMBERS_AT_ONCE = 20_000_000  # of per-record gradients held at a time
_RECORDS_AT_ONCE = 250


@dataclass(frozen=True)
class Candidates:
    """As many members as non-members, members first in ``records``; ``warnings``: why an attack may find
    something other than membership."""

    records: Records
    is_member: np.ndarray
    nonmembers: str
    warnings: list[str] = field(default_factory=list)

    @property
    def each(self) -> int:
        return len(self.is_member) // 2

    def split(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(scores of the members, of the non-members)."""
        return scores[self.is_member], scores[~self.is_member]


def choose(subject: Subject, nonmembers: str, most: int, seed: int) -> Candidates:
    """Draw at most ``most`` of each. Raises ConfigError where there are too few."""
    data = subject.problem.data
    inside = np.concatenate(_of_participants(subject))
    if nonmembers == "test":
        source, outside = data.test, np.arange(len(data.test))
    else:
        source, attack = data.train, subject.problem.attack
        own = np.arange(len(data.train)) if attack is None else attack.untouched
        outside = np.setdiff1d(own, np.concatenate(data.clients))
    each = min(most, len(inside), len(outside))
    if each < FEWEST:
        few = f"{len(inside)} members and {len(outside)} non-members ({nonmembers})"
        hint = ""
        if nonmembers == "held_out" and not len(outside):
            hint = (
                "its clients hold every training record: take --nonmembers test, or a run with "
                "partition=fixed_size"
            )
        raise ConfigError(
            f"{subject.folder.path} has {few}, where an audit needs {FEWEST} of each", hint=hint
        )

    def drawn(indices: np.ndarray, name: str) -> np.ndarray:
        stream = numpy_stream(seed, f"audit_{name}")
        return np.sort(stream.choice(indices, each, replace=False))

    members = data.train.subset(drawn(inside, "members"))
    others = source.subset(drawn(outside, "nonmembers"))
    records = Records(
        torch.cat([members.inputs, others.inputs]), torch.cat([members.targets, others.targets])
    )
    return Candidates(records, np.arange(2 * each) < each, nonmembers, _warnings(subject))


def _of_participants(subject: Subject) -> list[np.ndarray]:
    """The records of honest clients that took part in a round (of all where that is not known)."""
    clients, came = subject.problem.data.clients, subject.took_part()
    chosen = np.arange(len(clients)) if came is None else came
    if subject.problem.attack is not None:
        chosen = np.setdiff1d(chosen, subject.problem.attack.attackers)
    return [np.empty(0, dtype=np.int64), *(clients[k] for k in chosen)]


def _warnings(subject: Subject) -> list[str]:
    if not isinstance(subject.parts.partition, Natural):
        return []
    return [
        "A client holds the records of one user, and others may have made the non-members: an attack may "
        "tell users apart where it seems to tell members."
    ]


@torch.inference_mode()
def losses(model: FlatModel, weights: Tensor, records: Records) -> np.ndarray:
    """ℓ of each record at ``weights`` [n]; the model's own weights are set to them.

    In double precision: in single precision the losses of confident predictions are 0, all alike.
    """
    model.set(weights)
    found = [model.loss(model(x).double(), y) for x, y in _batches(records, _RECORDS_AT_ONCE)]
    return _finite(torch.cat(found))


def gradients(
    model: FlatModel, engine: Engine, weights: Tensor, records: Records
) -> Iterator[Tensor]:
    """Gradients [b, d] of batches of records: each is a client of its own to the engine."""
    model.set(weights)
    at_once = max(1, min(_RECORDS_AT_ONCE, _NUMBERS_AT_ONCE // model.size))
    for inputs, targets in _batches(records, at_once):
        alone = torch.arange(len(targets))
        result = engine.clipped_sums(
            inputs, targets, alone, len(targets), lambda norms, _: torch.ones_like(norms)
        )
        yield result.sums


def _batches(records: Records, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(records.inputs.split(size), records.targets.split(size), strict=True)


def _finite(values: Tensor) -> np.ndarray:
    """As float64; a loss that is not finite counts as very large."""
    return np.nan_to_num(values.double().cpu().numpy(), nan=1e30, posinf=1e30, neginf=-1e30)
