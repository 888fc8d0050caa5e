"""What a search guarantees: ``search.json`` and ``privacy.txt`` in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpriv.common.words import counted, round_up
from fedpriv.privacy.events import describe_event
from fedpriv.privacy.names import RELATION_WORDS
from fedpriv.search.budget import SearchBudget, SearchLedger
from fedpriv.search.objective import Objective


def facts(
    definition: dict[str, Any],
    budget: SearchBudget,
    ledger: SearchLedger,
    objective: Objective,
    trials: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Everything there is to say, as plain values."""
    return {
        "search": definition,
        "epsilon": _number(budget.guaranteed(ledger)),
        "epsilon_spent": _number(budget.spent(ledger)),
        "epsilon_budget": budget.limit,
        "delta": budget.delta,
        "neighbours": budget.neighbours,
        "adaptive": budget.adaptive,
        "accountant": budget.describe(),
        "objective_reads": objective.reads,
        "histories": [
            {describe_event(event): count for event, count in history.items()}
            for history in ledger.histories()
        ],
        "trials": list(trials),
    }


def _number(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if value < float("inf") else None


def words(found: dict[str, Any]) -> str:
    """The statement of the whole search."""
    epsilon, spent = (
        "infinite" if found[name] is None else round_up(found[name])
        for name in ("epsilon", "epsilon_spent")
    )
    states = [row.get("state", "not run") for row in found["trials"]]
    failed = sum(state in ("failed", "diverged", "interrupted") for state in states)
    claim = (
        "The budget is what may be claimed: trials were chosen by what earlier ones released."
        if found["adaptive"]
        else "Trials that ended early are charged as planned, in full."
    )
    return "\n".join(
        (
            f"Search of {counted(len(states), 'trial')} ({failed} failed or diverged), all of them charged",
            "",
            f"epsilon            {epsilon} at delta = {found['delta']:g}, of the client that is worst off",
            f"spent              {spent} of {found['epsilon_budget']:g}",
            f"neighbours         {RELATION_WORDS[found['neighbours']]}",
            f"accountant         {found['accountant']}",
            f"objective          {found['search']['objective']}: reads {found['objective_reads']}",
            "",
            claim,
            "This covers every trial, its model and the choice of the best; the statement in the folder of a",
            "trial is about that trial alone. It holds only if the seeds of the runs are secret.",
            "",
        )
    )
