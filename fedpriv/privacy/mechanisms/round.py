"""One round's releases, each held against what was announced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms.announcement import Announcement, Group
from fedpriv.privacy.mechanisms.bounded import Bounded
from fedpriv.privacy.mechanisms.joint import GRADIENT
from fedpriv.privacy.mechanisms.query import Noising, Query
from fedpriv.privacy.mechanisms.release import Release, refuse_too_little_noise
from fedpriv.privacy.mechanisms.visible import Unprotected, Visible, released

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.common.secret_streams import SecretStreams, Stream
    from fedpriv.privacy.core.noise import Noise

Measured = tuple[np.ndarray, np.ndarray | None]  # sensitivity and noise std of one query's answers


class OpenRound:
    """A round between its announcement and its charge.

    Answers have a row for each client of the cohort (``row_per_client``: each noises its own), or one row for
    all of it; with ``uploads_apart`` the uploads have a row each, whatever the others have. Raises
    ReleaseError for anything that was not announced, before it is let go.

    ``aborted``: nothing is released, because too few take part; ``facts``: what the server sees of the round
    beside what it released, as columns of a row.
    """

    aborted = False

    @fact
    def facts(self) -> Mapping[str, object]:
        return {}

    def __init__(
        self,
        announcement: Announcement,
        cohort: np.ndarray,
        charged: np.ndarray,
        streams: SecretStreams,
        *,
        trust: Trust,
        row_per_client: bool,
        uploads_apart: bool = False,
    ):
        self.announcement, self.cohort, self.streams = announcement, cohort, streams
        self.round_index = announcement.round_index
        self._charged, self._trust, self._row_per_client = charged, trust, row_per_client
        self._uploads_apart = uploads_apart
        self._groups: list[Group] = []
        self._rows: list[np.ndarray] = []  # those that are of clients of each group, ascending
        alike = len(announcement.groups) == 1  # all clients are of the one group
        for group in announcement.groups:
            rows = np.arange(len(cohort))
            if not alike:
                rows = np.flatnonzero(np.isin(cohort, group.clients))
            if len(rows) or not row_per_client:
                self._groups.append(group)
                self._rows.append(rows)
        self._steps: list[dict[str, Measured]] = []
        self._after: Measured | None = None
        self._drawn: Noise | None = None
        self._added: dict[str, np.ndarray] = {}

    # ---- releasing

    def begin_step(self, size: int) -> None:
        """Let the gradient's noise, ``size`` numbers a row, be drawn while the gradients are computed."""
        from fedpriv.privacy.core.noise import Noise

        self._drawn = None
        query = self._query(GRADIENT)
        if query is not None and query.protects:
            self._drawn = Noise(self._streams_of(query), size)

    def release(self, answers: Mapping[str, Bounded]) -> dict[str, Visible]:
        """Noise what one step answers and write it down; the answers are used up."""
        for group in self._groups:
            announced = group.names - {self.announcement.asked_after}
            if more := answers.keys() - announced:
                raise self._not_announced(", ".join(sorted(more)))
            if missing := announced - answers.keys():
                raise self._not_released(", ".join(sorted(missing)))
        measured: dict[str, Measured] = {}
        visible: dict[str, Visible] = {}
        for name, answer in answers.items():
            visible[name], measured[name] = self._release(name, answer)
        # the streams that follow may depend on what was released
        self.streams.bind("released", {name: value.values for name, value in visible.items()})
        self._steps.append(measured)
        return visible

    def release_after(self, name: str, answer: Bounded) -> Visible:
        """Noise what clients answer once the model has moved (the loss of the new weights)."""
        if name != self.announcement.asked_after or self._after is not None:
            raise self._not_announced(name)
        if self._trust.secret_cohort:
            raise ReleaseError(
                f"round {self.round_index + 1}: the mean of {name} over a cohort would tell how many took "
                "part, which is secret here"
            )
        visible, self._after = self._release(name, answer)
        self.streams.bind("released", {name: visible.values})
        return visible

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
        """Noise the answer; return the standard deviation of what was added, or None if it is no number."""
        reports = self._reports(name)
        multipliers = None  # that of each row, where clients of several groups have their own
        if (
            self._is_apart(name)
            and len(self._groups) > 1
            and len(answer.values) == len(self.cohort)
        ):
            of_rows = np.empty(len(self.cohort))
            for group, rows in zip(self._groups, self._rows, strict=True):
                of_rows[rows] = group.upload.joint.query(name).noise_multiplier
            multipliers = answer.values.new_tensor(of_rows, dtype=answer.values.double().dtype)
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

    def _is_apart(self, name: str) -> bool:
        """Return whether each client's answer to a query is noised by itself."""
        return self._row_per_client or (self._uploads_apart and name == GRADIENT)

    def _reports(self, name: str) -> int:
        """Return how many reports one row of the answers to a query adds up."""
        return 1 if self._is_apart(name) else len(self.cohort)

    def noise_std(self, name: str) -> np.ndarray | None:
        """The standard deviation of the noise in the last release of that name, of each row [m]; public, as
        noise multiplier, clip norm and denominator are. None: it was released without noise."""
        return self._added.get(name)

    def _query(self, name: str) -> Query | None:
        """Return the announced query of that name, or None where no privacy is claimed."""
        for group in self._groups:
            for sample in group.samples:
                for query in sample.joint.queries:
                    if query.name == name:
                        return query
        if self.announcement.groups:
            raise self._not_announced(name)
        return None

    def _streams_of(self, query: Query, of_reports: bool = False) -> list[Stream]:
        """One for each row."""
        noise, t = self.streams.noise, self.round_index
        if of_reports:
            return [noise(query.name, t)]
        if not self._is_apart(query.name):
            step = len(self._steps)
            return [noise(query.purpose_of_all, t, *([step] if step else []))]
        return [noise(query.name, t, len(self._steps), client) for client in self.cohort]

    # ---- held against the announcement

    def _not_announced(self, what: str) -> ReleaseError:
        return ReleaseError(
            f"round {self.round_index + 1} released {what}, which was not announced: a run releases what its "
            "budget agreed to; nothing of this round is charged or saved"
        )

    def _not_released(self, what: str) -> ReleaseError:
        return ReleaseError(
            f"round {self.round_index + 1} did not release {what}, which was announced: nothing of this "
            "round is charged or saved"
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
        """Return the records of what was released, one for each group of clients and sample.

        :meth:`release` notes sensitivity and noise of each answer; the records are made of these notes here.
        Raises ReleaseError where something that was announced is missing.
        """
        self.refuse_unless_complete()
        asked, after = self.announcement.asked_after, self._after
        if self._groups and asked is not None and after is None:
            raise ReleaseError(
                f"round {self.round_index + 1} did not release {asked}, which was announced: nothing of this "
                "round is charged or saved"
            )
        releases = []
        for group in self._groups:
            members = self._charged
            if len(self.announcement.groups) > 1:
                members = members[np.isin(members, group.clients)]
            if not len(members):
                continue
            rows = np.searchsorted(self.cohort, members)
            joint, measured = group.upload.joint, [dict(step) for step in self._steps]
            samples = [(joint, step) for step in measured]
            if asked is not None and after is not None:
                if group.after is not None:
                    samples.append((group.after.joint, {asked: after}))
                else:  # asked on the sample of the upload
                    for step in measured:
                        step[asked] = after
            for joint, answers in samples:
                sensitivity, noise_std = {}, {}
                for name, (moved, added) in answers.items():  # one number holds for all
                    sensitivity[name] = moved if len(moved) == 1 else moved[rows]
                    if added is not None:
                        noise_std[name] = added if len(added) == 1 else added[rows]
                shares = {
                    q.name: self._trust.shares(q.by, self._reports(q.name)) for q in joint.queries
                }
                releases.append(Release(joint, members, sensitivity, noise_std, shares))
        return tuple(releases)


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().reshape(-1).copy()
