"""The record of what was released: all that the ledger takes, and all that is charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import ReleaseError

if TYPE_CHECKING:
    from fedpriv.privacy.mechanisms.joint import JointQuery

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Release:
    """What ``count`` samples of each of some clients released.

    Attributes:
        joint: The sampling and every query answered on the sample.
        clients: Who is charged [m]: positions among all K.
        sensitivity: Of each query, by how much one unit more or less moves the answer: [m], or [1] where one
            number holds for all.
        noise_std: Of each query, the standard deviation of the noise that was added to it (by one share,
            where several clients add one each to the same sum), like ``sensitivity``. A bit that is flipped
            has none.
        shares: How many shares of that noise the sum got (1: the answer is one participant's).
        count: How many independent samples of that kind.
    """

    joint: JointQuery
    clients: np.ndarray
    sensitivity: Mapping[str, np.ndarray]
    noise_std: Mapping[str, np.ndarray]
    shares: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        for query in self.joint.queries:
            self._check(query.name)

    def _check(self, name: str) -> None:
        """The noise really added is what the query's multiplier asks for. Raises ReleaseError."""
        query = self.joint.query(name)
        multiplier = getattr(query, "noise_multiplier", None)
        if multiplier is None or not query.protects:
            return
        needed = multiplier * np.asarray(self.sensitivity[name], dtype=float)
        added = np.broadcast_to(self.noise_std.get(name, np.zeros(1)), needed.shape)
        short = ~(added >= needed * (1.0 - _ROUNDING))
        if short.any():
            raise ReleaseError(
                f"{name} was released with noise of standard deviation {added[short][0]:.6g}, less than the "
                f"{needed[short][0]:.6g} that its noise multiplier {multiplier:.6g} asks for"
            )
