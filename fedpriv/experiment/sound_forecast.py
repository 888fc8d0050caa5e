"""Forecast of the sound ε of a run, from its plan alone: what a ledger of the planned run would give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dp_accounting import dp_event

from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.sound import tightest


@dataclass(frozen=True)
class SoundForecast:
    """Forecast of the sound ε of one private run.

    Attributes:
        epsilon: The sound ε; infinite where nothing finite will hold; None where only the data tell.
        bound: True if ``epsilon`` is an upper bound.
        neighbours: Adjacency of the sound view.
        events: Events of a client that is in every round, with their numbers; None where the run counts as
            a whole, because its noise adapts or its rounds are not fixed in advance.
    """

    epsilon: float | None
    bound: bool
    neighbours: str
    events: Mapping[dp_event.DpEvent, int] | None = None


def forecast_sound(parts: Parts, plan: Plan) -> SoundForecast | None:
    """Return the forecast of a run's sound ε; None without privacy.

    Args:
        parts: The parts of the run.
        plan: The plan of these parts.
    """
    if not parts.private or plan.first is None:
        return None
    enforced, settings = parts.costs(), parts.settings
    costs = replace(enforced, view=SOUND)
    neighbours = costs.neighbours
    if plan.rounds is None or not parts.shares_known or parts.algorithm.search is not None:
        return SoundForecast(None, True, neighbours)
    if parts.unprotected:
        return SoundForecast(math.inf, False, neighbours)
    accountant = tightest(plan.first.event()[0], neighbours)
    costs = replace(costs, accountant=accountant)
    sound_budget = settings.epsilon if settings.sound else None
    if parts.adaptive:
        # The cases of fedpriv.privacy.sound, in the order in which a budget chooses among them.
        cap = parts.mechanism.bound(costs.sampling)
        if sound_budget is not None:
            return SoundForecast(sound_budget, False, neighbours)
        if cap is not None:
            epsilon = GdpAccountant().epsilon_of(cap, settings.delta, neighbours)
            return SoundForecast(epsilon, False, neighbours)
        if settings.epsilon is not None or not parts.noise_schedule.lowest_known:
            return SoundForecast(math.inf, False, neighbours)
        return SoundForecast(costs.forecast(plan.rounds, None).epsilon, True, neighbours)
    if plan.bound and plan.epsilon is not None and plan.epsilon == sound_budget:
        return SoundForecast(plan.epsilon, True, neighbours)  # the budget ends the run
    events = costs.of_rounds(plan.rounds)
    epsilon, by_rdp = accountant.forecast([events], settings.delta, neighbours)
    if settings.sound and plan.epsilon is not None:
        epsilon = min(epsilon, plan.epsilon)
    return SoundForecast(epsilon, plan.bound or by_rdp, neighbours, events)
