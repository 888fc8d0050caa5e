"""The interface of aggregation rules: settings, which need no torch, and the rule of one run."""

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
    """The rule of one run. ``state_dict`` and ``load_state_dict`` may be left out where nothing is kept."""

    def combine(self, t: int, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return what the uploads are combined to [d], of the scale of one upload.

        It is called once a round: at client level before the server's optimiser, at record level when the
        server step averages the uploads of the clients.

        Args:
            t: The round, 0-based.
            clients: The clients of the round [c], ascending; never none.
            uploads: What the server sees of each client [c, d]; not to be changed.
            weights: Each client's share of the mean [c], p_k; they add up to 1.
        """

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs, for the checkpoint: tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what ``state_dict`` gave."""


class Aggregation(ABC):
    """The settings of a rule.

    Attributes:
        linear: Whether the rule returns the weighted sum of the uploads, as a rule does that only looks on.
            What needs the weight of an upload goes with such a rule alone (``attack.boost=replacement``).
    """

    linear: bool = False

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse an algorithm of which the server does not see each noised upload."""
        algorithm = parts.algorithm
        if algorithm.private and not algorithm.trust.sees_each_upload:
            yield ConfigError(
                "aggregation",
                option_of("aggregation", self),
                f"mean with algorithm={algorithm.name} ({algorithm.trust.name} trust)",
                "only the noised sum of the uploads is released there, and what a rule makes of uploads that "
                "nobody noised has no bounded sensitivity",
            )

    @abstractmethod
    def start(self, model: FlatModel) -> Rule:
        """Make the rule of one run, for the weights of ``model``."""

    def describe(self) -> str:
        """Describe the rule for the plan and the privacy statement."""
        return type(self).__name__
