"""The record of what was released: all that the ledger takes, and all that is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        shares: Of each query, how many shares of that noise its sum got (1, the default: the answer is one
            participant's, or somebody noised it for all).
        count: How many independent samples of that kind.
    """

    joint: JointQuery
    clients: np.ndarray
    sensitivity: Mapping[str, np.ndarray]
    noise_std: Mapping[str, np.ndarray]
    shares: Mapping[str, int] = field(default_factory=dict)
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ReleaseError(f"a release is of one sample at least, got {self.count}")
        for query in self.joint.queries:
            for what, values in (
                ("sensitivity", self.sensitivity.get(query.name)),
                ("noise_std", self.noise_std.get(query.name, np.zeros(1))),
            ):
                shape = None if values is None else np.shape(values)
                if shape not in ((1,), (len(self.clients),)):
                    raise ReleaseError(
                        f"a release of {query.name} by {len(self.clients)} clients needs their {what}: one "
                        f"number for all or one for each, got shape {shape}"
                    )
            multiplier = getattr(query, "noise_multiplier", None)
            if multiplier is not None and query.protects:
                added = self.noise_std.get(query.name, np.zeros(1)) * math.sqrt(query.honest)
                refuse_too_little_noise(
                    query.name, np.float64(multiplier), self.sensitivity[query.name], added
                )


def refuse_too_little_noise(
    name: str, multipliers: np.ndarray | float, sensitivity: np.ndarray, noise_std: np.ndarray
) -> None:
    """Raise ReleaseError where the noise that was added is less than multiplier × sensitivity."""
    needed = multipliers * np.asarray(sensitivity, dtype=float)
    multipliers = np.broadcast_to(multipliers, needed.shape)
    added = np.broadcast_to(noise_std, needed.shape)
    short = ~(added >= needed * (1.0 - _ROUNDING))
    if short.any():
        raise ReleaseError(
            f"{name} was released with noise of standard deviation {added[short][0]:.6g}, less than the "
            f"{needed[short][0]:.6g} that its noise multiplier {multipliers[short][0]:.6g} asks for"
        )
