"""What the planned draws of one client cost, and the noise that keeps them to an ε: before any run."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from dp_accounting import dp_event

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.accountants.search import MANY_STEPS, most_steps
from fedpriv.privacy.calibration import least_noise_multiplier
from fedpriv.privacy.mechanism import GRADIENT, Draw
from fedpriv.privacy.names import SOUND

if TYPE_CHECKING:
    from fedpriv.experiment.parts import Parts


class Prices:
    """Prices in the enforced view, by the configured accountant, for a client of ``records`` records."""

    def __init__(self, parts: Parts, records: int | None = None):
        self.parts = parts
        self._sampling = parts.algorithm.sampling_of(records or parts.even_share)
        self._sound = parts.settings.budget_view == SOUND
        claim = parts.algorithm.claim
        self.neighbours = self._sampling.neighbours if self._sound else claim.neighbours

    def draw(self, sigma: float, round_index: int = 0) -> Draw:
        """What the client releases in one draw of a round."""
        return self.parts.draw(self._sampling, sigma, round_index)

    def _event(self, sigma: float, round_index: int) -> dp_event.DpEvent:
        draw = self.draw(sigma, round_index)
        return draw.event() if self._sound else self.parts.algorithm.claim.event(draw)

    def composition(
        self, sigma: float, rounds: int, draws: int | None = None
    ) -> dict[dp_event.DpEvent, int]:
        """The events of ``rounds`` rounds, or of so many ``draws`` in them.

        A clipper that asks something in some rounds only is taken to ask this client every time.
        """
        left = rounds * self.parts.algorithm.draws_per_round if draws is None else draws
        counts: Counter[dp_event.DpEvent] = Counter()
        for round_index, often in self.parts.clipper.kinds_of_rounds(rounds).items():
            count = min(left, often * self.parts.algorithm.draws_per_round)
            counts[self._event(sigma, round_index)] += count
            left -= count
        return {event: count for event, count in counts.items() if count}

    def epsilon(self, sigma: float, rounds: int, draws: int | None = None) -> float:
        """ε of that composition."""
        composition = self.composition(sigma, rounds, draws)
        return self.parts.accountant.epsilon_of(
            composition, self.parts.settings.delta, self.neighbours
        )

    def rounds_allowed(self, sigma: float, epsilon: float) -> int:
        """How many rounds cost at most ``epsilon``."""
        accountant, delta = self.parts.accountant, self.parts.settings.delta
        first = self._event(sigma, 0)
        steps = accountant.steps_allowed(first, epsilon, delta, self.neighbours)
        allowed = steps // self.parts.algorithm.draws_per_round
        if len(self.parts.clipper.kinds_of_rounds(max(1, allowed))) == 1 or allowed >= MANY_STEPS:
            return allowed
        return most_steps(lambda rounds: self.epsilon(sigma, rounds), epsilon, allowed, allowed)

    def sigma_for(self, epsilon: float, draws: int | None) -> float:
        """The smallest σ at which ``draws`` draws (``None``: those planned) cost at most ``epsilon``."""
        draws = self._planned_draws() if draws is None else draws
        rounds = self.parts.settings.rounds or draws
        try:
            return least_noise_multiplier(
                lambda sigma: self.epsilon(sigma, rounds, draws),
                epsilon,
                self.parts.accountant.name,
                most=self.parts.clipper.largest_noise_multiplier,
            )
        except ArgumentError as error:
            if self.parts.clipper.query(0, 1.0) is None and len(self.composition(1.0, rounds)) == 1:
                raise
            hint = f"what the clipper asks costs the rest: {self.parts.clipper.describe()}"
            raise ArgumentError(error.argument, error.value, error.allowed, hint) from None

    def epsilon_of_schedule(self, rounds: int) -> float:
        """ε of ``rounds`` rounds at the σ the schedule gives each of them (one fixed in advance)."""
        steps = self.parts.algorithm.draws_per_round
        sigmas = [self.parts.noise_schedule.noise_multiplier(t) for t in range(rounds)]
        if len(set(sigmas)) == 1:
            return self.epsilon(sigmas[0], rounds)
        alike = len(self.parts.clipper.kinds_of_rounds(rounds)) == 1
        releases = Counter((sigma, 0 if alike else t) for t, sigma in enumerate(sigmas))
        events: Counter[dp_event.DpEvent] = Counter()
        for (sigma, round_index), count in releases.items():
            events[self._event(sigma, round_index)] += steps * count
        accountant, delta = self.parts.accountant, self.parts.settings.delta
        return accountant.epsilon_of(events, delta, self.neighbours)

    def cap(self) -> dict[dp_event.DpEvent, int] | None:
        """What no run of an adaptive schedule spends more than on a client, in the sound view; ``None``
        where there is no such bound."""
        schedule = self.parts.noise_schedule
        sigma, rounds = schedule.noise_multiplier_of_everything, schedule.planned_rounds
        if sigma is None or rounds is None:
            return None
        draw = self.draw(sigma)
        uploads = Draw(draw.sampling, tuple(q for q in draw.queries if q.name == GRADIENT))
        if not isinstance(uploads.event(), dp_event.GaussianDpEvent):
            return None
        cap = Counter({uploads.event(): 1})
        rest = tuple(q for q in draw.queries if q.name != GRADIENT)
        if rest:
            cap[Draw(draw.sampling, rest).event()] += math.ceil(rounds)
        return cap

    def _planned_draws(self) -> int:
        rounds, algorithm = self.parts.settings.rounds, self.parts.algorithm
        key, whole = "noise_schedule.draws", "a whole number >= 1"
        if rounds is None:
            raise ConfigError(key, None, f"{whole} when rounds is null")
        draws = rounds * algorithm.draws_per_round
        if algorithm.clients_per_round is None:
            return draws
        clients = self.parts.partition.clients
        if clients is None:
            raise ConfigError(
                key,
                None,
                f"{whole} when clients are sampled and the partition says how many there are",
            )
        return max(1, math.ceil(draws * min(1.0, algorithm.clients_per_round / clients)))
