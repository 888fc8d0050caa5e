"""Checks of aggregation rules: results must be usable by the server step, repeatable and resumable."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedpriv.aggregation.base import Aggregation
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.random_streams import global_states

if TYPE_CHECKING:
    from fedpriv.engine import FlatModel

_LINEAR = 1e-4  # relative tolerance; float32 sums in another order differ by less
_PROBED_ROUNDS = 2
_IRRATIONAL = 0.6180339887498949  # its multiples are spread evenly modulo 1


class CheckedRule:
    """The rule of one run, whose results are checked.

    Attributes:
        settings: The rule's settings.
        rule: The rule itself.
        used: Whether the rule was called in the current round.

    Raises:
        ConfigError: ``settings.start`` returned an object without a method ``combine``.
    """

    def __init__(self, settings: Aggregation, model: FlatModel):
        self.settings, self.used, self._round = settings, False, 0
        self.rule = settings.start(model)
        if not callable(getattr(self.rule, "combine", None)):
            raise ConfigError(
                f"aggregation: {type(settings).__name__}.start must return an object with a method "
                f"combine(t, clients, uploads, weights), got {type(self.rule).__name__}"
            )

    @property
    def linear(self) -> bool:
        """True if the rule returns the weighted sum."""
        return self.settings.linear

    @property
    def buckets(self) -> int | None:
        """The number of buckets whose means the rule combines; None: it combines uploads."""
        return self.settings.buckets

    def begin(self, round_index: int) -> None:
        """Note the round that begins."""
        self._round, self.used = round_index, False

    def combine(self, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return the rule's result [d]; zero for an empty cohort.

        Args:
            clients: Numbers of the clients [c], ascending.
            uploads: The uploads that the server sees [c, d].
            weights: Share of each client in the mean [c].

        Raises:
            ReleaseError: The rule drew from global random numbers, changed the uploads, or returned a result
                of another shape, one that is not finite, or, for a linear rule, one that is not the weighted
                sum.
        """
        self.used = True
        if not len(uploads):
            return uploads.new_zeros(uploads.shape[1])
        # torch counts the in-place changes of a tensor, which finds a rule that changes the uploads.
        version, states = uploads._version, global_states()
        combined = self.rule.combine(self._round, clients.copy(), uploads, weights.clone())
        if global_states() != states:
            raise self._refused(
                "drew from the global random numbers of torch, NumPy or Python, which no checkpoint holds: "
                "draw from a generator that start() makes with a seed, and save its state"
            )
        if uploads._version != version:
            raise self._refused("changed the uploads that it was handed; work on a copy")
        shape = getattr(combined, "shape", None)
        if not isinstance(combined, Tensor) or shape != uploads.shape[1:]:
            returned = type(combined).__name__ if shape is None else f"shape {tuple(shape)}"
            raise self._refused(
                f"must return a tensor of shape {tuple(uploads.shape[1:])}, got {returned}"
            )
        # A copy, so that the rule cannot change the result later.
        combined = combined.detach().to(device=uploads.device, dtype=uploads.dtype).clone()
        # Uploads of a model that diverges are not finite, and then the result need not be finite either.
        if not bool(combined.isfinite().all()) and bool(uploads.isfinite().all()):
            raise self._refused("returned numbers that are not finite for uploads that are")
        if self.linear and not _close(combined, weights.to(uploads.dtype) @ uploads, uploads):
            raise self._refused(
                "did not return the weighted sum of the uploads: linear must be False"
            )
        return combined

    def preview(self, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return what :meth:`combine` would return, and leave the rule as it was.

        Attackers that know the rule try uploads with it. The arguments are those of :meth:`combine`.
        """
        state, used = deepcopy(self.state_dict()), self.used
        combined = self.combine(clients, uploads, weights)
        self.load_state_dict(state)
        self.used = used
        return combined

    def _refused(self, what: str) -> ReleaseError:
        return ReleaseError(f"round {self._round + 1}: {type(self.rule).__name__}.combine {what}")

    def state_dict(self) -> dict[str, object]:
        """Return the state of the rule; empty for a rule that has none."""
        return self.rule.state_dict() if hasattr(self.rule, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state that ``state_dict`` returned."""
        if hasattr(self.rule, "load_state_dict"):
            self.rule.load_state_dict(state)


def _close(combined: Tensor, mean: Tensor, uploads: Tensor) -> bool:
    """Return whether a result is the mean up to rounding; true where uploads are not finite."""
    slack = _LINEAR * float(uploads.abs().max())
    return not slack < float("inf") or bool(((combined - mean).abs() <= slack).all())


def refuse_unrepeatable(settings: Aggregation, model: FlatModel, clients: int) -> None:
    """Raise ConfigError for a rule that cannot be used or gives different results for the same uploads.

    Two rules are started and called with the same made-up uploads over two rounds. No data is read. A run
    with a rule that fails could be neither repeated nor resumed.

    Args:
        settings: The rule's settings.
        model: The model whose weights have the size of an upload.
        clients: Number of made-up uploads.
    """
    first, second = CheckedRule(settings, model), CheckedRule(settings, model)
    name = type(settings).__name__
    if first.rule is second.rule:
        raise ConfigError(f"aggregation: {name}.start must make a new rule each time it is called")
    numbers = torch.arange(1, clients * model.size + 1, dtype=torch.float64)
    uploads = (numbers * _IRRATIONAL).frac().sub_(0.5).view(clients, -1).to(model.flat)
    weights, everyone = torch.full_like(uploads[:, 0], 1.0 / clients), np.arange(clients)
    for t in range(_PROBED_ROUNDS):
        results = []
        for rule in (first, second):
            rule.begin(t)
            try:
                results.append(rule.combine(everyone, uploads, weights))
            except ReleaseError as error:
                raise ConfigError(f"aggregation: made-up uploads, {error}") from None
        if not torch.equal(*results):
            raise ConfigError(
                f"aggregation: two rules of {name} returned different results for the same made-up uploads, "
                "so that no run could be repeated or resumed: draw from a generator that start() makes with "
                "a seed, and keep no state outside the rule"
            )
