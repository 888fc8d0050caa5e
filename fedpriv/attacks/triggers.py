"""The interface of triggers, and what several triggers share.

A trigger marks the records that a backdoored model is to answer wrongly. A new trigger implements the three
methods of :class:`Trigger`; docs/extend.md has a complete example.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.fields import field, number
from fedpriv.data.base import Dataset
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.data.federated import FederatedData

Poison = Callable[[Records, np.random.Generator], Records]
"""A function (clean records of an attacker [n], random stream) → the same number of poisoned records."""


@dataclass(frozen=True)
class Planted:
    """A trigger on the data of a run.

    Attributes:
        poison: Function that makes poisoned training records from an attacker's clean ones.
        test: Records [n] that carry the trigger, for the success rate of the backdoor. The targets are those
            that the attackers want. Nobody trains on these records, and every one of them has the trigger.
        withheld: Numbers of the training records [w] that no client has in this run; none by default.
        parts: Poisons for attackers that each have a part of the trigger: the first attacker takes the first,
            and so on, in turn. Empty, the default: all take ``poison``.
    """

    poison: Poison
    test: Records
    withheld: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    parts: Sequence[Poison] = ()

    def poison_of(self, attacker: int) -> Poison:
        """Return how an attacker poisons its records.

        Args:
            attacker: Place of the attacker among all attackers, from 0.
        """
        return self.parts[attacker % len(self.parts)] if self.parts else self.poison


class Trigger(ABC):
    """The records on which a backdoored model is to answer wrongly.

    Example:
        >>> class Inverted(Trigger):
        ...     def plant(self, data, honest, stream):
        ...         def inverted(records):
        ...             return relabelled(Records(-records.inputs, records.targets), 0)
        ...
        ...         poison = lambda clean, stream: inverted(clean)
        ...         return Planted(poison, inverted(data.test))
        >>> Inverted().describe()
        'Inverted'
    """

    def misfit(self, dataset: Dataset) -> str | None:
        """Return what the trigger needs and the data set lacks; the default needs nothing.

        Args:
            dataset: The data set of the run, before its records are read.

        Returns:
            A phrase that completes "attack.trigger needs ...", or None if the trigger suits the data set.
        """
        return None

    @abstractmethod
    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        """Prepare the trigger on the data of a run.

        Args:
            data: Records of all clients and of the test set.
            honest: Numbers of the clients that do not attack [h], ascending.
            stream: Random stream of the trigger, which follows from ``attack.seed``.

        Returns:
            How records are poisoned, the records to test the backdoor on, and the records withheld.

        Raises:
            ConfigError: The data have too few records for the trigger.
        """

    def describe(self) -> str:
        """Return the trigger in a few words, for the plan; by default the name of the class."""
        return type(self).__name__


def share_withheld(default: float, of: str) -> Any:
    """Declare a field: the share of some records that nobody trains on.

    Args:
        default: Default of the share.
        of: The records, in words, for the help of the key.
    """
    help_text = f"share of {of} that nobody trains on; the backdoor is tested on this share"
    return field(number(above=0, below=1), default=default, help=help_text)


def no_such_label(dataset: Dataset, labels: dict[str, int]) -> str | None:
    """Return a misfit (see :meth:`Trigger.misfit`) for a label that the data set lacks.

    Args:
        dataset: The data set of the run.
        labels: Each label under the name of its key in ``attack.trigger``.

    Returns:
        The misfit of the first label that is too large, or None.
    """
    for key, label in labels.items():
        if label >= dataset.classes:
            return f"a label {label} (attack.trigger.{key}; here 0 to {dataset.classes - 1})"
    return None


def drawn_from(pool: Records) -> Poison:
    """Return a function that takes poisoned records from a pool, whatever the clean ones are.

    The pool is passed through in random order, as often as needed, so that all its records are taken equally
    often up to one.
    """

    def poison(clean: Records, stream: np.random.Generator) -> Records:
        passes = -(-len(clean) // len(pool))
        order = np.concatenate([stream.permutation(len(pool)) for _ in range(passes)])
        return pool.subset(order[: len(clean)])

    return poison


def in_two(
    records: np.ndarray, share: float, stream: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Split record numbers at random into a part to poison with and a part to test with.

    Args:
        records: Record numbers, at least two.
        share: Share of the records to test with.
        stream: Random stream of the split.

    Returns:
        The numbers to poison with and the numbers to test with, both ascending and at least one each.
    """
    order = stream.permutation(records)
    tested = min(max(1, round(share * len(order))), len(order) - 1)
    return np.sort(order[tested:]), np.sort(order[:tested])


def relabelled(records: Records, target: int) -> Records:
    """Return the same inputs, all with one target.

    Args:
        records: The records [n].
        target: The target of all.
    """
    import torch

    return Records(records.inputs, torch.full_like(records.targets, target))


def concatenated(parts: Sequence[Records]) -> Records:
    """Return the records of all parts, one part after another."""
    import torch

    return Records(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )


def relabelling(
    train: Records, poisoned: np.ndarray, tested: np.ndarray, target: int, withheld: np.ndarray
) -> Planted:
    """Return a planted trigger that changes the target of records and leaves their inputs alone.

    Args:
        train: The training records of the run.
        poisoned: Numbers of the records that attackers train on.
        tested: Numbers of the records that the backdoor is tested on.
        target: The label that attackers give these records.
        withheld: Numbers of the training records that no client has in this run.
    """
    return Planted(
        poison=drawn_from(relabelled(train.subset(poisoned), target)),
        test=relabelled(train.subset(tested), target),
        withheld=withheld,
    )
