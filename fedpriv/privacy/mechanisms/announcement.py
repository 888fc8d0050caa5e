"""What a round is about to release: public before it runs, agreed with the budget, and held against it."""

from __future__ import annotations

from collections.abc import Iterable
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
    """One sample that a participant answers on.

    Attributes:
        joint: What is answered on it.
        times: How often in the round it is drawn anew (a sample for each local step).
        lowest: The same at the smallest noise multiplier that the schedule could have reached by this round,
            whatever the data: what an adaptive run without a filter is charged.
    """

    joint: JointQuery
    times: int
    lowest: JointQuery


@dataclass(frozen=True)
class Group:
    """Clients that release alike: all of them, unless how they are sampled depends on their records.

    Attributes:
        clients: Positions among all K [m].
        upload: The sample their upload is computed on.
        after: The one they answer a schedule's query on once the model has moved; None: that query is asked
            on the upload's sample, or not at all.
    """

    clients: np.ndarray
    upload: Sample
    after: Sample | None = None

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        return (self.upload,) if self.after is None else (self.upload, self.after)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of what is answered on the sample of the upload."""
        return self.upload.joint.names

    def event(self) -> tuple[dp_event.DpEvent, int]:
        """(an event, how often): all that a participant of this group releases in the round."""
        return _whole([(sample.joint.event(), sample.times) for sample in self.samples])


@dataclass(frozen=True)
class Announcement:
    """What each client releases if it takes part in the round.

    Attributes:
        round_index: t = 0, 1, …
        groups: A partition of the clients; empty where the algorithm claims no privacy.
        asked_after: The name of the query that is answered once the model has moved; None: there is none.
        before: What every client released before the first round, without whose charge no round is charged;
            None: nothing.
    """

    round_index: int
    groups: tuple[Group, ...]
    asked_after: str | None = None
    before: JointQuery | None = None

    def refuse_others(self, releases: Iterable[Release]) -> None:
        """Raise ReleaseError for a release that was not announced."""
        announced = {sample.joint for group in self.groups for sample in group.samples}
        for release in releases:
            if release.joint not in announced:
                words = " ".join(query.describe() for query in release.joint.queries)
                raise ReleaseError(f"{words} was released and is not what the round announced")


def _whole(events: list[tuple[dp_event.DpEvent, int]]) -> tuple[dp_event.DpEvent, int]:
    if len(events) == 1:
        return events[0]
    return dp_event.ComposedDpEvent(tuple(e for e, times in events for _ in range(times))), 1
