"""The rule of one run: its settings, its state, and the round that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fedpriv.aggregation.base import Aggregation
from fedpriv.common.errors import ReleaseError

if TYPE_CHECKING:
    from fedpriv.engine import FlatModel


class RunRule:
    """The rule of one run.

    Attributes:
        settings: The rule's settings.
        rule: The rule itself.
        used: Whether the rule was called in the current round.
    """

    def __init__(self, settings: Aggregation, model: FlatModel):
        self.settings, self.used, self._round = settings, False, 0
        self.rule = settings.start(model)

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
            ReleaseError: The result has another shape, or is not finite for finite uploads.
        """
        self.used = True
        if not len(uploads):
            return uploads.new_zeros(uploads.shape[1])
        combined = self.rule.combine(self._round, clients.copy(), uploads, weights)
        if not isinstance(combined, Tensor) or combined.shape != uploads.shape[1:]:
            raise self._refused(f"must return a tensor of shape {tuple(uploads.shape[1:])}")
        # A copy, as what the trainer adds to the result must not reach what the rule keeps.
        combined = combined.detach().to(uploads).clone()
        # Uploads of a model that diverges are not finite, and then the result need not be finite either.
        if not bool(combined.isfinite().all()) and bool(uploads.isfinite().all()):
            raise self._refused("returned numbers that are not finite for uploads that are")
        return combined

    def preview(self, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return what :meth:`combine` would return, and leave the rule and the uploads as they were.

        Attackers that know the rule try uploads with it. The arguments are those of :meth:`combine`.
        """
        state, used = deepcopy(self.state_dict()), self.used
        combined = self.combine(clients, uploads.clone(), weights.clone())
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
