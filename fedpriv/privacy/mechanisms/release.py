"""Record of a release: the only input of the ledger, and all that is charged."""

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
    """Record of ``count`` samples that each of some clients answered queries on.

    The record holds public facts only, no values. It can be entered in a
    :class:`~fedpriv.privacy.ledger.Ledger` and turned into the event ``joint.event()``, which the
    accountants compose ``count`` times for each client.

    The constructor checks that the noise added is at least what is charged, for every query with noise:

        noise_std · √h ≥ z · sensitivity

    with z the query's noise multiplier and h = ``query.honest`` the number of shares that protect for
    certain.

    Attributes:
        joint: The sampling and every query answered on the sample.
        clients: Positions among all K of the clients that are charged [m].
        sensitivity: For each query name, the distance in L2 that one unit more or less moves the answer: [m],
            or [1] if one number holds for all clients.
        noise_std: For each query name, the standard deviation of the noise that was added, [m] or [1]. Where
            several clients add a share each to the same sum, the standard deviation of one share. A bit that
            is flipped has no entry.
        shares: For each query name, the number of noise shares in its sum. The default 1 means that the
            answer belongs to one participant, or that one party noised it for all.
        count: Number of independent samples of this kind.

    Raises:
        ReleaseError: ``count`` is below 1, a shape is wrong, or less noise was added than is charged.

    Example:
        >>> from fedpriv.privacy.core.sampling import PoissonSampling
        >>> from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, JointQuery
        >>> joint = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, noise_multiplier=2.0),))
        >>> clip_norm = np.array([0.5])
        >>> release = Release(joint, np.arange(3), {GRADIENT: clip_norm}, {GRADIENT: 2.0 * clip_norm})
        >>> release.count, len(release.clients)
        (1, 3)
    """

    joint: JointQuery
    clients: np.ndarray
    sensitivity: Mapping[str, np.ndarray]
    noise_std: Mapping[str, np.ndarray]
    shares: Mapping[str, int] = field(default_factory=dict)
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ReleaseError(f"count of a release must be >= 1, got {self.count}")
        for query in self.joint.queries:
            for quantity, values in (
                ("sensitivity", self.sensitivity.get(query.name)),
                ("noise_std", self.noise_std.get(query.name, np.zeros(1))),
            ):
                shape = None if values is None else np.shape(values)
                if shape not in ((1,), (len(self.clients),)):
                    raise ReleaseError(
                        f"{quantity} of {query.name} must have one number for all or for each of the "
                        f"{len(self.clients)} clients, got shape {shape}"
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
    """Check that the noise added is at least multiplier × sensitivity, up to rounding.

    Args:
        name: Name of the query, for the message.
        multipliers: Noise multiplier of all rows, or of each row [m].
        sensitivity: Sensitivity of each row [m].
        noise_std: Standard deviation of the noise that was added to each row [m], or to all rows [1].

    Raises:
        ReleaseError: Some row has less noise.
    """
    needed = multipliers * np.asarray(sensitivity, dtype=float)
    multipliers = np.broadcast_to(multipliers, needed.shape)
    added = np.broadcast_to(noise_std, needed.shape)
    short = ~(added >= needed * (1.0 - _ROUNDING))
    if short.any():
        raise ReleaseError(
            f"{name} was released with noise of standard deviation {added[short][0]:.6g}, less than the "
            f"{needed[short][0]:.6g} of its noise multiplier {multipliers[short][0]:.6g}"
        )
