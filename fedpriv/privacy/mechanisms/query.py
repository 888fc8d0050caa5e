"""What a query is, whatever the family of its noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_accounting.dp_event import DpEvent
    from torch import Tensor

    from fedpriv.common.secret_streams import Stream
    from fedpriv.privacy.core.noise import Noise
    from fedpriv.privacy.mechanisms.bounded import Bounded


class Query(ABC):
    """One answer on a sample: a family of noise and its parameter. Hashable, and public before the round.

    Attributes:
        name: What is answered, such as ``gradient_sum``; the ledger's word for it.
        by: Who adds the noise: ``client``, ``aggregator`` (trusted, simulated) or ``nobody`` (what was
            public before the first round).
        replaced: By how many times as much replacing a unit moves the answer as adding one.
        honest: How many shares of its noise together are what it states (1: each alone is).
        noise_multiplier: Noise std ÷ add/remove sensitivity, where noise is added. What flips bits has none.
    """

    noise_multiplier: float

    name: str
    by: str
    replaced: float
    honest: int = 1

    @property
    @abstractmethod
    def protects(self) -> bool:
        """Whether there is any noise at all."""

    @property
    def purpose_of_all(self) -> str:
        """The name of its secret stream where one answer is of a whole cohort."""
        return f"{self.name}_of_all"

    @abstractmethod
    def noised_by(self, by: str) -> Query:
        """The same query with its noise added by ``by``. Raises ConfigError where that cannot be."""

    @abstractmethod
    def event(self) -> DpEvent:
        """The event of one answer to this query alone, without sampling."""

    @abstractmethod
    def release(self, answer: Bounded, noise: Noising) -> Tensor | None:
        """Replace ``answer.values`` by its release and return the standard deviation of the noise that one
        share added, of each row [m] (None where noise is not added but flips)."""

    @abstractmethod
    def describe(self) -> str:
        """Name and parameter, as the ledger has them."""

    def describe_in_full(self) -> str:
        """The same with all that a plan tells."""
        return self.describe()


@dataclass(frozen=True)
class Noising:
    """What a query needs to noise one answer.

    Attributes:
        streams: A secret stream for each row of the answer.
        multipliers: Of each row, where the rows are of different clients; else None, and the query's own.
        shares: How many clients add noise of their own to the one row there is (1: a single share).
        drawn: Noise that is being drawn already, or None.
    """

    streams: Sequence[Stream]
    multipliers: Tensor | float | None = None
    shares: int = 1
    drawn: Noise | None = None
