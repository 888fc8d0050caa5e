"""One round's releases, each compared with the announcement before it leaves the mechanism."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.attributes import is_own
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms.announcement import Announcement, Group
from fedpriv.privacy.mechanisms.bounded import Bounded
from fedpriv.privacy.mechanisms.joint import GRADIENT, JointQuery
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

    :meth:`release` noises the answers of one local step, :meth:`release_after` the loss of the new weights,
    and :meth:`close` returns the records. An answer that was not announced, states a larger sensitivity, or
    gets less noise than announced raises ``ReleaseError`` before anything is seen.

    Attributes:
        round_index: t.
        aborted: Whether too few clients take part, so that nothing is released.

    Args:
        announcement: The queries that were announced.
        cohort: Positions of the clients that take part [c], ascending.
        charged: Positions of the clients that are charged [p].
        streams: Secret streams of the run.
        trust: Who sees which uploads and who adds the noise.
        row_per_client: Whether answers have one row for each client of the cohort, noised by that client. If
            not, one row belongs to the whole cohort.
        uploads_apart: Whether uploads have one row for each client, whatever the other answers have.
    """

    aborted = False

    @fact
    def facts(self) -> Mapping[str, object]:
        """Columns of the round's row in the metrics that the server sees beside the released values.

        There are none unless a subclass has some.
        """
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
        self._rows: list[np.ndarray] = []  # of each group: the rows of its clients, ascending
        alike = len(announcement.groups) == 1  # all clients belong to the one group
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
        self._digest = hashlib.blake2b(digest_size=8)

    def charges(self) -> list[tuple[JointQuery, int, np.ndarray]]:
        """Return what the round will be charged for: (joint query, number of samples, clients).

        The answer is known before anything is computed. It has a row even where the number is 0.
        """
        charges = []
        for group in self._groups:
            if len(members := self._members(group)):
                charges += [(sample.joint, sample.times, members) for sample in group.samples]
        return charges

    @property
    def digest(self) -> str:
        """Digest of all that was released so far, bit for bit: 16 hexadecimal digits."""
        return self._digest.hexdigest()

    # ---- releasing

    def begin_step(self, size: int) -> None:
        """Start drawing the noise of the gradients, so that it is drawn while the gradients are computed.

        Args:
            size: d, the numbers of one row.
        """
        from fedpriv.privacy.core.noise import Noise

        self._drawn = None
        query = self._query(GRADIENT)
        if query is not None and query.protects:
            self._drawn = Noise(self._streams_of(query), size)

    def release(self, answers: Mapping[str, Bounded]) -> dict[str, Visible]:
        """Noise the answers of one local step and record them. The answers are overwritten.

        Args:
            answers: One bounded answer for each announced query, by its name.

        Returns:
            The noised answers by name, or the answers as they are where no privacy is claimed.

        Raises:
            ReleaseError: The queries are not the announced ones, or an answer breaks its announcement.
                Nothing of the round is charged or saved.
        """
        for group in self._groups:
            announced = group.names - {self.announcement.asked_after}
            if unannounced := answers.keys() - announced:
                raise self._not_announced(", ".join(sorted(unannounced)))
            if missing := announced - answers.keys():
                raise self._not_released(", ".join(sorted(missing)))
        measured: dict[str, Measured] = {}
        visible: dict[str, Visible] = {}
        for name, answer in answers.items():
            visible[name], measured[name] = self._release(name, answer)
        self._steps.append(measured)
        return visible

    def release_after(self, name: str, answer: Bounded) -> Visible:
        """Noise the answers that clients give once the model has moved: the loss of the new weights.

        Args:
            name: Name of the query.
            answer: The bounded answer, which is overwritten.

        Returns:
            The noised answer.

        Raises:
            ReleaseError: The query was not announced, was answered already, or would tell a secret cohort
                size.
        """
        if name != self.announcement.asked_after or self._after is not None:
            raise self._not_announced(name)
        if self._trust.secret_cohort:
            raise ReleaseError(
                f"round {self.round_index + 1}: the mean of {name} over a cohort would tell how many took "
                "part, which is secret here"
            )
        visible, self._after = self._release(name, answer)
        return visible

    def _release(self, name: str, answer: Bounded) -> tuple[Visible, Measured]:
        if not isinstance(answer, Bounded):
            raise ReleaseError(
                f"round {self.round_index + 1}: {name} must be a Bounded, whose sensitivity a clipper or a "
                f"bounded statistic enforced, got a {type(answer).__name__}"
            )
        query = self._query(name)
        if query is None:  # an algorithm that claims no privacy
            return Unprotected(answer.values), (_numbers(answer.sensitivity), None)
        if answer.replaced > query.replaced:
            raise ReleaseError(
                f"round {self.round_index + 1}: replacing a unit moves {name} {answer.replaced:g} times as "
                f"far as adding one, and at most {query.replaced:g} times was announced"
            )
        sensitivity, added = _numbers(answer.sensitivity), None
        if query.protects:
            added = self._noise(name, query, answer)
        self._digest.update(name.encode())
        self._digest.update(answer.values.detach().cpu().contiguous().numpy().data)
        return released(answer.values, query.protects), (sensitivity, added)

    def _noise(self, name: str, query: Query, answer: Bounded) -> np.ndarray | None:
        reports = self._reports(name)
        multipliers = (
            None  # of each row, where the cohort's clients belong to groups with different ones
        )
        if (
            self._is_apart(name)
            and len(self._groups) > 1
            and len(answer.values) == len(self.cohort)
        ):
            group_multipliers = np.empty(len(self.cohort))
            for group, rows in zip(self._groups, self._rows, strict=True):
                group_multipliers[rows] = group.upload.joint.query(name).noise_multiplier
            multipliers = answer.values.new_tensor(
                group_multipliers, dtype=answer.values.double().dtype
            )
        drawn = self._drawn if name == GRADIENT else None
        # The streams of noise that is drawn already are not made again, one for each client.
        makes_streams = drawn is None or is_own(query)
        noising = Noising(
            self._streams_of(query, answer.of_reports) if makes_streams else (),
            multipliers,
            self._trust.shares(query.by, reports),
            drawn,
        )
        sensitivity = _numbers(answer.sensitivity)
        std = query.release(answer, noising)
        if std is None:
            return None
        stated = getattr(query, "noise_multiplier", 0.0)
        row_multipliers = np.float64(stated) if multipliers is None else _numbers(multipliers)
        added = _numbers(std)
        refuse_too_little_noise(name, row_multipliers, sensitivity, added * math.sqrt(query.honest))
        self._added[name] = added * (math.sqrt(noising.shares) / answer.divided_by)
        return added

    def _is_apart(self, name: str) -> bool:
        return self._row_per_client or (self._uploads_apart and name == GRADIENT)

    def _reports(self, name: str) -> int:
        """Return the number of reports that one row of the answers to a query adds up."""
        return 1 if self._is_apart(name) else len(self.cohort)

    def noise_std(self, name: str) -> np.ndarray | None:
        """Return the standard deviation of the noise in the last release of a query.

        The number is public, as noise multiplier, clip norm and denominator are.

        Args:
            name: Name of the query.

        Returns:
            The standard deviation of each row [m], in units of the released values and with the shares of all
            clients together; None if the query was not released, or released without added noise.
        """
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
        # A stream is named by query, round, step and client, so that no noise is ever used twice.
        noise, t = self.streams.noise, self.round_index
        if of_reports:
            return [noise(query.name, t)]
        if not self._is_apart(query.name):
            step = len(self._steps)
            return [noise(query.purpose_of_all, t, *([step] if step else []))]
        return [noise(query.name, t, len(self._steps), client) for client in self.cohort]

    # ---- comparison with the announcement

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
        """Check that every announced sample of the uploads was released, before anything is applied.

        Raises:
            ReleaseError: A sample is missing.
        """
        for group in self._groups:
            if len(self._steps) != group.upload.times:
                raise self._not_released(
                    f"{group.upload.times} samples of each client (it released {len(self._steps)})"
                )

    # ---- the record

    def close(self) -> tuple[Release, ...]:
        """Return the records of what was released, one for each group of clients and sample.

        Raises:
            ReleaseError: An announced answer is missing.
        """
        self.refuse_unless_complete()
        name_after, after = self.announcement.asked_after, self._after
        if self._groups and name_after is not None and after is None:
            raise self._not_released(name_after)
        releases = []
        for group in self._groups:
            if not len(members := self._members(group)):
                continue
            samples = [(group.upload.joint, dict(step)) for step in self._steps]
            if name_after is not None and after is not None:
                if group.after is not None:
                    samples.append((group.after.joint, {name_after: after}))
                else:  # the query was asked on the upload's sample
                    for _, answers in samples:
                        answers[name_after] = after
            for joint, answers in samples:
                sensitivity = {
                    name: self._of_members(moved, members) for name, (moved, _) in answers.items()
                }
                noise_std = {
                    name: self._of_members(added, members)
                    for name, (_, added) in answers.items()
                    if added is not None
                }
                shares = {
                    q.name: self._trust.shares(q.by, self._reports(q.name)) for q in joint.queries
                }
                releases.append(Release(joint, members, sensitivity, noise_std, shares))
        return tuple(releases)

    def _members(self, group: Group) -> np.ndarray:
        """Return the clients of a group that are charged."""
        if len(self.announcement.groups) == 1:
            return self._charged
        return self._charged[np.isin(self._charged, group.clients)]

    def _of_members(self, numbers: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Return the numbers of the rows of these clients of the cohort. A single number holds for all."""
        return numbers if len(numbers) == 1 else numbers[np.searchsorted(self.cohort, members)]


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy().reshape(-1).copy()
