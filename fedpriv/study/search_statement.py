"""What a search guarantees: ``search.json`` and ``privacy.txt`` in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpriv.common.words import counted, percent_up, round_up
from fedpriv.privacy.core.events import describe_event
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.privacy.core.trade_off import RATES
from fedpriv.study.search_budget import SearchBudget, SearchLedger
from fedpriv.study.search_objective import Objective
from fedpriv.study.search_settings import SearchSettings
from fedpriv.study.search_stopping import SelectionBound


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
        "largest_tpr": budget.trade_off(ledger).largest(),
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


def _best_attack(largest: dict[str, float]) -> str:
    """The trade-off curve at two points."""
    low, high = (percent_up(largest[name]) for name in RATES)
    return f"true positive rate of at most {low} at a false positive rate of 0.1 %, {high} at 1 %"


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
            f"best attack        {_best_attack(found['largest_tpr'])}",
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


def facts_of_stopping(
    definition: dict[str, Any],
    bound: SelectionBound,
    settings: SearchSettings,
    state: str,
    best: dict[str, Any] | None,
    begun: int | None,
) -> dict[str, Any]:
    """The same of a search by random stopping. ``begun``: trials of one that did not reach its end; nothing
    else follows from how many there were."""
    epsilon = largest = None
    if state == "ended":
        epsilon, largest = bound.epsilon, bound.trade_off().largest()
    elif begun is not None:
        epsilon, largest = bound.composed(begun), bound.trade_off_composed(begun).largest()
    found = {
        "search": definition,
        "state": state,
        "epsilon": epsilon,
        "epsilon_budget": settings.epsilon,
        "epsilon_trial": bound.trial,
        "delta": bound.delta,
        "largest_tpr": largest,
        "neighbours": bound.neighbours,
        "number_of_trials": bound.law.words,
        "bound": bound.describe(),
        "trial": {describe_event(event): count for event, count in bound.events.items()},
        "objective_reads": settings.objective.reads,
    }
    if state == "ended":
        found["best"] = best
    if state == "interrupted":
        found["trials_begun"] = begun
    return found


def words_of_stopping(found: dict[str, Any]) -> str:
    """The statement of a search by random stopping."""
    state = found["state"]
    if state == "running":
        return (
            "This search has not ended, and nothing may be claimed of it. If its process is gone, give its\n"
            "command again: it states what the trials cost that had begun.\n"
        )
    head, claim = _ended(found) if state == "ended" else _interrupted(found)
    epsilon = "not known" if found["epsilon"] is None else round_up(found["epsilon"])
    rows = [
        (
            "epsilon",
            f"{epsilon} at delta = {found['delta']:g}; the budget was {found['epsilon_budget']:g}",
        ),
        *([("best attack", _best_attack(found["largest_tpr"]))] if found["largest_tpr"] else []),
        ("one trial", f"epsilon {round_up(found['epsilon_trial'])}; all release the same"),
        ("number of trials", f"{found['number_of_trials']}, drawn beforehand"),
        ("neighbours", RELATION_WORDS[found["neighbours"]]),
        ("bound", found["bound"]),
        ("objective", f"{found['search']['objective']}: reads {found['objective_reads']}"),
        *_best(found),
    ]
    table = (f"{name:<18} {value}" for name, value in rows)
    return "\n".join((head, "", *table, "", *claim, ""))


def _best(found: dict[str, Any]) -> list[tuple[str, str]]:
    best = found.get("best")
    if best is None:
        return []
    values = " ".join(f"{key}={value}" for key, value in best["values"].items())
    return [("best trial", f"{values}, {found['search']['objective']} {best['score']:.4f}")]


def _ended(found: dict[str, Any]) -> tuple[str, Sequence[str]]:
    head = "Search by random stopping: the best of a secret number of trials"
    if found["best"] is None:
        head = "Search by random stopping: no trial has a score"
    return head, (
        "This covers the model and the values in best/ and their score, for whoever sees nothing else.",
        "Secret stay the number of trials, those that lost, and how long the search took, which tells their",
        "number: the files bear the time at which it began; give away a copy of the folder.",
        "The server is trusted. Clients that take part see the models of trials that lose: against them all",
        "trials compose. Lots, cohorts and noise of every trial came from the operating system.",
    )


def _interrupted(found: dict[str, Any]) -> tuple[str, Sequence[str]]:
    begun = found["trials_begun"]
    trials = "an unknown number of trials" if begun is None else counted(begun, "trial")
    return f"Search that did not reach its end: {trials}, all of them charged, no result", (
        "The bound of random stopping does not cover a search that was cut short. Its trials were deleted",
        "and are charged by composition, in full. It cannot go on.",
    )
