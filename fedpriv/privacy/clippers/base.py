"""What a clipper is. To add one: subclass :class:`Clipper` in a file of yours and name it in a YAML."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.fields import number
from fedpriv.common.groups import option_of
from fedpriv.common.saved import Saved

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedpriv.common.conflicts import Combination
    from fedpriv.privacy.clippers.parts import LayerGroups, Layers
    from fedpriv.privacy.mechanisms.bounded import Bounded
    from fedpriv.privacy.mechanisms.query import Query
    from fedpriv.privacy.mechanisms.visible import Visible

LARGEST = 1e12
"""The largest bound: float32 holds its noise."""
CLIP_NORM = number(above=0, at_most=LARGEST)
"""What a clip norm in a configuration may be."""


class Clipper(Saved, ABC):
    """Scales every record's gradient so that its norm is at most the clip norm of its client.

    ``clip_norm`` is public and is the L2 sensitivity of the clipped sum; a scale that exceeds it is cut. A
    clipper that learns asks one more query of the same sample (``query``, ``statistic``); the mechanism adds
    its noise, the ledger charges it jointly with the gradient, and ``observe`` gets the noised answer. Clip
    norms live on the run's device.

    Where the unit of privacy is the client, there is one clip norm for the whole cohort: "records" are
    then the clients' uploads, and the one holder of the clip norm is the server.
    """

    caveat: str | None = None
    """What a reader of the privacy statement must know of this clipper, in words."""
    aggregator_caveat: str | None = None
    """A further caveat, where an aggregator other than the client itself noises the statistic."""
    one_query_a_round: bool = False
    """Whether the noise is calibrated to a query in a round, so that local steps would overspend it."""
    largest_noise_multiplier: float = math.inf
    """The bound below which the schedule's noise multiplier must lie."""
    unbounded: bool = False
    """Whether nothing is clipped, so that the sensitivity is infinite."""
    transforms: bool = False
    """Whether uploads are clipped in a space of their own: see ``transform``."""

    @fact
    def noised_by(self) -> str | None:
        """Who noises the statistic where the aggregator is trusted: ``client`` or ``aggregator``; None:
        whoever noises the gradient."""
        return None

    @fact
    def parts(self) -> LayerGroups | None:
        """The parts of a gradient that are clipped apart; None: it is clipped as a whole."""
        return None

    whole_steps: float | None = None
    """The factor that makes the statistic a whole number, moved by one by each unit; None: there is none."""

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse noise on sums without a bound, and what scaled coordinates do not go with."""
        algorithm = parts.algorithm
        if self.unbounded and algorithm.private and parts.noise_schedule.adds_noise:
            yield ConfigError(
                "clipper=none leaves the sensitivity unbounded, so no noise makes it private; choose "
                "another clipper, or noise_schedule=none with epsilon=null for a run without privacy"
            )
        if not self.transforms:
            return
        reasons = {}
        if algorithm.no_transform is not None:
            reasons[f"algorithm={algorithm.name}"] = algorithm.no_transform
        if algorithm.augmentation is not None:
            other = "algorithm.augmentation_multiplicity"
            reasons[other] = "its coordinates are scaled record by record"
        if parts.aggregation is not None and not algorithm.row_per_client:
            reasons[f"aggregation={option_of('aggregation', parts.aggregation)}"] = (
                "it follows the noise of the mean, and a rule comes before it, so that the noise in what it "
                "returns is not known"
            )
        for other, hint in reasons.items():
            allowed = f"one that does not scale coordinates with {other}"
            yield ConfigError("clipper", option_of("clipper", self), allowed, hint)

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        """Called once before the first round.

        Args:
            clients: The number of holders of a clip norm: all clients, or 1 (the server).
            device: Where clip norms live.
            initial_norm: Gives the mean gradient norm of the initial model on random records: reads no data.
        """

    def see_layers(self, layers: Layers) -> None:
        """Called before ``start``: the layers of the model, in the order of its weights."""

    def part_norms(self, round_index: int, holders: Tensor) -> Tensor:
        """The clip norm of each part, where there are ``parts`` → [m, G]. The sensitivity is the norm of a
        row, whatever ``clip_norm`` says. ``factors`` and ``statistic`` then get norms and clip norms [n, G].
        """
        raise ReleaseError(f"{type(self).__name__} has parts and no clip norms of them")

    def transform(self, round_index: int, holders: Tensor) -> tuple[Tensor, Tensor] | None:
        """(shift a, scale b > 0) of each coordinate [m, d]: what is clipped, noised and summed is (u - a)/b,
        and its noised mean w̃ is taken for b w̃ + a. None: u itself. Functions of released values."""
        return None

    def observe_restored(self, holders: Tensor, gradients: Visible, noise_std: Tensor) -> None:
        """What was released, once it is back in the space of the weights, where there is a ``transform``.

        Args:
            gradients: The noised means [m, d].
            noise_std: The standard deviation of their noise [m, d].
        """

    @abstractmethod
    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        """The clip norm C_t of each of ``holders`` [m] (int64) in round t = 0, 1, … → [m]."""

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        """The scale of each record [n], given its norm [n] and its client's clip norm [n]."""
        return (clip_norms / norms.clamp_min(1e-30)).clamp_max(1.0)

    def gradient_multiplier(self, noise_multiplier: float) -> float:
        """Noise multiplier of the gradient, given that of the schedule."""
        return noise_multiplier

    def query(self, round_index: int, noise_multiplier: float) -> Query | None:
        """The extra query of round t (multiplier 0: without noise), or ``None`` if nothing is asked."""
        return None

    def asks(self, round_index: int) -> bool:
        """Whether something is asked in round t."""
        return self.query(round_index, 1.0) is not None

    def asks_ever(self) -> bool:
        """Whether something is asked in any round."""
        return self.asks(next(iter(self.kinds_of_rounds(10**6))))

    def kinds_of_rounds(self, rounds: int) -> dict[int, int]:
        """A round of each kind (asking the same) among the first ``rounds`` → how many are like it.

        Those that ask come first.
        """
        return {0: rounds}

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        """The answer to ``query``, not yet noised; only called when that is not ``None``.

        Args:
            norms: Of each record's gradient before clipping [n].
            owners: The position of each record's holder [n], in 0 … m-1.
            clip_norms: C of each holder [m].

        Returns:
            A bounded statistic, such as ``bounded_sum(...)``: it enforces the sensitivity it states.
        """
        raise ReleaseError(
            f"{type(self).__name__} asks a query and has no statistic that answers it"
        )

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        """What was released.

        Args:
            holders: Who holds the clip norms of this step [m].
            statistic: The noised statistic [m] or [m, B]; None where nothing was asked.
            gradients: The noised mean gradients [m, d].
            denominators: The public denominators L [m].
        """

    def describe(self) -> str:
        """The clipper in a few words, for the plan."""
        return type(self).__name__


class StoredNorms(Clipper):
    """A clipper that keeps one clip norm for each holder [K] and starts them all at ``initial``."""

    saved_attributes: ClassVar = {"bounds": "_norms"}
    initial: float | None

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        import torch

        assert self.initial is not None
        self._norms = torch.full((clients,), self.initial, device=device)

    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        return self._norms[holders]
