"""Mechanisms: the queries of every round, from the plan to the record of the release.

    plan ──► the samples of a whole run, for forecasts and calibration
    announce(t) ──► the queries of round t, from released and public state; the budget agrees to them
    open(announcement, cohort) ──► the round, which noises every answer and records it

All three read the same queries, so that one number is planned, noised and charged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    """The part of a clipper that a mechanism reads; see :class:`fedpriv.privacy.clippers.Clipper`."""

    one_query_a_round: bool
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
    """The part of a schedule's :class:`~fedpriv.privacy.noise_schedules.LossQuery` that a mechanism reads."""

    @property
    def query(self) -> Query: ...


class Pacing(Protocol):
    """The part of a noise schedule that a mechanism reads.

    See :class:`fedpriv.privacy.noise_schedules.NoiseSchedule`.
    """

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
    """The part of an algorithm that a mechanism reads."""

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
    """Independent noise in every round: Gaussian noise on sums, randomized response on bits.

    The schedule gives the noise multiplier of a round. The clipper may ask one more query beside the
    gradient's, on the same sample.

    Attributes:
        charged_at_once: Number of rounds that are charged together, in the first of them. None means that
            each round is charged by itself.
        before: Query that every client answers once about all of its records before round 1, or None.
        uploads_apart: Whether each client's upload is released by itself, for an aggregation rule.
        algorithm: Algorithm whose uploads are released.
        clipper: Clipper of the uploads, which may ask a query of its own.
        schedule: Noise schedule.
        clients: K, known after :meth:`join`.
    """

    charged_at_once: int | None = None
    before: Query | None = None
    uploads_apart: bool = False

    @fact
    def most_noise(self) -> str:
        """Reason why there is a largest possible noise, for an error message; empty if there is none."""
        return ""

    def __init__(self, algorithm: Releasing, clipper: Asking, schedule: Pacing):
        self.algorithm, self.clipper, self.schedule = algorithm, clipper, schedule
        self._groups: list[tuple[Sampling, np.ndarray]] = []
        self._fixed: Pacing | None = None  # as it was before it observed anything
        self._last: tuple[object, tuple[Group, ...]] = (None, ())  # what the groups released last
        self.clients = 0

    # ---- what is released

    def joint(self, sampling: Sampling, noise_multiplier: float, round_index: int) -> JointQuery:
        """Return the queries that one participant answers on one sample of round t.

        Args:
            sampling: How the participant samples its records.
            noise_multiplier: σ_t of the schedule.
            round_index: t.

        Raises:
            ConfigError: A query or the multiplier is invalid, or does not go with the algorithm.
            ArgumentError: The clipper cannot ask its query at this noise multiplier.
        """
        upload = self._upload(sampling, noise_multiplier, round_index)
        loss_query = self._loss_query()
        # The loss concerns all records. It is asked on the upload's sample only if that has all records too.
        if loss_query is not None and sampling.whole and self.algorithm.samples_per_round == 1:
            return JointQuery(sampling, (*upload.queries, loss_query))
        return upload

    def _upload(self, sampling: Sampling, noise_multiplier: float, round_index: int) -> JointQuery:
        algorithm, clipper = self.algorithm, self.clipper
        if not isinstance(noise_multiplier, (float, Real)) or not 0 <= noise_multiplier < math.inf:
            raise ConfigError(
                "noise_schedule: noise_multiplier must return a finite number >= 0, got "
                f"{show(noise_multiplier)}"
            )
        multiplier = algorithm.gradient_multiplier(noise_multiplier, sampling, clipper)
        queries: list[Query] = [GaussianQuery(GRADIENT, multiplier)]
        statistic = clipper.query(round_index, noise_multiplier)
        if statistic is not None:
            if not isinstance(statistic, Query) or statistic.name != CLIP_STATISTIC:
                raise ConfigError(
                    f"clipper: {type(clipper).__name__}.query must return None or a query named "
                    f"{CLIP_STATISTIC!r}, such as GaussianQuery({CLIP_STATISTIC!r}, noise_multiplier), "
                    f"got {show(statistic)}"
                )
            if clipper.one_query_a_round and algorithm.samples_per_round > 1:
                raise ConfigError(
                    "algorithm.local_steps", algorithm.samples_per_round, "1 with this clipper"
                )
            queries.append(statistic)
        return JointQuery(sampling, tuple(map(self._noised_by_whom, queries)))

    def _noised_by_whom(self, query: Query) -> Query:
        """Return the query with the party that adds its noise under the trust model of the algorithm."""
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
            return query  # noised by each client, or by an aggregator that the clipper names
        if self.clipper.noised_by == CLIENT and query.name != GRADIENT:
            if isinstance(query, RandomizedBit):
                query.noised_by(
                    AGGREGATOR
                )  # raises an error that names the clipper's bit_mechanism
            raise ConfigError("clipper.noised_by", CLIENT, "aggregator with a trusted server")
        return query.noised_by(AGGREGATOR)

    def joint_before(self, sampling: Sampling) -> JointQuery | None:
        """Return the queries that every client answers before the first round, or None.

        Args:
            sampling: How the clients sample in rounds. Only its neighbouring relation matters here, because
                these queries are answered on all records.
        """
        if self.before is None:
            return None
        return JointQuery(WholeData(sampling.neighbours), (self._noised_by_whom(self.before),))

    def _loss_query(self) -> Query | None:
        loss = self.schedule.loss_query
        return None if loss is None else loss.query

    # ---- before a round

    def join(self, records_per_client: Sequence[int] | np.ndarray) -> None:
        """Take note of the clients. Clients that sample alike release alike and form one group.

        Args:
            records_per_client: Number of records of each client [K].
        """
        sizes, first, size_of_client = np.unique(
            records_per_client, return_index=True, return_inverse=True
        )
        groups: dict[Sampling, list[int]] = {}  # numbers of records, in the order of the clients
        for place in np.argsort(first).tolist():
            groups.setdefault(self.algorithm.sampling_of(int(sizes[place])), []).append(place)
        group_of_size = np.empty(len(sizes), dtype=np.int64)
        for group, places in enumerate(groups.values()):
            group_of_size[places] = group
        group_of_client = group_of_size[size_of_client]
        by_group = np.argsort(group_of_client, kind="stable")
        ends = np.cumsum(np.bincount(group_of_client, minlength=len(groups)))[:-1]
        self._groups = list(zip(groups, np.split(by_group, ends), strict=True))
        self._last = (None, ())
        self.clients = len(records_per_client)
        self._fixed = None if self.schedule.adaptive else deepcopy(self.schedule)

    def announce(self, round_index: int, noise_multiplier: float | None = None) -> Announcement:
        """Return the queries that each client answers if it takes part in round t.

        The announcement is a function of public and released values. The schedule's noise multiplier is
        compared with that of a copy which observed nothing, unless the schedule says that it is adaptive.

        Args:
            round_index: t.
            noise_multiplier: Another multiplier than the schedule's, for an audit.

        Raises:
            ReleaseError: A schedule that is not adaptive changed the multiplier of this round, or one that is
                fell below the least that it stated.
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
        if sigma < lowest * (1 - 1e-9):  # the sound ε counts the least that could have come
            raise ReleaseError(
                f"the noise multiplier of round {round_index + 1}, {sigma:g}, is below noise_schedule.lowest"
                f"({round_index}), {lowest:g}, which must be the least that could come; nothing was released"
            )
        loss_query = self._loss_query()
        # A round of the same kind as the round before it releases the same, so its groups are not made anew.
        # Parts of the user's own may depend on the round in ways that this does not see.
        first = round_index == 0 and self.charged_at_once is not None
        kind = (sigma, lowest, loss_query, self.clipper.query(round_index, sigma), first)
        if kind != self._last[0] or any(map(is_own, (self, self.algorithm, self.clipper))):
            groups = tuple(
                self.group(sampling, sigma, round_index, clients, lowest)
                for sampling, clients in self._groups
            )
            self._last = (kind, groups)
        before = None if self.before is None else self.joint_before(self._groups[0][0])
        asked_after = None if loss_query is None else loss_query.name
        return Announcement(round_index, self._last[1], asked_after, before)

    def announce_before(self) -> Announcement:
        """Return the queries that each client answers before the first round; no groups if there are none."""
        joints = ((self.joint_before(sampling), clients) for sampling, clients in self._groups)
        groups = (
            Group(clients, Sample(joint, 1, joint))
            for joint, clients in joints
            if joint is not None
        )
        return Announcement(0, tuple(groups))

    def group(
        self,
        sampling: Sampling,
        noise_multiplier: float,
        round_index: int,
        clients: np.ndarray | None = None,
        lowest: float | None = None,
    ) -> Group:
        """Return the queries that clients with this sampling answer in round t.

        Args:
            sampling: How these clients sample their records.
            noise_multiplier: σ_t.
            round_index: t.
            clients: Positions of the clients [m]; None for a plan, which needs no clients.
            lowest: The smallest σ_t that the schedule could have reached; None means σ_t itself.
        """
        joint = self.joint(sampling, noise_multiplier, round_index)
        least = joint
        if lowest is not None and lowest != noise_multiplier:
            least = self.joint(sampling, lowest, round_index)
        after = None
        loss_query = self._loss_query()
        if loss_query is not None and loss_query.name not in joint.names:
            loss_alone = JointQuery(WholeData(sampling.neighbours), (loss_query,))
            after = Sample(loss_alone, 1, loss_alone)
        upload = Sample(joint, self.algorithm.samples_per_round, least)
        return Group(np.zeros(0, dtype=np.int64) if clients is None else clients, upload, after)

    # ---- before a run

    def plan(
        self, sampling: Sampling, noise_multiplier: float, rounds: int, samples: int | None = None
    ) -> Counter[JointQuery]:
        """Return the samples that a client answers in a whole run, with their queries.

        Queries before the first round are counted once. Where a clipper asks a query in some rounds only,
        this client is taken to be asked every time. A mechanism whose :meth:`joint` depends on the round in
        another way than through the clipper has a plan of its own.

        Args:
            sampling: How the client samples its records.
            noise_multiplier: σ.
            rounds: Number of rounds of the run.
            samples: Number of samples that the client answers on; None means all those of ``rounds`` rounds.

        Returns:
            The number of samples for each set of queries.
        """
        samples_per_round = self.algorithm.samples_per_round
        remaining = rounds * samples_per_round if samples is None else samples
        counts: Counter[JointQuery] = Counter()
        for round_index, round_count in self.clipper.kinds_of_rounds(rounds).items():
            count = min(remaining, round_count * samples_per_round)
            group = self.group(sampling, noise_multiplier, round_index)
            counts[group.upload.joint] += count
            if group.after is not None:
                counts[group.after.joint] += math.ceil(count / samples_per_round)
            remaining -= count
        if (before := self.joint_before(sampling)) is not None:
            counts[before] += 1
        return Counter({joint: count for joint, count in counts.items() if count})

    def bound(self, sampling: Sampling) -> dict[dp_event.DpEvent, int] | None:
        """Return a composition that no run of an adaptive schedule exceeds for any client, in the sound view.

        Args:
            sampling: How the client samples its records.

        Returns:
            The number of times that each Gaussian event occurs, or None if there is no such bound.
        """
        sigma, rounds = self.schedule.total_noise_multiplier, self.schedule.planned_rounds
        if sigma is None or rounds is None:
            return None
        # The uploads of all rounds together cost at most one release at the total noise multiplier. The other
        # queries have noise of their own, and are counted once for each round.
        uploads = self.joint(sampling, sigma, 0).only(GRADIENT)
        bound = Counter({uploads.event(): 1})
        for round_index, count in self.clipper.kinds_of_rounds(math.ceil(rounds)).items():
            group = self.group(sampling, sigma, round_index)
            other_queries = group.upload.joint.only(*group.upload.joint.names - {GRADIENT})
            if other_queries.queries:
                bound[other_queries.event()] += count * group.upload.times
            if group.after is not None:
                bound[group.after.joint.event()] += count
        all_gaussian = all(isinstance(event, dp_event.GaussianDpEvent) for event in bound)
        return bound if all_gaussian else None

    # ---- the round

    def open(
        self,
        announcement: Announcement,
        cohort: np.ndarray,
        streams: SecretStreams,
        charged: np.ndarray | None = None,
    ) -> OpenRound:
        """Open the round of a cohort.

        Args:
            announcement: The announcement of this round.
            cohort: Positions of the clients that take part [c], ascending.
            streams: Secret streams of the run.
            charged: Positions of the clients that are charged [p]. None means the cohort, or all clients
                where nobody sees who takes part (central trust).
        """
        if charged is None:
            charged = self.algorithm.trust.charged(cohort, self.clients)
        return self._round_class(cohort)(
            announcement,
            cohort,
            charged,
            streams,
            trust=self.algorithm.trust,
            row_per_client=self.algorithm.row_per_client,
            uploads_apart=self.uploads_apart,
        )

    def _round_class(self, cohort: np.ndarray) -> Callable[..., OpenRound]:
        """Return the class of this mechanism's rounds, with the arguments that only this class has."""
        return OpenRound

    def state_dict(self) -> dict[str, object]:
        """Return an empty state: noise is independent, and schedule and clipper keep their own state."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state that ``state_dict`` returned."""
