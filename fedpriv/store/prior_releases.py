"""The part of the statement on releases before the first round, and the count of released numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpriv.common.words import round_up
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS
from fedpriv.privacy.mechanisms.matrix import CorrelatedQuery
from fedpriv.privacy.sound import tightest


def facts_before(budget: Budget) -> dict[str, Any]:
    """Return the facts about feature statistics released before the first round; empty without any."""
    for joint, entry in budget.ledger:
        if FEATURE_STATISTICS in joint.names:
            event, neighbours = joint.event(), budget.neighbours
            epsilon_alone = tightest(event, neighbours).epsilon_of(
                {event: 1}, budget.delta, neighbours
            )
            query = joint.query(FEATURE_STATISTICS)
            facts = {
                "released": query.describe(),
                "clip_norm": entry.sensitivity[FEATURE_STATISTICS].high,
                "clients": int(np.count_nonzero(budget.ledger.counts(joint))),
                "epsilon_alone": epsilon_alone,
            }
            return {"before_first_round": facts}
    return {}


def words_before(facts: Mapping[str, Any]) -> list[str]:
    """Describe the statistics released before the first round; an empty list without any."""
    release = facts.get("before_first_round")
    if release is None:
        return []
    name, _, multiplier = release["released"].partition("=")
    return [
        f"Before the first round each of {release['clients']} clients released {name} once: the sum over "
        "its records of the mean and mean square of each channel of their features, clipped to L2 norm "
        f"{release['clip_norm']:g}, with noise multiplier {multiplier}. What the sums make is in model.pt "
        f"(mean, variance). Alone epsilon = {round_up(release['epsilon_alone'])}; it is part of every "
        "epsilon here."
    ]


def noised_numbers(budget: Budget, draws: np.ndarray, of_a_draw: int, before: int) -> int:
    """Return the largest number of values with continuous noise that one client releases.

    Correlated noise releases all answers of the run at once, however often a client took part.

    Args:
        budget: The budget of the run.
        draws: Number of draws of each client [K].
        of_a_draw: Number of values that one draw releases.
        before: Number of values released before the first round.
    """
    queries = (query for joint, _ in budget.ledger for query in joint.queries)
    answers = max((q.answers for q in queries if isinstance(q, CorrelatedQuery)), default=1)
    return max(int(draws.max()), answers) * of_a_draw + before
