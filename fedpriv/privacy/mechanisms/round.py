"""One round's releases, each held against what was announced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.mechanisms.announcement import Announcement, Group
from fedpriv.privacy.mechanisms.bounded import Bounded
from fedpriv.privacy.mechanisms.joint import GRADIENT, JointQuery
from fedpriv.privacy.mechanisms.query import Noising, Query
from fedpriv.privacy.mechanisms.release import Release, refuse_too_little_noise
from fedpriv.privacy.mechanisms.visible import Unprotected, Visible, released
from fedpriv.privacy.trust import Trust

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.common.secret_streams import SecretStreams, Stream

Measured = tuple[np.ndarray, np.ndarray | None]  # sensitivity and noise std of one query's answers


class OpenRound:
    """A round between its announcement and its charge.

    Answers have a row for each client of the cohort (``row_per_client``: each noises its own), or one row for
    all of it. Raises ReleaseError for anything that was not announced, before it is let go.

    ``aborted``: nothing is released, because too few take part; ``facts``: what the server sees of the round
    beside what it released, as columns of a row.
    """

    aborted = False
    facts: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        announcement: Announcement,
        cohort: np.ndarray,
        charged: np.ndarray,
        streams: SecretStreams,
        *,
        trust: Trust,
        row_per_client: bool,
    ):
        self.announcement, self.cohort, self.streams = announcement, cohort, streams
        self.round_index = announcement.round_index
        self._charged, self._trust, self._row_per_client = charged, trust, row_per_client
        self._groups = [g for g in announcement.groups if len(self._rows(g)) or not row_per_client]
        self._steps: list[dict[str, Measured]] = []
        self._after: Measured | None = None
        self._drawn: object | None = None
        self._added: dict[str, np.ndarray] = {}

    def _rows(self, group: Group) -> np.ndarray:
        """The rows that are of clients of this group, ascending."""
        return np.flatnonzero(np.isin(self.cohort, group.clients))

    # ---- releasing

    def begin_step(self, size: int) -> None:
        """Let the gradient's noise, ``size`` numbers a row, be drawn while the gradients are computed."""
        from fedpriv.privacy.noise import Noise

        self._drawn = None
        query = self._query(GRADIENT)
        if query is not None and query.protects:
            self._drawn = Noise(self._streams_of(query), size)

    def release(self, answers: Mapping[str, Bounded]) -> dict[str, Visible]:
        """Noise what one step answers and write it down; the answers are used up."""
        self._refuse_unannounced(frozenset(answers))
        measured: dict[str, Measured] = {}
        visible: dict[str, Visible] = {}
        for name, answer in answers.items():
            visible[name], measured[name] = self._release(name, answer)
        self._note(visible)
        self._steps.append(measured)
        return visible

    def release_after(self, name: str, answer: Bounded) -> Visible:
        """The same for what clients answer once the model has moved."""
        if name != self.announcement.asked_after or self._after is not None:
            raise self._not_announced(name)
        if self._trust.secret_cohort:
            raise ReleaseError(
                f"round {self.round_index + 1}: the mean of {name} over a cohort would tell how many took "
                "part, which is secret here"
            )
        visible, self._after = self._release(name, answer)
        self._note({name: visible})
        return visible

    def _note(self, visible: Mapping[str, Visible]) -> None:
        """Let the streams that follow depend on what was released."""
        self.streams.note("released", {name: value.values for name, value in visible.items()})

    def _release(self, name: str, answer: Bounded) -> tuple[Visible, Measured]:
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"round {self.round_index + 1}: {name} is a {type(answer).__name__}, not a Bounded: what is "
                "released has a sensitivity that a clipper or a bounded statistic enforced"
            )
        query = self._query(name)
        if query is None:  # an algorithm that claims no privacy
            return Unprotected(answer.values), (_numbers(answer.sensitivity), None)
        if answer.replaced > query.replaced:
            raise ReleaseError(
                f"round {self.round_index + 1}: a unit replaced moves {name} by {answer.replaced:g} times as "
                f"much as one more, and {query.replaced:g} times was announced"
            )
        sensitivity, added = _numbers(answer.sensitivity), None
        if query.protects:
            added = self._noise(name, query, answer)
        return released(answer.values, query.protects), (sensitivity, added)

    def _noise(self, name: str, query: Query, answer: Bounded) -> np.ndarray | None:
        """Noise the answer, and return the standard deviation of what was added, if that is a number."""
        reports = 1 if self._row_per_client else len(self.cohort)
        multipliers = self._multipliers(name, answer.values)
        noising = Noising(
            self._streams_of(query, answer.of_reports),
            multipliers,
            self._trust.shares(query.by, reports),
            self._drawn if name == GRADIENT else None,
        )
        sensitivity = _numbers(answer.sensitivity)
        std = query.release(answer, noising)
        if std is None:
            return None
        asked = getattr(query, "noise_multiplier", 0.0)
        wanted = np.float64(asked) if multipliers is None else _numbers(multipliers)
        added = _numbers(std)
        refuse_too_little_noise(name, wanted, sensitivity, added * math.sqrt(query.honest))
        self._added[name] = added * (math.sqrt(noising.shares) / answer.divided_by)
        return added

    def noise_std(self, name: str) -> np.ndarray | None:
        """The standard deviation of the noise in the last release of that name, of each row [m]; public, as
        noise multiplier, clip norm and denominator are. None: it was released without noise."""
        return self._added.get(name)

    def _query(self, name: str) -> Query | None:
        """The query of that name; None where no privacy is claimed."""
        for group in self._groups:
            for sample in group.samples:
                if name in sample.joint.names:
                    return sample.joint.query(name)
        if self.announcement.groups:
            raise self._not_announced(name)
        return None

    def _streams_of(self, query: Query, of_reports: bool = False) -> list[Stream]:
        """One for each row."""
        noise, t = self.streams.noise, self.round_index
        if of_reports:
            return [noise(query.name, t)]
        if not self._row_per_client:
            step = len(self._steps)
            return [noise(query.purpose_of_all, t, *([step] if step else []))]
        return [noise(query.name, t, len(self._steps), client) for client in self.cohort]

    def _multipliers(self, name: str, like: Tensor) -> Tensor | None:
        """That of each row [c], where clients of several groups have their own."""
        if not self._row_per_client or len(self._groups) < 2 or len(like) != len(self.cohort):
            return None
        found = np.empty(len(self.cohort))
        for group in self._groups:
            found[self._rows(group)] = group.upload.joint.query(name).noise_multiplier
        return like.new_tensor(found, dtype=like.double().dtype)

    # ---- held against the announcement

    def _refuse_unannounced(self, names: frozenset[str]) -> None:
        for group in self._groups:
            announced = self.announcement.names(group)
            if names - announced:
                raise self._not_announced(", ".join(sorted(names - announced)))
            if announced - names:
                raise self._not_released(", ".join(sorted(announced - names)))

    def _not_announced(self, what: str) -> ReleaseError:
        return ReleaseError(
            f"round {self.round_index + 1} released {what}, which was not announced: a run releases what its "
            "budget agreed to, and nothing of this round was applied"
        )

    def _not_released(self, what: str) -> ReleaseError:
        return ReleaseError(
            f"round {self.round_index + 1} did not release {what}, which was announced: nothing of this "
            "round was applied"
        )

    def refuse_unless_complete(self) -> None:
        """Called before anything is applied: every announced sample of the uploads has been released."""
        for group in self._groups:
            if len(self._steps) != group.upload.times:
                raise self._not_released(
                    f"{group.upload.times} samples of each client (it released {len(self._steps)})"
                )

    # ---- the record

    def close(self) -> tuple[Release, ...]:
        """What was released, a record for each group of clients and sample. Raises ReleaseError where
        something that was announced is missing."""
        self.refuse_unless_complete()
        asked = self.announcement.asked_after
        if self._groups and asked is not None and self._after is None:
            raise ReleaseError(
                f"round {self.round_index + 1} did not release {asked}, which was announced: nothing of this "
                "round is charged or saved"
            )
        return tuple(r for group in self._groups for r in self._records(group))

    def _records(self, group: Group) -> list[Release]:
        members = self._charged[np.isin(self._charged, group.clients)]
        if not len(members):
            return []
        places = np.searchsorted(self.cohort, members)
        found = []
        for step in self._steps:
            measured = dict(step)
            if self._after is not None and group.after is None:
                measured[self.announcement.asked_after] = self._after
            found.append(self._record(group.upload.joint, members, places, measured))
        if group.after is not None:
            measured = {self.announcement.asked_after: self._after}
            found.append(self._record(group.after.joint, members, places, measured))
        return found

    def _record(
        self,
        joint: JointQuery,
        members: np.ndarray,
        places: np.ndarray,
        measured: Mapping[str, Measured],
    ) -> Release:
        def own(values: np.ndarray) -> np.ndarray:
            return values if len(values) == 1 else values[places]  # one number for all

        reports = 1 if self._row_per_client else len(self.cohort)
        return Release(
            joint,
            members,
            {name: own(sensitivity) for name, (sensitivity, _) in measured.items()},
            {name: own(std) for name, (_, std) in measured.items() if std is not None},
            {query.name: self._trust.shares(query.by, reports) for query in joint.queries},
        )


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().reshape(-1).copy()
