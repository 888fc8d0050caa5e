"""What every trigger offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.fields import field, number
from fedpriv.data.base import Dataset
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.data.federated import FederatedData

Poison = Callable[[Records, np.random.Generator], Records]
"""(an attacker's clean records [n], stream) → as many poisoned ones."""


@dataclass(frozen=True)
class Planted:
    """A trigger on the data of a run.

    Attributes:
        poison: Makes poisoned training records.
        test: Records with the trigger, the targets being what the attackers want: none of them is
            trained on by anyone, and no clean one is among them.
        withheld: Training records [w] that no client has in this run.
    """

    poison: Poison
    test: Records
    withheld: np.ndarray


class Trigger(ABC):
    """Where the backdoored model is to answer wrongly."""

    def misfit(self, dataset: Dataset) -> str | None:
        """Return what the trigger needs and a data set has not; None if it is for these data."""
        return None

    @abstractmethod
    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        """Prepare the trigger; ``honest`` [h]: clients that do not attack. Raises ConfigError."""

    def describe(self) -> str:
        """Return the trigger in a few words."""
        return type(self).__name__


def share_withheld(default: float, of: str) -> Any:
    """Declare the share of some records that nobody trains on."""
    line = f"share of {of} that nobody trains on: the backdoor is tested on them"
    return field(number(above=0, below=1), default=default, help=line)


def no_such_label(dataset: Dataset, labels: dict[str, int]) -> str | None:
    """A misfit: a label (by its key of the trigger) that the data set has not."""
    for key, label in labels.items():
        if label >= dataset.classes:
            return f"a label {label} (attack.trigger.{key}; here 0 to {dataset.classes - 1})"
    return None


def drawn_from(pool: Records) -> Poison:
    """Poisoned records taken from a pool: each in turn, as often as needed, in random order."""

    def poison(clean: Records, stream: np.random.Generator) -> Records:
        rounds = -(-len(clean) // len(pool))
        order = np.concatenate([stream.permutation(len(pool)) for _ in range(rounds)])
        return pool.subset(order[: len(clean)])

    return poison


def in_two(
    records: np.ndarray, share: float, stream: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Indices split at random into those to poison with and a ``share`` to test with, at least one
    each, both sorted."""
    order = stream.permutation(records)
    tested = min(max(1, round(share * len(order))), len(order) - 1)
    return np.sort(order[tested:]), np.sort(order[:tested])


def relabelled(records: Records, target: int) -> Records:
    """The same inputs, all with one target."""
    import torch

    return Records(records.inputs, torch.full_like(records.targets, target))


def relabelling(
    train: Records, poisoned: np.ndarray, tested: np.ndarray, target: int, withheld: np.ndarray
) -> Planted:
    """A trigger of records that are what they are, all with one target."""
    return Planted(
        poison=drawn_from(relabelled(train.subset(poisoned), target)),
        test=relabelled(train.subset(tested), target),
        withheld=withheld,
    )
