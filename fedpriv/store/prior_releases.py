"""What the statement says of releases before the first round, and of how many numbers all releases have."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpriv.common.words import round_up
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS
from fedpriv.privacy.mechanisms.matrix import CorrelatedQuery
from fedpriv.privacy.sound import tightest


def facts_before(budget: Budget) -> dict[str, Any]:
    """What the ledger has of statistics released before the first round; nothing where it has none."""
    for joint, entry in budget.ledger:
        if FEATURE_STATISTICS in joint.names:
            event, neighbours = joint.event(), budget.neighbours
            alone = tightest(event, neighbours).epsilon_of({event: 1}, budget.delta, neighbours)
            query = joint.query(FEATURE_STATISTICS)
            told = {
                "released": query.describe(),
                "clip_norm": entry.sensitivity[FEATURE_STATISTICS].high,
                "clients": int(np.count_nonzero(entry.counts(budget.ledger.clients))),
                "epsilon_alone": alone,
            }
            return {"before_first_round": told}
    return {}


def words_before(facts: dict[str, Any]) -> list[str]:
    """The same in a sentence."""
    told = facts.get("before_first_round")
    if told is None:
        return []
    name, _, multiplier = told["released"].partition("=")
    return [
        f"Before the first round each of {told['clients']} clients released {name} once: the sum over its "
        "records of the mean and mean square of each channel of their features, clipped to L2 norm "
        f"{told['clip_norm']:g}, with noise multiplier {multiplier}. What the sums make is in model.pt "
        f"(mean, variance). Alone epsilon = {round_up(told['epsilon_alone'])}; it is part of every epsilon "
        "here."
    ]


def noised_numbers(budget: Budget, draws: np.ndarray, of_a_draw: int, before: int) -> int:
    """How many with noise of real numbers a client releases at most, in ``draws`` [K] draws of so many and
    ``before`` the first round. A release is of all answers of a run where its noise is correlated."""

    queries = (query for joint, _ in budget.ledger for query in joint.queries)
    answers = max((q.answers for q in queries if isinstance(q, CorrelatedQuery)), default=1)
    return max(int(draws.max()), answers) * of_a_draw + before
