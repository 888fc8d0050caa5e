"""Budgets of three clients, charged with releases that no data made."""

from __future__ import annotations

import numpy as np
from releases import announced, group_of, released

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.budget import Adaptation, Budget, Target
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT, GaussianQuery, JointQuery, Public
from fedpriv.privacy.mechanisms.claims import adap_dpfl
from fedpriv.privacy.noise_schedules import ValidationDecay

ADAP_DPFL = adap_dpfl()


DELTA = 1e-5


ALL = np.arange(3)


FIRST_TWO = np.array([0, 1])


ACCOUNTANT = RdpAccountant("2..64", "classical")


def joint(sigma: float = 3.0, statistic: float | None = None, sampling=None) -> JointQuery:  # type: ignore[no-untyped-def]
    queries = [GaussianQuery(GRADIENT, sigma)]
    if statistic is not None:
        queries.append(GaussianQuery(CLIP_STATISTIC, statistic))
    return JointQuery(sampling or PoissonSampling(0.013), tuple(queries))


def make(
    first: JointQuery | None = None, *, epsilon=2.0, view="sound", adaptive=False, bound=None
) -> Budget:  # type: ignore[no-untyped-def]
    return Budget(
        clients=3,
        target=Target(epsilon, DELTA, view, ACCOUNTANT),
        claim=ADAP_DPFL,
        first=group_of(first or joint(), ALL),
        adaptation=Adaptation(bound) if adaptive else None,
    )


def charge(budget: Budget, one: JointQuery, clients=ALL, rounds: int = 1, lowest=None) -> None:  # type: ignore[no-untyped-def]
    announcement, release = announced(one, ALL, lowest=lowest), released(one, clients)
    for _ in range(rounds):
        budget.charge([release], announcement)


def sound_price(composition: dict[JointQuery, int], neighbours: str = ADD_OR_REMOVE) -> float:
    events = {one.event(): count for one, count in composition.items()}
    return PldAccountant().epsilon_of(events, DELTA, neighbours)


def decaying(budget: Budget, schedule: ValidationDecay, rounds: int) -> list[float]:
    """Run while the budget lasts, with a loss that falls in every round; σ of each round."""
    path = []
    for t in range(rounds):
        sigma = schedule.noise_multiplier(t)
        if not budget.eligible(announced(joint(sigma), ALL)).all():
            break
        charge(budget, joint(sigma), lowest=joint(schedule.lowest(t)))
        schedule.observe(t, Public(-float(t)))
        path.append(sigma)
    return path


def numbers(budget: Budget) -> list:
    return [
        budget.epsilon().tolist(),
        budget.epsilon_published().tolist(),
        budget.epsilon_sound().tolist(),
        [budget.ledger.composition(k) for k in range(3)],
    ]
