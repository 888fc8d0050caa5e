"""Announcement of a round: the queries that each client will answer, from public values alone.

The budget agrees to an announcement before the round runs, and the round is later compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.mechanisms.joint import JointQuery

if TYPE_CHECKING:
    from fedpriv.privacy.mechanisms.release import Release


@dataclass(frozen=True)
class Sample:
    """One sample of a participant's records, and the queries that are answered on this sample.

    Attributes:
        joint: The sampling and all queries answered on the sample.
        times: Number of fresh samples in the round, one for each local step.
        lowest: The same queries at the smallest noise multiplier that the schedule could have reached by this
            round, whatever the data. An adaptive run without a filter is charged for these.
    """

    joint: JointQuery
    times: int
    lowest: JointQuery


@dataclass(frozen=True)
class Group:
    """Clients that release alike: all clients, unless the way they are sampled depends on their records.

    Attributes:
        clients: Positions of the clients among all K [m].
        upload: The sample that the upload is computed on.
        after: The sample on which a schedule's query is answered once the model has moved. None means that
            this query is answered on the upload's sample, or that there is no such query.
    """

    clients: np.ndarray
    upload: Sample
    after: Sample | None = None

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """All samples of the round: the upload's sample, and the later sample if there is one."""
        return (self.upload,) if self.after is None else (self.upload, self.after)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the queries that are answered on the upload's sample."""
        return self.upload.joint.names

    def event(self) -> tuple[dp_event.DpEvent, int]:
        """Return the event of a participant's releases in the round, and how often it occurs."""
        return as_one_event([(sample.joint.event(), sample.times) for sample in self.samples])


@dataclass(frozen=True)
class Announcement:
    """Queries that each client answers if it takes part in the round.

    Attributes:
        round_index: t = 0, 1, …
        groups: A partition of the clients. It is empty where the algorithm claims no privacy.
        asked_after: Name of the query that is answered once the model has moved, or None.
        before: Queries that every client answered before the first round, or None. No round is charged before
            these queries are charged.
    """

    round_index: int
    groups: tuple[Group, ...]
    asked_after: str | None = None
    before: JointQuery | None = None

    def refuse_others(self, releases: Iterable[Release]) -> None:
        """Check that every release was announced.

        Raises:
            ReleaseError: A release is not among the announced ones.
        """
        announced = {sample.joint for group in self.groups for sample in group.samples}
        for release in releases:
            if release.joint not in announced:
                queries = " ".join(query.describe() for query in release.joint.queries)
                raise ReleaseError(f"{queries} was released but not announced by the round")


def as_one_event(
    events: Sequence[tuple[dp_event.DpEvent, int]],
) -> tuple[dp_event.DpEvent, int]:
    """Return several events, each with how often it occurs, as one event and how often it occurs.

    A single pair is returned as it is. Several pairs become one composition of all their draws, which occurs
    once.
    """
    if len(events) == 1:
        return events[0]
    return dp_event.ComposedDpEvent(tuple(e for e, times in events for _ in range(times))), 1
