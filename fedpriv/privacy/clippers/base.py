"""Base class of clippers.

To add a clipper, subclass :class:`Clipper` in a file of your own and name the class in a YAML
(docs/extend.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ReleaseError
from fedpriv.common.fields import number
from fedpriv.common.saved import Saved

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedpriv.privacy.clippers.parts import LayerGroups, Layers
    from fedpriv.privacy.mechanisms.bounded import Bounded
    from fedpriv.privacy.mechanisms.query import Query
    from fedpriv.privacy.mechanisms.visible import Visible

LARGEST = 1e12
"""Largest clip norm: noise in proportion to it still fits into float32."""
CLIP_NORM = number(above=0, at_most=LARGEST)
"""Check of a clip norm in a configuration."""


class Clipper(Saved, ABC):
    """Rule that scales every record's gradient to at most the clip norm of its holder.

    With factors c_i and clip norm C, the clipped sum and its sensitivity are

        Σ_i c_i g_i,   c_i = min(1, C/‖g_i‖) unless :meth:`factors` is overridden,   Δ = C

    The clip norm is public, and is the L2 sensitivity of the clipped sum for one unit more or less. This
    holds for any clipper: ``step_clip`` cuts a factor that would leave more than C.

    A holder has one clip norm. At record level each client is a holder. Where the unit of privacy is the
    client, the server is the only holder, and "records" in the methods below are the uploads of the clients.

    A clipper that learns from the data asks one more query on the same sample, in :meth:`query`, and answers
    it in :meth:`statistic`. The mechanism adds the noise and the ledger charges the query jointly with the
    gradient. :meth:`observe` receives the noised answer. A clipper sees private values in ``factors`` and
    ``statistic`` only, and may keep nothing of them; a class outside fedpriv is asked on a copy, once more
    with one unit huge, and the run stops where another answer or its state changes. Everything in
    ``observe`` is released, so it may be kept.

    A subclass must define :meth:`clip_norm`. Tensors live on the device of the run.

    Attributes:
        caveat: A sentence that the privacy statement shows for this clipper, or None.
        aggregator_caveat: A further sentence, shown where an aggregator rather than the client noises the
            statistic.
        one_query_a_round: Whether the noise is calibrated to one query in a round, so that several local
            steps would overspend it.
        largest_noise_multiplier: Bound below which the schedule's noise multiplier must lie.
        unbounded: Whether nothing is clipped, so that the sensitivity is infinite.
        whole_steps: Factor that makes the statistic an integer which each unit moves by one, or None. Integer
            noise needs it.

    Example:
        >>> import torch
        >>> class Halved(Clipper):
        ...     def clip_norm(self, round_index, holders):
        ...         return torch.full((len(holders),), 2.0**-round_index)
        >>> clipper = Halved()
        >>> clip_norms = clipper.clip_norm(1, holders=torch.tensor([0, 1]))
        >>> clipper.factors(norms=torch.tensor([0.25, 2.0]), clip_norms=clip_norms).tolist()
        [1.0, 0.25]
    """

    caveat: str | None = None
    aggregator_caveat: str | None = None
    one_query_a_round: bool = False
    largest_noise_multiplier: float = math.inf
    unbounded: bool = False
    whole_steps: float | None = None

    @fact
    def noised_by(self) -> str | None:
        """Party that noises the statistic under central trust: ``client``, ``aggregator`` or None.

        None means the party that noises the gradient.
        """
        return None

    @fact
    def parts(self) -> LayerGroups | None:
        """Parts of a gradient that are clipped apart, or None if the gradient is clipped as a whole."""
        return None

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        """Prepare the clip norms. Called once before the first round; does nothing unless overridden.

        Args:
            clients: Number of holders of a clip norm: all clients, or 1 for the server.
            device: Device of the clip norms.
            initial_norm: Function that returns the mean gradient norm of the initial model on random records.
                It reads no data, so it is free.
        """

    def see_layers(self, layers: Layers) -> None:
        """Take note of the model's layers, in the order of its weights. Called before :meth:`start`.

        Does nothing unless overridden.

        Args:
            layers: Name and columns in the flat vector of each layer.
        """

    def part_norms(self, round_index: int, holders: Tensor) -> Tensor:
        """Return the clip norm of each part, for a clipper with :attr:`parts`.

        The sensitivity is the L2 norm of a row of the result, whatever ``clip_norm`` returns. ``factors`` and
        ``statistic`` then get norms and clip norms [n, G].

        Args:
            round_index: t = 0, 1, …
            holders: Positions of the holders [m], int64.

        Returns:
            Clip norms [m, G] of the G parts.

        Raises:
            ReleaseError: The clipper has :attr:`parts` and does not override this method.
        """
        raise ReleaseError(f"{type(self).__name__} has parts and no clip norms of them")

    @abstractmethod
    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        """Return the clip norm C_t of each holder.

        It is the sensitivity that is charged, so it must follow from public and released values alone.

        Args:
            round_index: t = 0, 1, …
            holders: Positions of the holders [m], int64.

        Returns:
            Clip norms [m], each > 0, in units of the gradient's L2 norm.
        """

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        """Return the factor of each record, min(1, C/‖g‖) unless overridden.

        Args:
            norms: Norm ‖g‖ of each record's gradient [n].
            clip_norms: Clip norm C of each record's holder [n].

        Returns:
            Factors [n]. A factor c with c ‖g‖ > C is cut to C/‖g‖.
        """
        return (clip_norms / norms.clamp_min(1e-30)).clamp_max(1.0)

    def gradient_multiplier(self, noise_multiplier: float) -> float:
        """Return the noise multiplier of the gradient, given the multiplier of the schedule.

        The default is the schedule's own multiplier. A clipper may give the gradient more noise, so that
        gradient and statistic together cost what the schedule's multiplier says.

        Args:
            noise_multiplier: σ_t of the schedule.

        Raises:
            ArgumentError: The statistic alone would cost more than this multiplier allows.
        """
        return noise_multiplier

    def query(self, round_index: int, noise_multiplier: float) -> Query | None:
        """Return the extra query of round t, or None (the default) if nothing is asked.

        Args:
            round_index: t = 0, 1, …
            noise_multiplier: σ_t of the schedule.

        Returns:
            A query named ``CLIP_STATISTIC``, such as a ``GaussianQuery``. Multiplier 0 means no noise.
        """
        return None

    def asks(self, round_index: int) -> bool:
        """Return whether a query is asked in round t."""
        return self.query(round_index, 1.0) is not None

    def asks_ever(self) -> bool:
        """Return whether a query is asked in any round."""
        # Kinds that ask a query come first, so the first kind decides. No run has more rounds than this.
        return self.asks(next(iter(self.kinds_of_rounds(10**6))))

    def kinds_of_rounds(self, rounds: int) -> dict[int, int]:
        """Return one round of each kind among the first ``rounds``, and the number of rounds of that kind.

        Rounds of one kind ask the same query. Kinds that ask a query come first. The default takes all rounds
        for one kind, which a clipper that asks in some rounds only must override.

        Args:
            rounds: Number of rounds.

        Returns:
            Index of a round → number of rounds of its kind.
        """
        return {0: rounds}

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        """Return the answer to :meth:`query`, before the noise. Called only where a query is asked.

        Args:
            norms: Norm of each record's gradient before clipping [n].
            owners: Position of each record's holder [n], in 0 … m-1.
            clip_norms: C of each holder [m].

        Returns:
            A bounded statistic, such as ``bounded_sum(...)``, which enforces the sensitivity that it states.

        Raises:
            ReleaseError: The clipper asks a query and does not override this method.
        """
        raise ReleaseError(
            f"{type(self).__name__} asks a query and has no statistic that answers it"
        )

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        """Learn from what a step released. Does nothing unless overridden.

        Args:
            holders: Positions of the holders of this step [m], int64.
            statistic: The noised statistic [m] or [m, B]; None where nothing was asked.
            gradients: The noised mean gradients [m, d].
            denominators: The public denominators L [m].
        """

    def describe(self) -> str:
        """Return a short description for the plan; the name of the class unless overridden."""
        return type(self).__name__


class StoredNorms(Clipper):
    """Clipper that keeps one clip norm for each holder, all ``initial`` at the start.

    Attributes:
        initial: Clip norm of the first round.
    """

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
