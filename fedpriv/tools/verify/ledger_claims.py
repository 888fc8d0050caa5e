"""What the ledger states of one release: noise and sensitivity, in the units in which it left."""

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

    Attributes:
        query: What was charged.
        family: Of its noise.
        std: Noise multiplier × sensitivity of each row [rows]: what ε is computed from.
        noted: The standard deviation that the release itself notes [rows]; never less.
        bound: By how much one unit, more or less or replaced, may move each row [rows].
        multiplier: Noise std ÷ what one unit, more or less or replaced, moves.
    """

    query: Query
    family: str
    std: np.ndarray
    noted: np.ndarray
    bound: np.ndarray
    multiplier: float


def claim_of(recording: Recording, place: ReleasePosition, trust: Trust) -> LedgerClaim | None:
    """Return what the charged releases say of this place; None where nothing was charged.

    ``trust``: where it sees each report, each needs the noise that is charged.
    """
    seen = recording.seen[place]
    if place.round_index >= len(recording.charged):
        return None
    by_group: dict[bytes, list[Release]] = {}
    for release in recording.charged[place.round_index]:
        if place.name in release.joint.names:
            by_group.setdefault(np.asarray(release.clients).tobytes(), []).append(release)
    groups = [of[min(max(place.step, 0), len(of) - 1)] for of in by_group.values()]
    if not groups:
        return None
    rows, cohort = len(seen.values), recording.cohorts[place.round_index]
    apart = recording.rows_of_clients or (recording.uploads_apart and place.name == GRADIENT)
    if not (apart and not seen.of_reports and rows == len(cohort)):
        by = groups[0].joint.query(place.name).by
        reports = trust.sees_each_upload and by == CLIENT and not apart
        shares = float(len(cohort) if reports and not seen.of_reports else 1)
        if trust.noised_by_clients and not trust.sees_each_upload:
            # so many shares of what h of them are
            shares = len(cohort) / groups[0].joint.query(place.name).honest
        return _of_all(groups, place.name, seen, rows, shares)
    std, noted, bound = (np.full(rows, math.nan) for _ in range(3))
    for release in groups:
        own = np.searchsorted(cohort, release.clients)
        std[own], noted[own], bound[own] = _numbers(release, place.name, seen.divided_by, 1)
    query = groups[0].joint.query(place.name)
    return LedgerClaim(query, family_of(query), std, noted, bound, _multiplier(groups[0], query, 1))


def _of_all(groups: list[Release], name: str, seen: Seen, rows: int, shares: float) -> LedgerClaim:
    """Return the claim of one row that is about a whole cohort."""
    query = groups[0].joint.query(name)
    parts = [_numbers(release, name, seen.divided_by, shares) for release in groups]
    std, noted, bound = (float(np.max(part)) for part in parts[0])
    if seen.of_reports:  # independent noise of each report, in one number
        std, noted = (_root_of_squares(groups, [part[i] for part in parts]) for i in (0, 1))
        bound = max(float(np.max(part[2])) for part in parts)
    stds, noteds, bounds = (np.full(rows, value) for value in (std, noted, bound))
    multiplier = _multiplier(groups[0], query, shares)
    return LedgerClaim(query, family_of(query), stds, noteds, bounds, multiplier)


def _root_of_squares(groups: list[Release], values: list[np.ndarray]) -> float:
    own = (np.broadcast_to(v, len(r.clients)) for v, r in zip(values, groups, strict=True))
    return float(np.linalg.norm(np.concatenate(list(own))))


def _numbers(
    release: Release, name: str, divided_by: float, shares: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (std, noted std, bound) of a group's rows, where so many each add a share of the noise."""
    query = release.joint.query(name)
    sensitivity = np.asarray(release.sensitivity[name], dtype=float) / divided_by
    multiplier = noise_multiplier(query)
    std = multiplier * sensitivity * math.sqrt(shares) if multiplier else np.zeros_like(sensitivity)
    noted = np.asarray(release.noise_std.get(name, np.zeros(1)), dtype=float)
    noted = noted * math.sqrt(release.shares.get(name, 1)) / divided_by
    return std, np.maximum(noted, std), sensitivity * _times(release, query)


def _times(release: Release, query: Query) -> float:
    """Return by how many times the sensitivity a neighbour moves the answer."""
    rounded = query.sensitivity / query.cells if isinstance(query, DiscreteQuery) else 1.0
    return rounded * (query.replaced if release.joint.sampling.neighbours == REPLACE_ONE else 1.0)


def _multiplier(release: Release, query: Query, shares: float) -> float:
    return noise_multiplier(query) * math.sqrt(shares) / _times(release, query)


def noise_multiplier(query: Query) -> float:
    """Return the noise multiplier of the event that is charged; 0 where it has none."""
    event = query.event()
    return float(event.noise_multiplier) if isinstance(event, dp_event.GaussianDpEvent) else 0.0


def family_of(query: Query) -> str:
    """Return the family of the noise that the charged event is about."""
    event = query.event()
    if isinstance(event, dp_event.GaussianDpEvent):
        return GAUSSIAN
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return BIT
    return NONE if isinstance(event, dp_event.NonPrivateDpEvent) else OTHER
