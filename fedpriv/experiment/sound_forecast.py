"""Forecast of the sound ε of a run, from its plan alone: what a ledger of the planned run would give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import digits_up
from fedpriv.data.client_records import ClientRecords
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.sound import tightest

_HOPELESS = 100  # an ε above this protects nobody, whatever accountant states it
_MUCH_LESS = 0.8  # share of the planned ε below which the sound one is told beside it


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
    sound_budget = settings.epsilon if settings.sound else None
    own_accountant = is_own(parts.accountant)  # what limits the run is another number then
    ends_by_budget = (
        plan.bound
        and plan.epsilon is not None
        and plan.epsilon == sound_budget
        and not own_accountant
    )
    if plan.rounds is None or parts.algorithm.search is not None:
        return SoundForecast(None, True, neighbours)
    if not (ends_by_budget or _sizes_known(parts)):
        return SoundForecast(None, True, neighbours)
    if parts.unprotected:
        return SoundForecast(math.inf, False, neighbours)
    accountant = tightest(plan.first.event()[0], neighbours)
    costs = replace(costs, accountant=accountant)
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
    if ends_by_budget:
        return SoundForecast(sound_budget, True, neighbours)
    events = costs.of_rounds(plan.rounds)
    epsilon, by_rdp = accountant.forecast([events], settings.delta, neighbours)
    if settings.sound and plan.epsilon is not None and not own_accountant:
        epsilon = min(epsilon, plan.epsilon)
    return SoundForecast(epsilon, plan.bound or by_rdp, neighbours, events)


def with_sound_epsilon(parts: Parts, plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of a plan, with the sound ε that the run will report where it is another number.

    It is well below the planned ε where the accountant of the budget is loose, and unlike it where the budget
    limits the claim of a paper, or the accountant is the user's own.

    Args:
        parts: The parts of the run.
        plan: The plan of these parts.
    """
    rows, planned = plan.rows(), plan.epsilon
    if planned is None or plan.rounds == 0:
        return rows
    trusted = parts.settings.sound and not is_own(parts.accountant)
    if trusted and (plan.bound or planned > _HOPELESS):
        return rows
    forecast = forecast_sound(parts, plan)
    if forecast is None or forecast.epsilon is None:
        return rows
    if trusted and forecast.epsilon > _MUCH_LESS * planned:
        return rows
    shown = "infinite"
    if math.isfinite(forecast.epsilon):
        shown = f"{'at most ' if forecast.bound else ''}{digits_up(forecast.epsilon, 6)}"
    return [
        (
            name,
            f"{words}; sound: {shown}, which a finished run reports"
            if name == "epsilon"
            else words,
        )
        for name, words in rows
    ]


def _sizes_known(parts: Parts) -> bool:
    """Return whether the cost of the smallest client is known before the data are read.

    Small clients pay more where lots have a fixed size. Under the budget of a paper's theorem the large
    clients may also go on for more rounds.
    """
    if not parts.algorithm.cost_depends_on_records or parts.partition.records:
        return True
    published_budget = parts.settings.epsilon is not None and not parts.settings.sound
    if published_budget or not (parts.partition.by_count and parts.partition.clients):
        return False
    if not parts.dataset.known and parts.partition.stable:  # client sizes follow from coins
        return False
    try:
        clients = parts.partition.assign(np.zeros(parts.train_records, dtype=np.int64), None)
    except ConfigError:  # too few records: the run is refused once the data are read
        return False
    return int(ClientRecords.of(clients).sizes.min()) >= parts.even_share
