"""The interface of aggregation rules: the settings, which need no torch, and the rule of one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedpriv.engine import FlatModel


class Root(Protocol):
    """The server's own update on public records, for a rule that trusts it."""

    def __call__(self, records: int, steps: int, learning_rate: float) -> Tensor:
        """Return what a client with public records would upload at the current global weights [d].

        Args:
            records: Number of records of the public validation split; all, if there are fewer.
            steps: Steps of gradient descent on these records.
            learning_rate: Learning rate of the steps.
        """


class Rule(Protocol):
    """The rule of one run.

    ``state_dict`` and ``load_state_dict`` may be left out by a rule that keeps nothing between rounds, and
    ``trust`` by a rule whose settings do not say ``reads_validation``. A rule that extends this class
    inherits them.

    Example:
        >>> class CoordinateMedian:
        ...     def combine(self, t, clients, uploads, weights):
        ...         return uploads.median(dim=0).values
    """

    def combine(self, t: int, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return the combination of the uploads [d], on the scale of one upload.

        The method is called once a round: at client level before the server's optimiser, at record level when
        the server step averages the uploads of the clients.

        Args:
            t: The round, 0-based.
            clients: Numbers of the clients of the round [c], ascending; never empty. Where the rule
                combines buckets, their numbers.
            uploads: The uploads that the server sees [c, d]; they must not be changed.
            weights: Share p_k of each client in the mean [c]; the shares add up to 1.
        """

    def trust(self, root: Root) -> None:
        """Take the server's update on public records; called before the first round."""
        return None

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs, for the checkpoint: tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state that ``state_dict`` returned."""
        return


class Aggregation(ABC):
    """The settings of an aggregation rule.

    Attributes:
        linear: Whether the rule returns the weighted sum of the uploads, as a rule does that only looks on.
            Parts that need the weight of an upload work with such a rule alone
            (``attack.boost=replacement``).
        buckets: Number B of buckets of clients whose noised means the rule combines, for trust models under
            which no upload is released by itself; None: the rule combines the upload of each client.
        reads_validation: Whether the rule trains on the public validation split. The split is then held out
            of the training records before clients get theirs.

    Example:
        >>> class Median(Aggregation):
        ...     def start(self, model):
        ...         return Medians()
        >>> class Medians:
        ...     def combine(self, t, clients, uploads, weights):
        ...         return uploads.median(dim=0).values
        >>> Median().describe()
        'Median'
    """

    linear: bool = False
    buckets: int | None = None
    reads_validation: bool = False

    def check_cohort(self, clients: int) -> None:
        """Refuse settings with which no round could be combined as they say; the default refuses nothing.

        Args:
            clients: The most clients that a round can have.

        Raises:
            ArgumentError: An argument does not go with so few, or so many, clients.
        """

    @abstractmethod
    def start(self, model: FlatModel) -> Rule:
        """Return a new rule for one run.

        Args:
            model: The model whose weights have the size d of an upload.
        """

    def describe(self) -> str:
        """Describe the rule for the plan and the privacy statement; by default the name of the class."""
        return type(self).__name__
