"""The facts of a run's privacy statement as plain values: ``privacy.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.core.names import (
    AGGREGATOR,
    CLIENT,
    ZERO_OUT,
)
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms import GRADIENT
from fedpriv.privacy.mechanisms.matrix import CorrelatedQuery
from fedpriv.store.caveats import (
    CAVEATS,
    ENTROPY,
    GENERAL_CAVEATS,
    SEEDS,
    UNIT_CAVEATS,
    diagnostic_items,
    floating_point,
)
from fedpriv.store.prior_releases import facts_before, noised_numbers

SEEDED, ENTROPY_ROOT = "seeds of the configuration", "the operating system's entropy"
_ROUNDING = 1e-9  # relative; a run planned to end at its budget may exceed it by rounding


@dataclass(frozen=True)
class Circumstances:
    """The facts about a run that its budget does not hold.

    Attributes:
        unit: The unit of privacy, ``record`` or ``client``.
        trust: The trust model: which party sees which uploads.
        caveats: Sentences that a reader must know, of this run alone.
        diagnostics: True if the folder holds exact statistics of private data.
        attackers: Indices of the clients for which no guarantee is stated.
        published: True if the secrets come from the operating system (``publish=true``).
        paired: Name of the group of runs with the same secrets; None: the run is not paired.
        numbers: Number of values with continuous noise that a draw releases; 0 for discrete noise.
        before: Number of such values that were released before the first round.
        imagined: ε of a population that is not the one simulated, as the noise schedule states it.
        untested: Class of a data set of the user's own whose ``load`` nothing tests; None: there is none.
        own_texts: Texts in the facts that code outside fedpriv wrote, which are never published.
        known: True if the data are published or generated ones, whose split is public.
    """

    unit: str
    trust: Trust
    caveats: Sequence[str]
    diagnostics: bool
    attackers: Sequence[int] = ()
    published: bool = False
    paired: str | None = None
    numbers: int = 0
    before: int = 0
    imagined: Mapping[str, float | str] | None = None
    untested: str | None = None
    own_texts: Sequence[str] = ()
    known: bool = False


def privacy_facts(
    budget: Budget | None, run: Circumstances, stop_reason: str | None
) -> dict[str, Any]:
    """Return the content of ``privacy.json``; an infinite ε is ``inf``.

    Every ε is the largest over the honest clients, because attackers are owed no protection. Some accountants
    take long here.

    Args:
        budget: Ledger and totals of the run; None for a run without privacy.
        run: The facts that the budget does not hold.
        stop_reason: The reason why the run ended; None while it runs.

    Returns:
        For a run without privacy only ``schema_version``, ``private`` and ``words``.
    """
    if budget is None:
        return {
            "schema_version": 1,
            "private": False,
            "words": "This run has no privacy: nothing is clipped and no noise is added.",
        }
    honest = np.delete(np.arange(budget.ledger.clients), np.array(run.attackers, dtype=int))
    values = {
        "epsilon": budget.epsilon()[honest],
        "epsilon_published": budget.epsilon_published()[honest],
        "epsilon_sound": budget.epsilon_sound()[honest],
    }
    draws = budget.ledger.samples_of(GRADIENT)[honest]
    claim, curve = budget.claim, budget.trade_off()
    spent = float(np.max(values["epsilon"]))
    exceeded = budget.limit is not None and spent > budget.limit * (1.0 + _ROUNDING)
    pair: dict[str, Any] = {}
    if run.paired is not None:
        pair = {"paired": run.paired, "epsilon_of_two_paired_runs": math.inf}
    statistics: dict[str, Any] = {"lowest": np.min, "median": np.median, "highest": np.max}
    published = None
    if claim is not None:
        keys = ("unit", "trust", "neighbours", "source", "statement")
        published = {key: getattr(claim, key) for key in keys}
    of_unit = UNIT_CAVEATS[run.unit]
    if run.unit == "record" and CAVEATS["declared_records"] in run.caveats:
        of_unit = of_unit[1:]  # sizes of clients are not public
    of_split = [CAVEATS["known"]] if run.known else []
    caveats = [*run.caveats, *of_unit, *of_split, ENTROPY if run.published else SEEDS]
    if run.numbers:
        numbers = noised_numbers(budget, draws, run.numbers, run.before)
        caveats.append(floating_point(numbers))
    return {
        "schema_version": 1,
        "private": True,
        "finished": stop_reason is not None,
        "stop_reason": stop_reason,
        "delta": budget.delta,
        "budget": budget.limit,
        **({"budget_exceeded": True} if exceeded else {}),
        "budget_view": budget.view,
        "randomness": ENTROPY_ROOT if run.published else SEEDED,
        **pair,
        **({} if run.imagined is None else {"imagined_population": dict(run.imagined)}),
        "noise_adapts": budget.adaptive,
        "accountant": budget.accountant.describe(),
        "order": budget.order(),
        **{name: _number_or_none(np.max(array)) for name, array in values.items()},
        "largest_tpr": curve.largest(),
        "privacy_profile": curve.plain(),
        **({"declared_by": declared} if (declared := budget.declared_by) else {}),
        "reasons": budget.reasons(),
        "spread": {
            name: {key: _number_or_none(value(array)) for key, value in statistics.items()}
            for name, array in values.items()
        },
        "attackers": len(run.attackers),
        "clients": {
            "total": len(honest),
            "took_part": int(np.count_nonzero(draws)),
            "draws_fewest": int(draws.min()),
            "draws_most": int(draws.max()),
        },
        "views": {
            "sound": {"unit": run.unit, "trust": run.trust.name, "neighbours": budget.neighbours},
            "published": published,
        },
        "parts": _parts(budget, run.trust),
        **facts_before(budget),
        "caveats": [*caveats, *GENERAL_CAVEATS],
        "diagnostics": diagnostic_items(_secret_cohort(budget, run.trust))
        if run.diagnostics
        else [],
        **({} if run.untested is None else {"untested": run.untested}),
        **({"own_texts": list(run.own_texts)} if run.own_texts else {}),
    }


def _secret_cohort(budget: Budget, trust: Trust) -> bool:
    """Return whether the guarantee needs the cohorts to stay secret.

    With zero-out adjacency that is so only where sampling amplifies: neighbours there have equal cohorts.
    """
    if budget.neighbours != ZERO_OUT:
        return trust.secret_cohort
    queries = [query for joint, _ in budget.ledger for query in joint.queries]
    sampled = any(isinstance(q, CorrelatedQuery) and q.sample_rate < 1.0 for q in queries)
    return trust.secret_cohort and sampled


def _number_or_none(value: float) -> float | None:
    """Return a float; None for nan, the published ε of an algorithm without a published claim."""
    return None if np.isnan(value) else float(value)


def _parts(budget: Budget, trust: Trust) -> dict[str, float | None] | None:
    """Return the sound ε of the values noised by clients and by a trusted aggregator, each alone."""
    if not trust.sees_each_upload or budget.epsilon_of_part(AGGREGATOR) is None:
        return None
    return {by: budget.epsilon_of_part(by) for by in (CLIENT, AGGREGATOR)}
