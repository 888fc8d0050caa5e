"""What the planned releases of one client cost, and the noise that keeps them to an ε: before any run."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.accountants.search import MANY_STEPS, most_steps
from fedpriv.privacy.calibration import least_noise_multiplier
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms import JointQuery, Mechanism
from fedpriv.privacy.mechanisms.claims import Claim

_AT_ONCE = 4096  # rounds of a schedule whose noise moves
_LOOKED_AT = 100_000  # rounds for whether it moves; and one far away
_FAR = 10**6


@dataclass(frozen=True)
class Forecast:
    """The ε that the ledger will state of a client in every round, at the end of the run.

    Attributes:
        rounds: After so many rounds, or at most so many.
        bound: Whether ε may also be smaller, as σ, or the number of rounds, depends on what is released.
        by_rdp: Whether it is a bound by RDP, because the accountant takes long.
    """

    epsilon: float
    rounds: int
    bound: bool = False
    by_rdp: bool = False


@dataclass(frozen=True)
class Costs:
    """Privacy costs in the enforced view, by the configured accountant, of a client in every round.

    Attributes:
        sampling: How the client samples its records.
        view: ``sound`` or ``published``; the latter charges what ``claim`` does.
        rounds: T, if given; clients: K, if known.
    """

    mechanism: Mechanism
    sampling: Sampling
    accountant: Accountant
    claim: Claim | None
    view: str
    delta: float
    rounds: int | None
    clients: int | None

    @property
    def neighbours(self) -> str:
        if self.claim is None or self.view == SOUND:
            return self.sampling.neighbours
        return self.claim.neighbours

    @property
    def _samples_per_round(self) -> int:
        return self.mechanism.algorithm.samples_per_round

    def joint(self, sigma: float, round_index: int = 0) -> JointQuery:
        """What the client answers on one sample of its upload."""
        return self.mechanism.joint(self.sampling, sigma, round_index)

    def _events(self, planned: Mapping[JointQuery, int]) -> Counter[dp_event.DpEvent]:
        events: Counter[dp_event.DpEvent] = Counter()
        for joint, count in planned.items():
            event = self._event(joint)
            if event is not None:
                events[event] += count
        return events

    def _event(self, joint: JointQuery) -> dp_event.DpEvent | None:
        """What is charged for it in the enforced view; None: nothing."""
        if self.claim is None or self.view == SOUND:
            return joint.event()
        return self.claim.event(joint) if self.claim.covers(joint) else None

    def epsilon(self, sigma: float, rounds: int, samples: int | None = None) -> float:
        """ε of ``rounds`` rounds at one σ, or of so many ``samples`` in them."""
        planned = self.mechanism.plan(self.sampling, sigma, rounds, samples)
        return self._epsilon_of(self._events(planned))

    def _epsilon_of(self, events: Mapping[dp_event.DpEvent, int]) -> float:
        return self.accountant.epsilon_of(events, self.delta, self.neighbours)

    def forecast(self, allowed: int | None, limit: float | None) -> Forecast:
        """Forecast the ε that the ledger states at the end.

        Args:
            allowed: How many rounds the budget allows at the first σ; None without a budget.
            limit: The budget.
        """
        schedule = self.mechanism.schedule
        first, planned = schedule.noise_multiplier(0), schedule.planned_rounds
        ends = [self.rounds, None if planned is None else math.floor(planned)]
        asked = min((r for r in ends if r is not None), default=None)
        rounds = min((r for r in (asked, allowed) if r is not None), default=None)
        assert rounds is not None  # rounds or a budget is given
        if schedule.adaptive:
            return self._forecast_adaptive(first, rounds, limit)
        if limit is None:
            return Forecast(*self._with_rounds(rounds))
        if not self._moves(first, rounds if asked is None else asked):
            return Forecast(self.epsilon(first, rounds), rounds)
        if asked is not None:  # the budget may allow more or fewer rounds than at the first σ
            whole = Forecast(*self._with_rounds(asked))
            if whole.epsilon <= limit:
                return whole
        return Forecast(limit, rounds, bound=True)

    def _with_rounds(self, rounds: int) -> tuple[float, int, bool, bool]:
        epsilon, by_rdp = self.epsilon_of_schedule(rounds)
        return epsilon, rounds, by_rdp, by_rdp

    def _forecast_adaptive(self, first: float, rounds: int, limit: float | None) -> Forecast:
        """Forecast a run whose σ depends on what is released: exactly as long as no signal can have moved it,
        else by the budget, or without one by the lowest σ."""
        schedule = self.mechanism.schedule
        known = schedule.lowest_known
        stays = known and rounds <= _LOOKED_AT
        if stays and all(schedule.lowest(t) == first for t in range(rounds)):
            if limit is None or self.view != SOUND:
                return Forecast(self.epsilon(first, rounds), rounds)
            return Forecast(self._filtered(first, rounds, limit), rounds)
        if limit is not None:
            return Forecast(limit, rounds, bound=True)
        if not known or rounds > _AT_ONCE:
            return Forecast(math.inf, rounds, bound=True)
        events: Counter[dp_event.DpEvent] = Counter(self._before())
        for t in range(rounds):
            events.update(self._events_of_round(schedule.lowest(t), t))
        return Forecast(self._epsilon_of(events), rounds, bound=True)

    def _filtered(self, sigma: float, rounds: int, limit: float) -> float:
        """Return the value of the filter of the budget ``limit`` after ``rounds`` rounds at one σ: at its one
        order, so above ε of the same rounds fixed in advance."""
        first = self.mechanism.group(self.sampling, sigma, 0).event()[0]
        total = self.accountant.filter(1, self.neighbours, first, limit, self.delta)
        assert total is not None  # an accountant without a filter is refused
        for event, count in self._events(self.mechanism.plan(self.sampling, sigma, rounds)).items():
            total.add(event, np.zeros(1, dtype=int), count)
        return total.worst(self.delta)

    def _moves(self, first: float, rounds: int) -> bool:
        """Return whether a schedule fixed in advance has another σ than the ``first`` in so many rounds."""
        looked_at = [*range(1, min(rounds, _LOOKED_AT)), *([_FAR] if rounds > _LOOKED_AT else [])]
        return any(self.mechanism.schedule.noise_multiplier(t) != first for t in looked_at)

    def rounds_allowed(self, sigma: float, epsilon: float) -> int:
        """How many rounds cost at most ``epsilon``."""
        if (together := self.mechanism.charged_at_once) is not None:
            return together if self.epsilon(sigma, together) <= epsilon else 0
        one = self.mechanism.plan(self.sampling, sigma, 1)
        if len(one) > 1:  # two samples a round, so no number of steps of one event
            return most_steps(lambda rounds: self.epsilon(sigma, rounds), epsilon, MANY_STEPS, 1)
        (first,) = self._events(one)
        steps = self.accountant.steps_allowed(first, epsilon, self.delta, self.neighbours)
        allowed = steps // self._samples_per_round
        kinds = self.mechanism.clipper.kinds_of_rounds(max(1, allowed))
        if len(kinds) == 1 or allowed >= MANY_STEPS:
            return allowed
        return most_steps(lambda rounds: self.epsilon(sigma, rounds), epsilon, allowed, allowed)

    def smallest_noise_multiplier(self, epsilon: float, samples: int | None) -> float:
        """The smallest σ at which ``samples`` samples (``None``: those planned) cost at most ``epsilon``."""
        samples = self._planned_samples() if samples is None else samples
        rounds, clipper = self.rounds or samples, self.mechanism.clipper
        try:
            return least_noise_multiplier(
                lambda sigma: self.epsilon(sigma, rounds, samples),
                epsilon,
                self.accountant.name,
                guess=self._guess(epsilon, rounds, samples),
                most=clipper.largest_noise_multiplier,
            )
        except ArgumentError as error:
            hint = self.mechanism.most_noise
            if not hint and (before := self._before()):
                hint = f"what is released before the first round costs {self._epsilon_of(before):.4g} of it"
            if not hint and not clipper.asks(0) and self._alike(rounds):
                raise
            hint = hint or f"what the clipper asks costs the rest: {clipper.describe()}"
            raise ArgumentError(error.argument, error.value, error.allowed, hint) from None

    def _guess(self, epsilon: float, rounds: int, samples: int) -> float:
        """Where the search begins: near its end where each of its steps takes long."""

        if self.mechanism.charged_at_once is None:
            return 1.0

        def about(sigma: float) -> float:
            planned = self.mechanism.plan(self.sampling, sigma, rounds, samples)
            found = self.accountant.about(self._events(planned), self.delta, self.neighbours)
            return math.nan if found is None else found

        if math.isnan(about(1.0)):
            return 1.0
        most = self.mechanism.clipper.largest_noise_multiplier
        return least_noise_multiplier(about, epsilon, self.accountant.name, most=most)

    def _alike(self, rounds: int) -> bool:
        """Whether every sample of so many rounds releases the same."""
        return len(self._events(self.mechanism.plan(self.sampling, 1.0, rounds))) == 1

    def epsilon_of_schedule(self, rounds: int) -> tuple[float, bool]:
        """(ε of ``rounds`` rounds at the σ the schedule gives each of them, one fixed in advance; whether it
        is only a bound)."""
        schedule = self.mechanism.schedule
        first = schedule.noise_multiplier(0)
        if all(schedule.noise_multiplier(t) == first for t in range(1, rounds)):
            return self.epsilon(first, rounds), False
        alike = len(self.mechanism.clipper.kinds_of_rounds(rounds)) == 1
        parts: Iterable[Mapping[dp_event.DpEvent, int]] = (
            self._events_of_rounds(range(start, min(start + _AT_ONCE, rounds)), alike)
            for start in range(0, rounds, _AT_ONCE)
        )
        if before := self._before():
            parts = itertools.chain([before], parts)
        return self.accountant.forecast(parts, self.delta, self.neighbours)

    def of_rounds(self, rounds: int) -> dict[dp_event.DpEvent, int]:
        """What ``rounds`` rounds release at the σ the schedule gives each of them, one fixed in advance."""
        if self.mechanism.charged_at_once is not None:
            sigma = self.mechanism.schedule.noise_multiplier(0)
            return dict(self._events(self.mechanism.plan(self.sampling, sigma, rounds)))
        of_rounds = self._events_of_rounds(range(rounds), alike=False)
        return dict(Counter(self._before()) + Counter(of_rounds))

    def _before(self) -> dict[dp_event.DpEvent, int]:
        """What is released before the first round."""
        joint = self.mechanism.joint_before(self.sampling)
        return {} if joint is None else dict(self._events({joint: 1}))

    def _events_of_rounds(self, rounds: range, alike: bool) -> dict[dp_event.DpEvent, int]:
        """What these rounds release at the σ of the schedule; ``alike``: the clipper asks the same in all."""
        schedule = self.mechanism.schedule
        kinds = Counter((schedule.noise_multiplier(t), 0 if alike else t) for t in rounds)
        events: dict[dp_event.DpEvent, int] = {}
        for (sigma, round_index), count in kinds.items():
            for event, times in self._events_of_round(sigma, round_index).items():
                events[event] = events.get(event, 0) + times * count
        return events

    def _events_of_round(self, sigma: float, round_index: int) -> dict[dp_event.DpEvent, int]:
        """Return what one round releases at this σ."""
        events: dict[dp_event.DpEvent, int] = {}
        for sample in self.mechanism.group(self.sampling, sigma, round_index).samples:
            event = self._event(sample.joint)
            if event is not None:
                events[event] = events.get(event, 0) + sample.times
        return events

    def _planned_samples(self) -> int:
        algorithm = self.mechanism.algorithm
        key, whole = "noise_schedule.draws", "a whole number >= 1"
        if self.rounds is None:
            raise ConfigError(key, None, f"{whole} when rounds is null")
        samples = self.rounds * self._samples_per_round
        if algorithm.clients_per_round is None:
            return samples
        if self.clients is None:
            raise ConfigError(
                key,
                None,
                f"{whole} when clients are sampled and the partition says how many there are",
            )
        return max(1, math.ceil(samples * min(1.0, algorithm.clients_per_round / self.clients)))
