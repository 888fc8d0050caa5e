"""Base class of all queries: one answer on a sample, with a family of noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.core.events import parse_event
from fedpriv.privacy.core.names import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_accounting.dp_event import DpEvent
    from torch import Tensor

    from fedpriv.common.secret_streams import Stream
    from fedpriv.privacy.core.noise import Noise
    from fedpriv.privacy.mechanisms.bounded import Bounded


class Query(ABC):
    """One answer on a sample: a family of noise and its parameters.

    A query is hashable, and is known from public values before the round. The noise that :meth:`release` adds
    and the event that :meth:`event` charges follow from the same attributes.

    Attributes:
        name: Name of the answer in the ledger, such as ``gradient_sum``.
        by: Party that adds the noise: ``client``, ``aggregator`` (trusted, simulated), or ``nobody`` for what
            was public before the first round.
        replaced: Ratio of the distances by which replacing a unit and adding a unit move the answer.
        honest: Number of noise shares that together have the stated noise. 1 means that each share has it.
        noise_multiplier: Noise std ÷ add/remove sensitivity, where noise is added. Queries that flip bits
            have no multiplier.

    Example:
        >>> from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
        >>> query = GaussianQuery("gradient_sum", noise_multiplier=2.0)
        >>> query.event()
        GaussianDpEvent(noise_multiplier=2.0)
        >>> query.purpose_of_all
        'gradient_sum_of_all'
    """

    noise_multiplier: float

    name: str
    by: str
    replaced: float
    honest: int = 1

    @property
    @abstractmethod
    def protects(self) -> bool:
        """True if the answer is noised at all."""

    @property
    def purpose_of_all(self) -> str:
        """Name of the secret stream where one answer belongs to a whole cohort."""
        return f"{self.name}_of_all"

    @abstractmethod
    def noised_by(self, by: str) -> Query:
        """Return the same query with its noise added by ``client`` or ``aggregator``.

        Raises:
            ConfigError: This family of noise cannot be added by that party.
        """

    @abstractmethod
    def event(self) -> DpEvent:
        """Return the event of one answer to this query alone, without the amplification by sampling."""

    @abstractmethod
    def release(self, answer: Bounded, noise: Noising) -> Tensor | None:
        """Replace the answer's values by their release, in place.

        Args:
            answer: The bounded answer [m, …]. Its values are private before this call and public after it.
            noise: Streams and shares of the noise.

        Returns:
            The standard deviation of the noise that one share added to each row [m], or None where bits are
            flipped and nothing is added.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return name and parameter, as the ledger shows them."""

    def describe_in_full(self) -> str:
        """Return the description with everything that a plan shows; the default is :meth:`describe`."""
        return self.describe()


@dataclass(frozen=True)
class Noising:
    """Settings of one call of :meth:`Query.release`.

    Attributes:
        streams: Streams of the noise: a secret stream for each row of the answer, or for each share where
            clients add integer shares. A sum of vectors modulo 2^b also has the public stream of its rotation
            before the shares. Empty if the noise is ``drawn``.
        multipliers: Noise multiplier of each row [m], where the rows belong to clients of several groups.
            None means the query's own multiplier.
        shares: Number of clients that each add noise to the one row. 1 means a single share.
        drawn: Noise whose drawing began before the answer was computed, or None.
    """

    streams: Sequence[Stream]
    multipliers: Tensor | float | None = None
    shares: int = 1
    drawn: Noise | None = None


EARLIER = "round_run_before"
"""Name of what an earlier process released in a round that was run again."""


@dataclass(frozen=True)
class EarlierQuery(Query):
    """All answers that an earlier process released, in another run or in a round that was run again.

    Attributes:
        charged: Text of the event that they are charged for.
    """

    charged: str
    name: str = EARLIER
    by: str = NOBODY
    replaced: float = 1.0
    noise_multiplier = 0.0  # no theorem of a published work covers them

    @property
    def protects(self) -> bool:
        return True

    def noised_by(self, by: str) -> Query:
        return self

    def event(self) -> DpEvent:
        return parse_event(self.charged)

    def release(self, answer: Bounded, noise: Noising) -> Tensor | None:
        raise ReleaseError("an earlier process released these answers")

    def describe(self) -> str:
        return self.name
