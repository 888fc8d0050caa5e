"""Matrix mechanism: noise correlated over rounds (DP-FTRL, DP-MF), charged once for the whole run.

    announce(0) ──► the run: a Gaussian of multiplier σ / sens(C, participation); later rounds: nothing more
    open(t)     ──► may every client of the cohort take part?   noise: row t of C^-1 Z, times σ · clip norm

One object, :class:`Correlation`, gives the sensitivity that is charged and the stream that is added. The
announcement carries the digest of its strategy: a round with another strategy than was charged stops the run.
The guarantee is under zero-out adjacency: a client's contributions are zeros in the other data set, and who
takes part when does not depend on the data.

Sources: Kairouz et al. 2021 (arXiv 2103.00039); Denisov et al. 2022 (2202.08312; adaptivity: theorem 2.1);
Choquette-Choo et al. 2023 (2306.08153; amplification for banded C: theorem 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.names import AGGREGATOR
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.matrix.participation import Participation
from fedpriv.privacy.matrix.strategy import NoiseStream, Strategy
from fedpriv.privacy.mechanisms.announcement import Announcement, Group, Sample
from fedpriv.privacy.mechanisms.attendance import Attendance
from fedpriv.privacy.mechanisms.bounded import DOUBLED
from fedpriv.privacy.mechanisms.joint import GRADIENT, JointQuery
from fedpriv.privacy.mechanisms.mechanism import Asking, Mechanism, Pacing, Releasing
from fedpriv.privacy.mechanisms.query import Noising, Query
from fedpriv.privacy.mechanisms.release import Release, refuse_too_little_noise
from fedpriv.privacy.mechanisms.round import OpenRound

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fedpriv.common.secret_streams import SecretStreams
    from fedpriv.privacy.mechanisms.bounded import Bounded


@dataclass(frozen=True)
class CorrelatedQuery(Query):
    """Sums of all rounds together, noised with the rows of C^-1 Z.

    Attributes:
        name: Name of the answer in the ledger.
        noise_multiplier: Standard deviation of Z ÷ clip norm.
        sensitivity: Distance that one client moves C X in the Frobenius norm ÷ clip norm. Where clients are
            sampled in each of their turns, the distance within one turn.
        answers: Number of rounds that are one release.
        sample_rate: Probability with which a client joins a round that it may join; 1 means no amplification.
        strategy: Description of the strategy.
        participation: Description of the participation pattern.
        digest: Digest of the strategy.
        replaced: Ratio of the distances of replacing and adding a unit.
        by: Party that adds the noise; a trusted server.
    """

    name: str
    noise_multiplier: float
    sensitivity: float
    answers: int
    sample_rate: float
    strategy: str
    participation: str
    digest: str
    replaced: float = DOUBLED
    by: str = AGGREGATOR

    @property
    def protects(self) -> bool:
        return self.noise_multiplier > 0

    def noised_by(self, by: str) -> CorrelatedQuery:
        if by != AGGREGATOR:
            raise ConfigError(
                "noise correlated over rounds is added by a trusted server (algorithm=dp_ftrl)"
            )
        return self

    def event(self) -> dp_event.DpEvent:
        if not self.protects:
            return dp_event.NonPrivateDpEvent()
        gaussian = dp_event.GaussianDpEvent(self.noise_multiplier / self.sensitivity)
        if self.sample_rate == 1.0:
            return gaussian
        # A client's turns share no band of C, so each turn is a Poisson-sampled Gaussian
        # (2306.08153, theorem 4).
        return dp_event.PoissonSampledDpEvent(self.sample_rate, gaussian)

    def release(self, answer: Bounded, noise: Noising) -> Tensor | None:
        raise ReleaseError(f"{self.name} has correlated noise, which its mechanism alone can add")

    def describe(self) -> str:
        return (
            f"{self.name}={self.noise_multiplier:.6g} in {self.answers} rounds by {self.strategy}, "
            f"sensitivity {self.sensitivity:.6g} ({self.participation})"
        )


@dataclass(frozen=True)
class WholeRun(Group):
    """Clients whose rounds are one release.

    Attributes:
        charged: Number of times that the event is charged in this round; 0 after the first round.
    """

    charged: int = 1

    def event(self) -> tuple[dp_event.DpEvent, int]:
        return self.upload.joint.event(), self.charged


class Correlation:
    """A strategy under a participation pattern, and its privacy cost.

    Args:
        rounds: Number of rounds that the strategy covers.
        participation: Pattern of each client's rounds.
        find: Function that computes the strategy, which may take a while. It is called once, when needed.
        sample_rate: Probability with which a client joins a round that it may join. It is below 1 only where
            a client's turns are ``separation`` rounds apart and the strategy has no more bands than that.
    """

    def __init__(
        self,
        rounds: int,
        participation: Participation,
        find: Callable[[], Strategy],
        sample_rate: float = 1.0,
    ):
        self.rounds, self.participation, self.sample_rate = rounds, participation, sample_rate
        self._find = find

    @cached_property
    def strategy(self) -> Strategy:
        """The strategy, computed on first use.

        Raises:
            ReleaseError: Clients are sampled and the strategy has more bands than a client's turns are apart.
        """
        strategy = self._find()
        if self.sample_rate < 1.0 and strategy.bands > self.participation.apart:
            raise ReleaseError(
                f"{strategy.describe()} has {strategy.bands} bands; sampling amplifies at most as many bands "
                f"as a client's turns are rounds apart, which is {self.participation.apart}"
            )
        return strategy

    @cached_property
    def digest(self) -> str:
        """Digest of the strategy."""
        return self.strategy.digest()

    @property
    def times(self) -> int:
        """Number of events of :meth:`query` in the run: one, or one for each turn of a client."""
        return self.participation.times(self.rounds) if self.sample_rate < 1.0 else 1

    @cached_property
    def sensitivity(self) -> float:
        """Sensitivity of the whole run, or of one turn where clients are sampled in each turn."""
        if self.sample_rate < 1.0:
            return float(self.strategy.column_norms().max())
        return self.strategy.sensitivity(self.participation)

    def query(self, noise_multiplier: float) -> CorrelatedQuery:
        """Return the release of the whole run.

        Args:
            noise_multiplier: Standard deviation of Z ÷ clip norm.
        """
        return CorrelatedQuery(
            GRADIENT,
            float(noise_multiplier),
            self.sensitivity,
            self.rounds,
            self.sample_rate,
            self.strategy.describe(),
            self.participation.describe(),
            self.digest,
        )


class MatrixMechanism(Mechanism):
    """Correlated Gaussian noise on the clipped sum of every round, with one clip norm and one σ.

    Args:
        algorithm: The algorithm whose sums are noised.
        clipper: Sets the clip norm, which must stay the same.
        schedule: Sets σ, which must stay the same.
        correlation: The strategy and its cost.

    Attributes:
        correlation: The strategy and its cost.
        attendance: Rounds that each client has taken part in.
    """

    def __init__(
        self, algorithm: Releasing, clipper: Asking, schedule: Pacing, correlation: Correlation
    ):
        super().__init__(algorithm, clipper, schedule)
        self.correlation = correlation
        self.charged_at_once = correlation.rounds
        self.attendance = Attendance(correlation.participation, 0)
        self._stream: NoiseStream | None = None
        self._clip_norm: float | None = None

    # ---- what is released

    def _upload(self, sampling: Sampling, noise_multiplier: float, round_index: int) -> JointQuery:
        if self.schedule.adaptive:
            raise ConfigError(
                f"algorithm={self.algorithm.name} takes a noise multiplier fixed in advance "
                "(noise_schedule=calibrated or constant), because one release is charged for all rounds"
            )
        return JointQuery(sampling, (self.correlation.query(noise_multiplier),))

    def group(
        self,
        sampling: Sampling,
        noise_multiplier: float,
        round_index: int,
        clients: np.ndarray | None = None,
        lowest: float | None = None,
    ) -> WholeRun:
        joint = self.joint(sampling, noise_multiplier, round_index)
        charged = self.correlation.times if round_index == 0 else 0
        members = np.zeros(0, dtype=np.int64) if clients is None else clients
        return WholeRun(members, Sample(joint, 1, joint), charged=charged)

    def plan(
        self, sampling: Sampling, noise_multiplier: float, rounds: int, samples: int | None = None
    ) -> Counter[JointQuery]:
        """Return the release of the whole run, for any number of rounds up to those of the strategy.

        Raises:
            ConfigError: The strategy covers fewer rounds, or σ changes over the rounds.
        """
        if rounds > self.correlation.rounds:
            raise ConfigError(
                "algorithm.rounds", self.correlation.rounds, f"{rounds}, the value of rounds"
            )
        all_rounds = range(self.correlation.rounds)
        if self.schedule.known and len(set(map(self.schedule.noise_multiplier, all_rounds))) > 1:
            raise ConfigError(
                f"algorithm={self.algorithm.name} takes the same noise multiplier in every round "
                "(noise_schedule=calibrated or constant), because one release is charged for all rounds"
            )
        joint = self.joint(sampling, noise_multiplier, 0)
        return Counter({joint: self.correlation.times})

    # ---- the round

    def join(self, records_per_client: Sequence[int] | np.ndarray) -> None:
        super().join(records_per_client)
        self.attendance = Attendance(self.correlation.participation, len(records_per_client))
        self._stream, self._clip_norm = None, None

    def open(
        self,
        announcement: Announcement,
        cohort: np.ndarray,
        streams: SecretStreams,
        charged: np.ndarray | None = None,
    ) -> OpenRound:
        """Open the round, after a check of its cohort against the participation pattern.

        Attackers join out of turn and are not charged, so they are not compared with the pattern.

        Raises:
            ReleaseError: The strategy covers no such round, or a client may not take part in it.
        """
        if charged is None:
            charged = self.algorithm.trust.charged(cohort, self.clients)
        if announcement.round_index >= self.correlation.rounds:
            raise ReleaseError(
                f"round {announcement.round_index + 1}: the strategy is for "
                f"{self.correlation.rounds} rounds"
            )
        attending = cohort
        if len(charged) < self.clients:
            is_charged = np.zeros(self.clients, dtype=bool)
            is_charged[charged] = True
            attending = cohort[is_charged[cohort]]
        self.attendance.enter(announcement.round_index, attending)
        return super().open(announcement, cohort, streams, charged)

    def _round_class(self, cohort: np.ndarray) -> Callable[..., OpenRound]:
        return partial(CorrelatedRound, mechanism=self)

    def add_noise(
        self, query: CorrelatedQuery, answer: Bounded, streams: SecretStreams, round_index: int
    ) -> float:
        """Noise one round's sum [1, d] in place.

        Args:
            query: The announced release of the run.
            answer: The clipped sum of the round.
            streams: Secret streams of the run.
            round_index: t.

        Returns:
            The standard deviation of the noise of this round's row of Z, in units of the sum.

        Raises:
            ReleaseError: The strategy, the round or the clip norm is another one than was charged.
        """
        from fedpriv.common.secret_streams import standard_normals
        from fedpriv.privacy.core.noise import add_on_grid

        if self._stream is None:
            self._stream = self.correlation.strategy.stream()
        clip_norm = float(answer.sensitivity.reshape(-1)[0])
        if self._clip_norm is None:
            self._clip_norm = clip_norm
        self._refuse_another(query, clip_norm, round_index)
        values, drawn = answer.values.view(1, -1), 0

        def draw() -> Tensor:
            nonlocal drawn
            # A strategy may draw several vectors in one round, and each needs a stream of its own. The first
            # has the same name as the noise of a mechanism without correlation.
            coordinates = (round_index, drawn) if drawn else (round_index,)
            drawn += 1
            stream = streams.noise(query.purpose_of_all, *coordinates)
            return standard_normals([stream], values.shape[1])[0]

        row = self._stream.next(draw)
        std = answer.sensitivity.double() * (query.noise_multiplier / answer.divided_by)
        add_on_grid(values, row[None].to(values.device), std)
        return float(std.reshape(-1)[0]) * answer.divided_by

    def _refuse_another(self, query: CorrelatedQuery, clip_norm: float, round_index: int) -> None:
        round_name = f"round {round_index + 1}"
        if query.digest != self.correlation.digest:
            raise ReleaseError(
                f"{round_name}: the strategy is not the one that was charged for ({query.strategy})"
            )
        if self._stream is not None and self._stream.round != round_index:
            raise ReleaseError(
                f"{round_name}: the noise stream is at round {self._stream.round + 1}, and rounds are noised "
                "in their order"
            )
        if clip_norm != self._clip_norm:
            raise ReleaseError(
                f"{round_name}: the clip norm is {clip_norm:.6g} and was {self._clip_norm:.6g}; correlated "
                "noise is charged for one clip norm"
            )

    def state_dict(self) -> dict[str, object]:
        return {
            "digest": self.correlation.digest,
            "attendance": self.attendance.state_dict(),
            "clip_norm": self._clip_norm,
            "stream": None if self._stream is None else self._stream.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the noise stream and the attendance.

        Raises:
            ConfigError: The strategy came out with other numbers than in the saved run.
        """
        if state["digest"] != self.correlation.digest:
            raise ConfigError(
                f"resume: {self.correlation.strategy.describe()} came out with other numbers than at the "
                "start of the run, so its noise cannot go on; resume the run on the machine it was started on"
            )
        self.attendance.load_state_dict(state["attendance"])
        self._clip_norm = state["clip_norm"]
        self._stream = None
        if state["stream"] is not None:
            self._stream = self.correlation.strategy.stream()
            self._stream.load_state_dict(state["stream"])


class CorrelatedRound(OpenRound):
    """A round whose noise the mechanism correlates with the noise of earlier rounds."""

    def __init__(self, *args: Any, mechanism: MatrixMechanism, **settings: Any):
        super().__init__(*args, **settings)
        self._mechanism = mechanism

    def begin_step(self, size: int) -> None:
        """Draw nothing in advance: rows of Z are drawn when they are added."""

    def _noise(self, name: str, query: Query, answer: Bounded) -> np.ndarray:
        assert isinstance(query, CorrelatedQuery)
        added = self._mechanism.add_noise(query, answer, self.streams, self.round_index)
        sensitivity = answer.sensitivity.detach().cpu().double().numpy().reshape(-1)
        noise_std = np.array([added])
        refuse_too_little_noise(name, query.noise_multiplier, sensitivity, noise_std)
        return noise_std

    def charges(self) -> list[tuple[JointQuery, int, np.ndarray]]:
        """Return the release of the whole run, which only the first round is charged for."""
        return [(joint, self._samples, clients) for joint, _, clients in super().charges()]

    def close(self) -> tuple[Release, ...]:
        """Return the release of the whole run in its first round, and none in later rounds."""
        releases, samples = super().close(), self._samples
        return tuple(replace(release, count=samples) for release in releases) if samples else ()

    @property
    def _samples(self) -> int:
        groups = cast("tuple[WholeRun, ...]", self.announcement.groups)
        return groups[0].charged if groups else 1
