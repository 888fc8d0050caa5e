"""A mechanism: what every round releases, from the plan to the record of it.

    plan ──► the samples of a whole run, for forecasts and calibration
    announce(t) ──► what round t will release, from released and public state; the budget agrees to it
    open(announcement, cohort) ──► the round, which noises every answer and writes it down

All three read the same queries, so that what is planned, noised and charged is one number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from numbers import Real
from typing import TYPE_CHECKING, Protocol

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.attributes import is_own
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError, ReleaseError, show
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT
from fedpriv.privacy.core.sampling import Sampling, WholeData
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms.announcement import Announcement, Group, Sample
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import CLIP_STATISTIC, GRADIENT, JointQuery
from fedpriv.privacy.mechanisms.query import Query
from fedpriv.privacy.mechanisms.randomized_response import RandomizedBit
from fedpriv.privacy.mechanisms.round import OpenRound

if TYPE_CHECKING:
    from fedpriv.common.secret_streams import SecretStreams


class Asking(Protocol):
    """What a mechanism needs to know of a clipper; see :class:`fedpriv.privacy.clippers.Clipper`."""

    one_query_a_round: bool
    transforms: bool
    largest_noise_multiplier: float
    whole_steps: float | None

    @property
    def noised_by(self) -> str | None: ...

    def asks(self, round_index: int) -> bool: ...

    def asks_ever(self) -> bool: ...

    def describe(self) -> str: ...
    def query(self, round_index: int, noise_multiplier: float) -> Query | None: ...

    def kinds_of_rounds(self, rounds: int) -> dict[int, int]: ...

    def gradient_multiplier(self, noise_multiplier: float) -> float: ...


class LossAsked(Protocol):
    """See :class:`fedpriv.privacy.noise_schedules.LossQuery`."""

    @property
    def query(self) -> Query: ...


class Pacing(Protocol):
    """What a mechanism needs to know of a noise schedule; see
    :class:`fedpriv.privacy.noise_schedules.NoiseSchedule`."""

    adaptive: bool

    @property
    def lowest_known(self) -> bool: ...

    @property
    def known(self) -> bool: ...

    @property
    def loss_query(self) -> LossAsked | None: ...

    @property
    def planned_rounds(self) -> float | None: ...

    @property
    def total_noise_multiplier(self) -> float | None: ...

    def noise_multiplier(self, round_index: int) -> float: ...

    def lowest(self, round_index: int) -> float: ...


class Releasing(Protocol):
    """What a mechanism needs to know of an algorithm."""

    name: str
    private: bool
    unit: str
    trust: Trust
    samples_per_round: int

    @property
    def clients_per_round(self) -> int | None: ...

    @property
    def row_per_client(self) -> bool: ...

    def sampling_of(self, records: int) -> Sampling: ...

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Asking
    ) -> float: ...


class Mechanism:
    """Independent noise in every round: Gaussian, and randomized response for bits.

    The noise multiplier of a round is the schedule's; the clipper may ask one query beside the gradient's,
    on the same sample.

    Attributes:
        charged_at_once: So many rounds are charged together, in the first of them; None: each is by itself.
        before: What every client answers once, about all of its records, before round 1; None: nothing.
        uploads_apart: Whether each client's upload is released by itself, for a rule that combines them.
    """

    charged_at_once: int | None = None
    before: Query | None = None
    uploads_apart: bool = False

    @fact
    def most_noise(self) -> str:
        """The reason why there is a largest noise, for an error; empty: there is none."""
        return ""

    def __init__(self, algorithm: Releasing, clipper: Asking, schedule: Pacing):
        self.algorithm, self.clipper, self.schedule = algorithm, clipper, schedule
        self._groups: list[tuple[Sampling, np.ndarray]] = []
        self._fixed: Pacing | None = None  # as it was before it observed anything
        self._last: tuple[object, tuple[Group, ...]] = (None, ())  # what the groups released last
        self.clients = 0

    # ---- what is released

    def joint(self, sampling: Sampling, noise_multiplier: float, round_index: int) -> JointQuery:
        """What one participant answers on one sample in round t. Raises ConfigError, ArgumentError."""
        upload = self._upload(sampling, noise_multiplier, round_index)
        asked = self._loss_query()
        if asked is None or not self._asked_on_the_upload(sampling):
            return upload
        return JointQuery(sampling, (*upload.queries, asked))

    def _upload(self, sampling: Sampling, noise_multiplier: float, round_index: int) -> JointQuery:
        algorithm, clipper = self.algorithm, self.clipper
        _refuse_bad_multiplier(noise_multiplier)
        multiplier = algorithm.gradient_multiplier(noise_multiplier, sampling, clipper)
        queries: list[Query] = [GaussianQuery(GRADIENT, multiplier)]
        statistic = clipper.query(round_index, noise_multiplier)
        if statistic is not None:
            _refuse_bad_query(statistic, clipper)
            if clipper.one_query_a_round and algorithm.samples_per_round > 1:
                raise ConfigError(
                    "algorithm.local_steps", algorithm.samples_per_round, "1 with this clipper"
                )
            queries.append(statistic)
        return JointQuery(sampling, tuple(map(self._noised_by_whom, queries)))

    def _noised_by_whom(self, query: Query) -> Query:
        if self.algorithm.unit == "record":
            if isinstance(query, RandomizedBit):
                raise ConfigError(
                    "clipper.bit_mechanism",
                    "randomized_response",
                    "gaussian with this algorithm",
                    "randomized response is for one bit per client (algorithm=ldp_fedsgd)",
                )
            return query.noised_by(CLIENT)
        if self.algorithm.trust.sees_each_upload:
            return query  # by each client, or by an aggregator that the clipper names
        if self.clipper.noised_by == CLIENT and query.name != GRADIENT:
            if isinstance(query, RandomizedBit):
                query.noised_by(AGGREGATOR)
            raise ConfigError("clipper.noised_by", CLIENT, "aggregator with a trusted server")
        return query.noised_by(AGGREGATOR)

    def joint_before(self, sampling: Sampling) -> JointQuery | None:
        """What every client answers before the first round; None: nothing."""
        if self.before is None:
            return None
        return JointQuery(WholeData(sampling.neighbours), (self._noised_by_whom(self.before),))

    def _loss_query(self) -> Query | None:
        asked = self.schedule.loss_query
        return None if asked is None else asked.query

    def _asked_on_the_upload(self, sampling: Sampling) -> bool:
        """A loss is asked of all records: on the sample of the upload only where that is all records too."""
        return sampling.whole and self.algorithm.samples_per_round == 1

    # ---- before a round

    def join(self, records_per_client: Sequence[int] | np.ndarray) -> None:
        """Take note of the clients: those that sample alike release alike."""
        groups: dict[Sampling, list[int]] = {}
        for client, records in enumerate(records_per_client):
            groups.setdefault(self.algorithm.sampling_of(int(records)), []).append(client)
        self._groups = [(sampling, np.array(own)) for sampling, own in groups.items()]
        self._last = (None, ())
        self.clients = len(records_per_client)
        self._fixed = None if self.schedule.adaptive else deepcopy(self.schedule)

    def announce(self, round_index: int, noise_multiplier: float | None = None) -> Announcement:
        """What each client releases if it takes part in round t: a function of what was released before.

        ``noise_multiplier``: another one than the schedule's, for an audit.
        """
        if not self.algorithm.private:
            return Announcement(round_index, ())
        sigma = noise_multiplier
        if sigma is None:
            sigma = self.schedule.noise_multiplier(round_index)
            if self._fixed is not None and self._fixed.noise_multiplier(round_index) != sigma:
                raise ReleaseError(
                    f"noise_schedule changed the noise multiplier of round {round_index + 1} after it was "
                    "planned; a schedule that follows what it observes sets adaptive = True"
                )
        lowest = self.schedule.lowest(round_index) if noise_multiplier is None else sigma
        asked = self._loss_query()
        # a round of the same kind as the one before it releases the same
        first = round_index == 0 and self.charged_at_once is not None
        kind = (sigma, lowest, asked, self.clipper.query(round_index, sigma), first)
        if kind != self._last[0] or any(map(is_own, (self, self.algorithm, self.clipper))):
            groups = tuple(
                self.group(sampling, sigma, round_index, clients, lowest)
                for sampling, clients in self._groups
            )
            self._last = (kind, groups)
        before = None if self.before is None else self.joint_before(self._groups[0][0])
        name = None if asked is None else asked.name
        return Announcement(round_index, self._last[1], name, before)

    def announce_before(self) -> Announcement:
        """What each client releases before the first round."""
        groups = []
        for sampling, clients in self._groups:
            joint = self.joint_before(sampling)
            assert joint is not None
            groups.append(Group(clients, Sample(joint, 1, joint)))
        return Announcement(0, tuple(groups))

    def group(
        self,
        sampling: Sampling,
        noise_multiplier: float,
        round_index: int,
        clients: np.ndarray | None = None,
        lowest: float | None = None,
    ) -> Group:
        """What clients with this sampling release in round t."""
        joint = self.joint(sampling, noise_multiplier, round_index)
        least = joint
        if lowest is not None and lowest != noise_multiplier:
            least = self.joint(sampling, lowest, round_index)
        after = None
        asked = self._loss_query()
        if asked is not None and asked.name not in joint.names:
            apart = JointQuery(WholeData(sampling.neighbours), (asked,))
            after = Sample(apart, 1, apart)
        upload = Sample(joint, self.algorithm.samples_per_round, least)
        return Group(np.zeros(0, dtype=np.int64) if clients is None else clients, upload, after)

    # ---- before a run

    def plan(
        self, sampling: Sampling, noise_multiplier: float, rounds: int, samples: int | None = None
    ) -> Counter[JointQuery]:
        """What a client in every one of ``rounds`` rounds releases, or in so many ``samples`` of them.

        What is released before the first round is among it, once. A clipper that asks something in some
        rounds only is taken to ask this client every time. A mechanism whose :meth:`joint` depends on the
        round in another way than by the clipper has a plan of its own.
        """
        each = self.algorithm.samples_per_round
        left = rounds * each if samples is None else samples
        counts: Counter[JointQuery] = Counter()
        for round_index, often in self.clipper.kinds_of_rounds(rounds).items():
            count = min(left, often * each)
            group = self.group(sampling, noise_multiplier, round_index)
            counts[group.upload.joint] += count
            if group.after is not None:
                counts[group.after.joint] += math.ceil(count / each)
            left -= count
        if (before := self.joint_before(sampling)) is not None:
            counts[before] += 1
        return Counter({joint: count for joint, count in counts.items() if count})

    def bound(self, sampling: Sampling) -> dict[dp_event.DpEvent, int] | None:
        """What no run of an adaptive schedule spends more than on a client, in the sound view; ``None``
        where there is no such bound."""
        sigma, rounds = self.schedule.total_noise_multiplier, self.schedule.planned_rounds
        if sigma is None or rounds is None:
            return None
        uploads = self.joint(sampling, sigma, 0).only(GRADIENT)
        bound = Counter({uploads.event(): 1})
        for round_index, count in self.clipper.kinds_of_rounds(math.ceil(rounds)).items():
            group = self.group(sampling, sigma, round_index)
            rest = group.upload.joint.only(*group.upload.joint.names - {GRADIENT})
            if rest.queries:
                bound[rest.event()] += count * group.upload.times
            if group.after is not None:
                bound[group.after.joint.event()] += count
        plain = all(isinstance(event, dp_event.GaussianDpEvent) for event in bound)
        return bound if plain else None

    # ---- the round

    def open(
        self,
        announcement: Announcement,
        cohort: np.ndarray,
        streams: SecretStreams,
        charged: np.ndarray | None = None,
    ) -> OpenRound:
        """The round with the clients in ``cohort`` [c], ascending; ``charged`` [p]: who pays for it
        (default: those whose part in it is seen)."""
        if charged is None:
            charged = self.algorithm.trust.charged(cohort, self.clients)
        return OpenRound(
            announcement,
            cohort,
            charged,
            streams,
            trust=self.algorithm.trust,
            row_per_client=self.algorithm.row_per_client,
            uploads_apart=self.uploads_apart,
        )

    def state_dict(self) -> dict[str, object]:
        """Nothing: each round's noise is independent, and the schedule and clipper keep their own state."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what ``state_dict`` gave."""


def _refuse_bad_multiplier(sigma: object) -> None:
    """Raise ConfigError for what is no noise multiplier."""
    if not isinstance(sigma, (float, Real)) or not 0 <= float(sigma) < math.inf:
        raise ConfigError(
            f"noise_schedule: noise_multiplier must return a finite number >= 0, got {show(sigma)}"
        )


def _refuse_bad_query(query: object, clipper: Asking) -> None:
    """Raise ConfigError for what is no query of a clipper."""
    if not isinstance(query, Query) or query.name != CLIP_STATISTIC:
        raise ConfigError(
            f"clipper: {type(clipper).__name__}.query must return None or a query named {CLIP_STATISTIC!r}, "
            f"such as GaussianQuery({CLIP_STATISTIC!r}, noise_multiplier), got {show(query)}"
        )
