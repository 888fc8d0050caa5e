"""What a round announces and releases, for tests of what is charged for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedpriv.privacy.mechanisms import Announcement, GaussianQuery, Group, JointQuery, Release
from fedpriv.privacy.mechanisms.announcement import Sample


def group_of(
    joint: JointQuery, clients: np.ndarray, times: int = 1, lowest: JointQuery | None = None
) -> Group:
    """``clients`` that release this ``times`` times a round."""
    return Group(clients, Sample(joint, times, lowest or joint))


def announced(
    joint: JointQuery, clients: np.ndarray, times: int = 1, lowest: JointQuery | None = None
) -> Announcement:
    """A round in which all of ``clients`` would release this."""
    return Announcement(0, (group_of(joint, clients, times, lowest),))


def released(
    joint: JointQuery,
    clients: np.ndarray,
    sensitivity: Mapping[str, np.ndarray] | None = None,
    count: int = 1,
) -> Release:
    """The record of it, with the least noise that it may have; sensitivity 1 unless given."""
    known = sensitivity or {query.name: np.ones(len(clients)) for query in joint.queries}
    noise_std = {
        query.name: query.noise_multiplier * known[query.name]
        for query in joint.queries
        if isinstance(query, GaussianQuery) and query.protects
    }
    return Release(joint, clients, known, noise_std, count=count)
