"""Noise and sensitivity that the ledger states for a release, in the units of the released values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.core.names import CLIENT, REPLACE_ONE
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms import GRADIENT, Query, Release
from fedpriv.privacy.mechanisms.discrete import DiscreteQuery
from fedpriv.tools.verify.probes import Recording, ReleasePosition, Seen

GAUSSIAN, BIT, NONE, OTHER = "gaussian", "randomized bit", "none", "other"


@dataclass(frozen=True)
class LedgerClaim:
    """The noise and the sensitivity of one release.

    A unit is added, removed or replaced, as the ledger's adjacency says.

    Attributes:
        query: The charged query.
        family: Family of the charged noise.
        std: Noise multiplier × sensitivity of each row [rows], from which ε is computed.
        noted: Standard deviation that the release itself notes [rows]; never less than ``std``.
        bound: Largest distance by which one unit may move each row [rows].
        multiplier: Standard deviation of the noise ÷ the distance that one unit moves.
    """

    query: Query
    family: str
    std: np.ndarray
    noted: np.ndarray
    bound: np.ndarray
    multiplier: float


def claim_of(recording: Recording, position: ReleasePosition, trust: Trust) -> LedgerClaim | None:
    """Return the claim of the charged releases about a position; None where nothing was charged.

    Args:
        recording: The run.
        position: The release.
        trust: Trust model of the run. Where the server sees each report, each needs the charged noise.
    """
    seen = recording.seen[position]
    if position.round_index >= len(recording.charged):
        return None
    by_group: dict[bytes, list[Release]] = {}
    for release in recording.charged[position.round_index]:
        if position.name in release.joint.names:
            by_group.setdefault(np.asarray(release.clients).tobytes(), []).append(release)
    # Each group of clients has a release for each local step. Releases before the rounds, or after
    # the step, have one only.
    groups = [steps[min(max(position.step, 0), len(steps) - 1)] for steps in by_group.values()]
    if not groups:
        return None
    query = groups[0].joint.query(position.name)
    rows, cohort, shares = len(seen.values), recording.cohorts[position.round_index], 1.0
    apart = recording.rows_of_clients or (recording.uploads_apart and position.name == GRADIENT)
    std, noted, bound = (np.full(rows, math.nan) for _ in range(3))
    if apart and not seen.of_reports and rows == len(cohort):
        for release in groups:
            members = np.searchsorted(cohort, release.clients)
            std[members], noted[members], bound[members] = _numbers(
                release, position.name, seen.divided_by, shares
            )
    else:
        reports = trust.sees_each_upload and query.by == CLIENT and not apart
        if trust.noised_by_clients and not trust.sees_each_upload:
            # Each client adds a share. The shares of the honest clients alone make the charged noise.
            shares = len(cohort) / query.honest
        elif reports and not seen.of_reports:
            shares = float(len(cohort))
        # One row belongs to the whole cohort, so all of its numbers are the same.
        std[:], noted[:], bound[:] = _numbers_of_sum(groups, position.name, seen, shares)
    multiplier = noise_multiplier(query) * math.sqrt(shares) / _times(groups[0], query)
    return LedgerClaim(query, family_of(query), std, noted, bound, multiplier)


def _numbers_of_sum(
    groups: list[Release], name: str, seen: Seen, shares: float
) -> tuple[float, float, float]:
    """Return (std, noted std, bound) of a sum over the whole cohort."""
    numbers = [_numbers(release, name, seen.divided_by, shares) for release in groups]
    if not seen.of_reports:
        std, noted, bound = (float(np.max(values)) for values in numbers[0])
        return std, noted, bound

    # The noise of the clients' reports is independent, so its variances add up.
    def root_of_squares(index: int) -> float:
        parts = [
            np.broadcast_to(of_group[index], len(release.clients))
            for of_group, release in zip(numbers, groups, strict=True)
        ]
        return float(np.linalg.norm(np.concatenate(parts)))

    return root_of_squares(0), root_of_squares(1), max(float(np.max(part[2])) for part in numbers)


def _numbers(
    release: Release, name: str, divided_by: float, shares: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (std, noted std, bound) of the rows of a group where ``shares`` clients each add noise."""
    query = release.joint.query(name)
    sensitivity = np.asarray(release.sensitivity[name], dtype=float) / divided_by
    multiplier = noise_multiplier(query)
    std = multiplier * sensitivity * math.sqrt(shares) if multiplier else np.zeros_like(sensitivity)
    noted = np.asarray(release.noise_std.get(name, np.zeros(1)), dtype=float)
    noted = noted * math.sqrt(release.shares.get(name, 1)) / divided_by
    return std, np.maximum(noted, std), sensitivity * _times(release, query)


def _times(release: Release, query: Query) -> float:
    """Return the distance by which a neighbour moves the answer, in units of the sensitivity."""
    rounded = query.sensitivity / query.cells if isinstance(query, DiscreteQuery) else 1.0
    return rounded * (query.replaced if release.joint.sampling.neighbours == REPLACE_ONE else 1.0)


def noise_multiplier(query: Query) -> float:
    """Return the noise multiplier of the charged event; 0 where the event has none."""
    event = query.event()
    return float(event.noise_multiplier) if isinstance(event, dp_event.GaussianDpEvent) else 0.0


def family_of(query: Query) -> str:
    """Return the family of the noise of the charged event."""
    event = query.event()
    if isinstance(event, dp_event.GaussianDpEvent):
        return GAUSSIAN
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return BIT
    return NONE if isinstance(event, dp_event.NonPrivateDpEvent) else OTHER
