"""The interface of aggregation rules: the settings, which need no torch, and the rule of one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import option_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedpriv.engine import FlatModel


class Rule(Protocol):
    """The rule of one run.

    ``state_dict`` and ``load_state_dict`` may be left out by a rule that keeps nothing between rounds.

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
            clients: Numbers of the clients of the round [c], ascending; never empty.
            uploads: The uploads that the server sees [c, d]; they must not be changed.
            weights: Share p_k of each client in the mean [c]; the shares add up to 1.
        """

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs, for the checkpoint: tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state that ``state_dict`` returned."""


class Aggregation(ABC):
    """The settings of an aggregation rule.

    Attributes:
        linear: Whether the rule returns the weighted sum of the uploads, as a rule does that only looks on.
            Parts that need the weight of an upload work with such a rule alone
            (``attack.boost=replacement``).

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

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse an algorithm whose noised uploads the server does not see one by one, and unfit cohorts.

        Args:
            parts: The parts of the configured run.

        Yields:
            A ConfigError for a private algorithm with central or distributed trust.

        Raises:
            ArgumentError: The rule does not go with the cohorts of the run.
        """
        algorithm = parts.algorithm
        if algorithm.private and not algorithm.trust.sees_each_upload:
            yield ConfigError(
                "aggregation",
                option_of("aggregation", self),
                f"mean with algorithm={algorithm.name} ({algorithm.trust.name} trust)",
                "only the noised sum of the uploads is released there; the result of a rule on uploads "
                "without noise has no bounded sensitivity",
            )

        clients = parts.partition.clients
        if clients:
            self.check_cohort(min(algorithm.clients_per_round or clients, clients))

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
