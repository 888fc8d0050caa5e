"""The part of a privacy budget that a run leaves unspent: why, and what would use it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedpriv.common.words import round_up
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.noise_schedules import CalibratedNoise
from fedpriv.privacy.sound import tightest

_FAR_MORE = 100
"""Times the rounds asked for beyond which nobody wants the rounds that the budget pays for."""

_WORTH_TELLING = 0.01
"""Share of the budget below which nothing is told."""


def planned_words(parts: Parts, rounds: int | None, allowed: int | None) -> str | None:
    """Return words for the plan on the part of the budget that the run will leave; None if it is little.

    Args:
        parts: The parts of a private run.
        rounds: Planned number of rounds.
        allowed: Number of rounds that the budget pays for at the first noise multiplier.
    """
    limit, schedule = parts.settings.epsilon, parts.noise_schedule
    if (
        limit is None
        or not parts.settings.sound
        or parts.adaptive
        or parts.unprotected
        or not allowed
    ):
        return None
    tighter = _tighter(parts)
    if isinstance(schedule, CalibratedNoise) and schedule.epsilon_per_draw is None:
        if tighter is None or rounds is None or not parts.shares_known:
            return None
        costs = replace(parts.costs(), accountant=tighter)
        sound = costs.epsilon(schedule.noise_multiplier(0), rounds)
        if not math.isfinite(sound) or limit - sound < _WORTH_TELLING * limit:
            return None
        return (
            f"sound epsilon {round_up(sound)} of {limit:g}: accountant={tighter.name} needs less noise, as "
            f"{_looser(parts, tighter)}"
        )
    if rounds is not None and rounds < allowed and not schedule.spreads_budget:
        if allowed > _FAR_MORE * rounds:
            return f"{_more_rounds(rounds, allowed)}: noise_schedule=calibrated takes less noise"
        return f"{_more_rounds(rounds, allowed)}, or noise_schedule=calibrated takes less noise"
    if tighter is not None and not schedule.spreads_budget:
        return f"accountant={tighter.name} pays for more rounds, as {_looser(parts, tighter)}"
    return None


def uncalibrated_words(parts: Parts, allowed: int | None) -> str | None:
    """Return words for the plan where noise for one release leaves too few rounds; None if it does not.

    Args:
        parts: The parts of a private run.
        allowed: Number of rounds that the budget pays for.
    """
    rounds, schedule, cohort = (
        parts.settings.rounds,
        parts.noise_schedule,
        parts.algorithm.clients_per_round,
    )
    if not isinstance(schedule, CalibratedNoise) or schedule.epsilon_per_draw is None:
        return None
    everybody = cohort is None or cohort >= (parts.partition.clients or math.inf)
    if rounds is None or not allowed or allowed >= rounds or not everybody:
        return None
    release = "report" if parts.algorithm.trust.sees_each_upload else "release"
    return (
        f"noise_schedule.epsilon_per_draw=null pays for all {rounds} rounds, not {allowed}: now each "
        f"{release} has epsilon {schedule.epsilon_per_draw:g}"
    )


def final_words(parts: Parts, summary: Mapping[str, Any], allowed: int | None) -> str | None:
    """Return words for the result on why the sound ε is below the budget; None if it hardly is.

    Args:
        parts: The parts of the run.
        summary: The summary of the finished run.
        allowed: Number of rounds that the budget paid for, by the plan.
    """
    limit, enforced, sound = parts.settings.epsilon, summary["epsilon"], summary["epsilon_sound"]
    if limit is None or enforced is None or not parts.settings.sound or parts.adaptive:
        return None
    if not math.isfinite(sound) or limit - sound < _WORTH_TELLING * limit:
        return None
    reasons, tighter, rounds = [], _tighter(parts), summary["rounds"]
    if limit - enforced >= _WORTH_TELLING * limit:
        if summary["stop_reason"] == "budget":
            reasons.append("one more round would exceed the budget (more noise costs less a round)")
        elif allowed is not None and rounds < allowed:
            reasons.append(_more_rounds(rounds, allowed))
        elif parts.algorithm.clients_per_round is not None:
            reasons.append("no client was in as many rounds as were planned for")
        else:
            reasons.append(f"the run ended after {rounds} rounds ({summary['stop_reason']})")
    few_rounds = summary["stop_reason"] == "rounds" and bool(
        reasons
    )  # then the accountant matters little
    if tighter is not None and not few_rounds and enforced - sound >= _WORTH_TELLING * limit:
        calibrated = isinstance(parts.noise_schedule, CalibratedNoise)
        whole = calibrated and parts.noise_schedule.epsilon_per_draw is None
        remedy = "needs less noise" if whole else "pays for more rounds"
        reasons.append(f"accountant={tighter.name} {remedy}, as {_looser(parts, tighter)}")
    return f"{round_up(sound)} of {limit:g}: {'; '.join(reasons)}" if reasons else None


def _more_rounds(rounds: int, allowed: int) -> str:
    if allowed > _FAR_MORE * rounds:
        return f"the budget pays for more than {_FAR_MORE * rounds} rounds, not {rounds}"
    return f"the budget pays for {allowed} rounds, not {rounds}: rounds={allowed} spends it"


def _looser(parts: Parts, tighter: Accountant) -> str:
    """Say that the accountant of the budget counts more than the one of the sound ε."""
    return f"accountant={parts.accountant.name} counts more than {tighter.name}, by which epsilon is sound"


def _tighter(parts: Parts) -> Accountant | None:
    """Return the accountant of the sound ε if it is tighter than the one that the budget is counted by."""
    sampling = parts.algorithm.sampling_of(parts.even_share)
    event, _ = parts.mechanism.group(sampling, parts.noise_schedule.noise_multiplier(0), 0).event()
    accountant = tightest(event, sampling.neighbours)
    loose = ("rdp", "zcdp")
    return accountant if parts.accountant.name in loose and accountant.name not in loose else None
