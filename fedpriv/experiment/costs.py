"""Privacy costs of what one client will release, and the noise that keeps them within an ε.

Everything here is known before a run. The plan and the calibration of σ rest on it, and so do figures that
are computed without runs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.words import digits_up
from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.accountants.search import MANY_STEPS, most_steps
from fedpriv.privacy.calibration import least_noise_multiplier
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms import JointQuery, Mechanism
from fedpriv.privacy.mechanisms.claims import Claim

_ROUNDS_AT_ONCE = 4096  # so many rounds are composed at once where σ differs between rounds
_ROUNDS_LOOKED_AT = 100_000  # rounds that are compared to tell whether σ changes; and one far away
_FAR_ROUND = 10**6


@dataclass(frozen=True)
class Forecast:
    """A forecast of the ε that the ledger will state at the end, for a client that is in every round.

    Attributes:
        epsilon: The forecast ε, or an upper bound; infinite if no finite bound is known.
        rounds: Number of rounds, or an upper bound.
        bound: ε may also be smaller, because σ or the number of rounds depends on released values.
        by_rdp: ε is a bound by RDP, because the configured accountant would take long.
    """

    epsilon: float
    rounds: int
    bound: bool = False
    by_rdp: bool = False


@dataclass(frozen=True)
class Costs:
    """Privacy costs of a client that is in every round, in the enforced view, by the configured accountant.

    Attributes:
        mechanism: What every round releases.
        sampling: How the client samples its records, or how clients are sampled.
        accountant: Turns events into ε(δ).
        claim: The theorem of the algorithm's paper, or None.
        view: ``sound`` or ``published``; the published view charges what ``claim`` does.
        delta: δ at which ε is stated.
        rounds: T, the number of rounds; None if only the budget ends the run.
        clients: K, the number of clients; None if only the data tell.
        earlier: Events of an earlier run on the same data, which count with those of this run.
    """

    mechanism: Mechanism
    sampling: Sampling
    accountant: Accountant
    claim: Claim | None
    view: str
    delta: float
    rounds: int | None
    clients: int | None
    earlier: Mapping[dp_event.DpEvent, int] = field(default_factory=dict)

    @property
    def neighbours(self) -> str:
        """Adjacency relation under which the costs hold."""
        if self.claim is None or self.view == SOUND:
            return self.sampling.neighbours
        return self.claim.neighbours

    @property
    def _samples_per_round(self) -> int:
        return self.mechanism.algorithm.samples_per_round

    def joint(self, sigma: float, round_index: int = 0) -> JointQuery:
        """Return the queries that a client answers on one sample of records.

        Args:
            sigma: Noise multiplier σ of the round.
            round_index: 0, 1, …; a clipper may ask in some rounds only.
        """
        return self.mechanism.joint(self.sampling, sigma, round_index)

    def _events(self, planned: Mapping[JointQuery, int]) -> Counter[dp_event.DpEvent]:
        """Return the events of planned draws, and those of the earlier run."""
        events: Counter[dp_event.DpEvent] = Counter(self.earlier)
        for joint, count in planned.items():
            event = self._event(joint)
            if event is not None:
                events[event] += count
        return events

    def _event(self, joint: JointQuery) -> dp_event.DpEvent | None:
        """Return the event charged for ``joint`` in the enforced view; None if nothing is charged."""
        if self.claim is None or self.view == SOUND:
            return joint.event()
        return self.claim.event(joint) if self.claim.covers(joint) else None

    def epsilon(self, sigma: float, rounds: int, samples: int | None = None) -> float:
        """Return ε of ``rounds`` rounds at one σ.

        Args:
            sigma: Noise multiplier of all rounds.
            rounds: Number of rounds.
            samples: Number of samples in these rounds; default: as many as a round has, in each of them.
        """
        planned = self.mechanism.plan(self.sampling, sigma, rounds, samples)
        return self._epsilon_of(self._events(planned))

    def _epsilon_of(self, events: Mapping[dp_event.DpEvent, int]) -> float:
        return self.accountant.epsilon_of(events, self.delta, self.neighbours)

    def forecast(self, allowed: int | None, limit: float | None) -> Forecast:
        """Forecast the ε that the ledger states at the end.

        Args:
            allowed: How many rounds the budget allows at the first σ; None without a budget. One of
                ``allowed``, :attr:`rounds` and the rounds that the schedule plans must be known.
            limit: The budget; None without one.
        """
        schedule = self.mechanism.schedule
        first, planned = schedule.noise_multiplier(0), schedule.planned_rounds
        ends = [self.rounds, None if planned is None else math.floor(planned)]
        asked_rounds = min((r for r in ends if r is not None), default=None)
        rounds = min((r for r in (asked_rounds, allowed) if r is not None), default=None)
        assert rounds is not None  # rounds or a budget is given
        if schedule.adaptive:
            return self._forecast_adaptive(first, rounds, limit)
        if limit is None:
            return self._forecast_schedule(rounds)
        if not self._sigma_changes(first, rounds if asked_rounds is None else asked_rounds):
            return Forecast(self.epsilon(first, rounds), rounds)
        if (
            asked_rounds is not None
        ):  # the budget may allow more or fewer rounds than at the first σ
            whole_run = self._forecast_schedule(asked_rounds)
            if whole_run.epsilon <= limit:
                return whole_run
        return Forecast(limit, rounds, bound=True)

    def _forecast_schedule(self, rounds: int) -> Forecast:
        epsilon, by_rdp = self.epsilon_of_schedule(rounds)
        return Forecast(epsilon, rounds, bound=by_rdp, by_rdp=by_rdp)

    def _forecast_adaptive(self, first: float, rounds: int, limit: float | None) -> Forecast:
        """Forecast a run whose σ depends on released values.

        The forecast is exact for so few rounds that no signal can have changed σ. A longer run is bounded by
        its budget, or without a budget by the lowest σ that the schedule can reach.
        """
        schedule = self.mechanism.schedule
        known = schedule.lowest_known
        stays = known and rounds <= _ROUNDS_LOOKED_AT
        if stays and all(schedule.lowest(t) == first for t in range(rounds)):
            # A budget in the sound view is guarded by a filter, which the run uses whether σ moves or not.
            if limit is None or self.view != SOUND:
                return Forecast(self.epsilon(first, rounds), rounds)
            return Forecast(self._filtered(first, rounds, limit), rounds)
        if limit is not None:
            return Forecast(limit, rounds, bound=True)
        if not known or rounds > _ROUNDS_AT_ONCE:
            return Forecast(math.inf, rounds, bound=True)
        events: Counter[dp_event.DpEvent] = Counter(self._before())
        for t in range(rounds):
            events.update(self._events_of_round(schedule.lowest(t), t))
        return Forecast(self._epsilon_of(events), rounds, bound=True)

    def _filtered(self, sigma: float, rounds: int, limit: float) -> float:
        """Return the value of the privacy filter of the budget ``limit`` after ``rounds`` rounds at one σ.

        A filter has a single RDP order, fixed in advance. So its value is above the ε that the same rounds
        would have if they were fixed in advance.
        """
        first = self.mechanism.group(self.sampling, sigma, 0).event()[0]
        total = self.accountant.filter(1, self.neighbours, first, limit, self.delta)
        assert total is not None  # an accountant without a filter is refused
        for event, count in self._events(self.mechanism.plan(self.sampling, sigma, rounds)).items():
            total.add(event, np.zeros(1, dtype=int), count)
        return total.worst(self.delta)

    def _sigma_changes(self, first: float, rounds: int) -> bool:
        """Return whether a schedule fixed in advance leaves the ``first`` σ within so many rounds."""
        looked_at = [
            *range(1, min(rounds, _ROUNDS_LOOKED_AT)),
            *([_FAR_ROUND] if rounds > _ROUNDS_LOOKED_AT else []),
        ]
        return any(self.mechanism.schedule.noise_multiplier(t) != first for t in looked_at)

    def rounds_allowed(self, sigma: float, epsilon: float) -> int:
        """Return the largest number of rounds that cost at most ``epsilon`` at one σ; 0 if one costs more.

        Where the whole run is charged at once, this is all of its rounds or none. The search ends at
        ``MANY_STEPS``, which stands for any larger number.
        """
        if (together := self.mechanism.charged_at_once) is not None:
            return together if self.epsilon(sigma, together) <= epsilon else 0
        one_round = self.mechanism.plan(self.sampling, sigma, 1)
        if len(one_round) > 1 or self.earlier:  # not a number of steps of one event
            return most_steps(lambda rounds: self.epsilon(sigma, rounds), epsilon, MANY_STEPS, 1)
        (first,) = self._events(one_round)
        # The event repeats, so the accountant searches by itself, which is faster than pricing each
        # number of rounds.
        steps = self.accountant.steps_allowed(first, epsilon, self.delta, self.neighbours)
        allowed = steps // self._samples_per_round
        # Where a clipper asks in some rounds only, rounds differ in cost and are counted as they come.
        kinds = self.mechanism.clipper.kinds_of_rounds(max(1, allowed))
        if len(kinds) == 1 or allowed >= MANY_STEPS:
            return allowed
        return most_steps(lambda rounds: self.epsilon(sigma, rounds), epsilon, allowed, allowed)

    def smallest_noise_multiplier(self, epsilon: float, samples: int | None) -> float:
        """Return the smallest σ at which a client's samples cost at most ``epsilon``.

        Args:
            epsilon: The budget.
            samples: Number of samples that a client answers on; None for the planned number.

        Raises:
            ArgumentError: No σ is enough, because something else costs too much. The hint says what.
            ConfigError: The number of samples cannot be planned.
        """
        samples = self._planned_samples() if samples is None else samples
        rounds, clipper = self.rounds or samples, self.mechanism.clipper
        try:
            return least_noise_multiplier(
                lambda sigma: self.epsilon(sigma, rounds, samples),
                epsilon,
                self.accountant.name,
                most=clipper.largest_noise_multiplier,
            )
        except ArgumentError as error:
            hint = self.mechanism.most_noise
            if not hint and (before := self._before()):
                cost = digits_up(self._epsilon_of(before))
                hint = f"what is released before the first round costs {cost} of it"
            if not hint and not clipper.asks(0):
                kinds_of_events = self._events(self.mechanism.plan(self.sampling, 1.0, rounds))
                if len(kinds_of_events) == 1:  # every sample releases the same: nothing to explain
                    raise
            hint = hint or f"what the clipper asks costs the rest: {clipper.describe()}"
            raise ArgumentError(error.argument, error.value, error.allowed, hint) from None

    def epsilon_of_schedule(self, rounds: int) -> tuple[float, bool]:
        """Return ε of ``rounds`` rounds of a schedule fixed in advance, and whether this is only a bound."""
        schedule = self.mechanism.schedule
        first = schedule.noise_multiplier(0)
        if all(schedule.noise_multiplier(t) == first for t in range(1, rounds)):
            return self.epsilon(first, rounds), False
        # Rounds are composed in batches, so that a schedule with many different σ fits into memory.
        alike = len(self.mechanism.clipper.kinds_of_rounds(rounds)) == 1
        parts: Iterable[Mapping[dp_event.DpEvent, int]] = (
            self._events_of_rounds(range(start, min(start + _ROUNDS_AT_ONCE, rounds)), alike)
            for start in range(0, rounds, _ROUNDS_AT_ONCE)
        )
        if before := self._before():
            parts = itertools.chain([before], parts)
        return self.accountant.forecast(parts, self.delta, self.neighbours)

    def of_rounds(self, rounds: int) -> dict[dp_event.DpEvent, int]:
        """Return the events of ``rounds`` rounds of a schedule fixed in advance, with their numbers.

        What is released before the first round counts too.
        """
        if self.mechanism.charged_at_once is not None:
            sigma = self.mechanism.schedule.noise_multiplier(0)
            return dict(self._events(self.mechanism.plan(self.sampling, sigma, rounds)))
        of_rounds = self._events_of_rounds(range(rounds), alike=False)
        return dict(Counter(self._before()) + Counter(of_rounds))

    def _before(self) -> dict[dp_event.DpEvent, int]:
        """Return the events of what is released before the first round, with their numbers."""
        joint = self.mechanism.joint_before(self.sampling)
        return dict(self._events({} if joint is None else {joint: 1}))

    def _events_of_rounds(self, rounds: range, alike: bool) -> dict[dp_event.DpEvent, int]:
        """Return the events of these rounds; ``alike``: the clipper asks the same queries in all of them."""
        schedule = self.mechanism.schedule
        kinds = Counter((schedule.noise_multiplier(t), 0 if alike else t) for t in rounds)
        events: dict[dp_event.DpEvent, int] = {}
        for (sigma, round_index), count in kinds.items():
            for event, times in self._events_of_round(sigma, round_index).items():
                events[event] = events.get(event, 0) + times * count
        return events

    def _events_of_round(self, sigma: float, round_index: int) -> dict[dp_event.DpEvent, int]:
        """Return the events of one round at this σ, with their numbers."""
        events: dict[dp_event.DpEvent, int] = {}
        for sample in self.mechanism.group(self.sampling, sigma, round_index).samples:
            event = self._event(sample.joint)
            if event is not None:
                events[event] = events.get(event, 0) + sample.times
        return events

    def _planned_samples(self) -> int:
        """Return the number of samples that a client is expected to answer on, for a schedule over draws.

        Of sampled clients, each takes part only in a share of the rounds. The result is rounded up.

        Raises:
            ConfigError: The configuration says neither the number of draws nor enough to compute it.
        """
        algorithm = self.mechanism.algorithm
        key, whole = "noise_schedule.draws", "a whole number >= 1"
        if self.rounds is None:
            raise ConfigError(
                "rounds",
                None,
                f"{whole} with noise_schedule=calibrated, which spreads epsilon over the rounds",
                "or give noise_schedule.draws, the number of lots or reports of a client",
            )
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
