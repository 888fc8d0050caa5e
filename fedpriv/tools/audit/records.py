"""Members and non-members of a run, and what a model says of each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.attackers import Attackers
from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.names import HELD_OUT
from fedpriv.data.partitions import Natural
from fedpriv.data.records import Records
from fedpriv.data.shadow import outside as others_of
from fedpriv.data.shadow import records_at
from fedpriv.engine import FlatModel, cross_entropy
from fedpriv.engine.interface import Engine
from fedpriv.tools.audit.subject import AuditedRun

FEWEST = 20  # members and non-members each; results of fewer mean nothing
_NUMBERS_AT_ONCE = 20_000_000  # numbers of per-record gradients in memory at a time
_RECORDS_AT_ONCE = 250
_LEAST_LOSS = 1e-12


@dataclass(frozen=True)
class Candidates:
    """Members and as many non-members of a run.

    Attributes:
        records: The records, members first.
        is_member: Mask of the members [n] (bool).
        numbers: Numbers of the records among all records (see :mod:`fedpriv.data.shadow`).
        nonmembers: Where the non-members are from, as in ``--nonmembers``.
        warnings: Reasons why an attack may find something other than membership.
    """

    records: Records
    is_member: np.ndarray
    numbers: np.ndarray
    nonmembers: str
    warnings: list[str] = field(default_factory=list)

    @property
    def each(self) -> int:
        """The number of members, and of non-members."""
        return len(self.is_member) // 2

    def split(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the members and the scores of the non-members."""
        return scores[self.is_member], scores[~self.is_member]


def choose(
    subject: AuditedRun, nonmembers: str, most: int, seed: int, pool: np.ndarray | None = None
) -> Candidates:
    """Draw members and non-members of a run.

    Members come from the honest clients that took part in a round, or from all honest clients if the run did
    not write down who took part.

    Args:
        subject: The run.
        nonmembers: Where non-members come from, as in ``--nonmembers``.
        most: Largest number of each.
        seed: Seed of the draw.
        pool: Numbers of the records to draw non-members from; None for all that ``nonmembers`` names.

    Raises:
        ConfigError: There are too few records, or the run is itself a shadow run.
    """
    data = subject.context.data
    if subject.parts.settings.shadow is not None:
        raise ConfigError(
            f"{subject.run.path} is a shadow run, part of an audit of another run: audit that one"
        )
    clients, participants = data.clients, subject.took_part()
    if participants is None:
        participants = np.arange(len(clients))
    if subject.context.attack is not None:
        participants = np.setdiff1d(participants, subject.context.attack.attackers)
    inside = clients.together(participants)
    outside = others_of(data, nonmembers) if pool is None else pool
    if nonmembers == HELD_OUT and subject.context.attack is not None:
        attack = cast("Attackers", subject.context.attack)
        outside = np.intersect1d(outside, attack.untouched)
    each = min(most, len(inside), len(outside))
    if each < FEWEST:
        counts = f"{len(inside)} members and {len(outside)} non-members ({nonmembers})"
        hint = ""
        if nonmembers == HELD_OUT and not len(outside):
            hint = (
                "its clients hold every training record: take --nonmembers test, or a run with "
                "partition=fixed_size"
            )
        raise ConfigError(
            f"{subject.run.path} has {counts}, where an audit needs {FEWEST} of each", hint=hint
        )

    def drawn(indices: np.ndarray, name: str) -> np.ndarray:
        stream = numpy_stream(seed, f"audit_{name}")
        return np.sort(stream.choice(indices, each, replace=False))

    numbers = np.concatenate([drawn(inside, "members"), drawn(outside, "nonmembers")])
    candidates = Candidates(
        records_at(data, numbers), np.arange(2 * each) < each, numbers, nonmembers
    )
    if isinstance(subject.parts.partition, Natural):
        candidates.warnings.append(
            "A client holds the records of one user, and others may have made the non-members: an attack "
            "may tell users apart where it seems to tell members."
        )
    return candidates


@torch.inference_mode()
def losses(model: FlatModel, weights: Tensor, records: Records) -> np.ndarray:
    """Return the loss ℓ of each record. The model keeps the given weights afterwards.

    Args:
        model: The model.
        weights: The weights to set [d].
        records: The records [n].

    Returns:
        Losses [n], ±1e30 for those that are not finite.
    """
    model.set(weights)
    return _finite(model.losses(records.inputs, records.targets))


@torch.inference_mode()
def log_odds(model: FlatModel, weights: Tensor, records: Records) -> np.ndarray:
    """Return φ = log p/(1 - p) of each record, for the probability p of its label.

    A model with a loss ℓ of its own has p = e^-ℓ. The model keeps the given weights afterwards.

    Args:
        model: The model.
        weights: The weights to set [d].
        records: The records [n].

    Returns:
        φ [n], ±1e30 where it is not finite.
    """
    model.set(weights)
    phis = []
    for inputs, targets in _batches(records, 1000):
        outputs = model(inputs).double()
        if model.loss is not cross_entropy or outputs.ndim != 2 or outputs.shape[1] < 2:
            loss = model.loss(outputs, targets).clamp_min(_LEAST_LOSS)
            phis.append(-loss - torch.log(-torch.expm1(-loss)))
        else:  # from logits, because log(1 - p) would be -inf where p rounds to 1
            label = targets[:, None]
            others = outputs.scatter(1, label, -torch.inf).logsumexp(1)
            phis.append(outputs.gather(1, label)[:, 0] - others)
    return _finite(torch.cat(phis))


def gradients(
    model: FlatModel, engine: Engine, weights: Tensor, records: Records
) -> Iterator[Tensor]:
    """Yield the gradients [b, d] of batches of records.

    Each record is a client of its own to the engine, so the clipped sum of a client is the record's gradient.

    Args:
        model: The model, which keeps the given weights afterwards.
        engine: The engine that computes clipped sums.
        weights: The weights to set [d].
        records: The records [n].
    """
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
    """Return values as float64; a loss that is not finite becomes ±1e30."""
    return np.nan_to_num(values.double().cpu().numpy(), nan=1e30, posinf=1e30, neginf=-1e30)
