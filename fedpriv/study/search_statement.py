"""Privacy statement of a search: ``search.json`` and ``privacy.txt`` in the folder of the search.

``facts`` and ``words`` are for a search whose trials all compose; ``facts_of_stopping`` and
``words_of_stopping`` for a search by random stopping.
"""

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
    """Return the content of search.json for a search whose trials all compose.

    Args:
        definition: Facts that define the search.
        budget: ε, δ and accountant of the search.
        ledger: Releases of all trials so far.
        objective: Score by which trials were compared.
        trials: Values, state and score of each trial.
    """
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
    """Describe the trade-off curve at two false positive rates."""
    low, high = (percent_up(largest[name]) for name in RATES)
    return f"true positive rate of at most {low} at a false positive rate of 0.1 %, {high} at 1 %"


def _number(value: float) -> float | None:
    """Return None in place of infinity, which JSON does not have."""
    return value if value < float("inf") else None


def words(record: dict[str, Any]) -> str:
    """Return the text of privacy.txt for the facts that :func:`facts` returned."""
    epsilon, spent = (
        "infinite" if record[name] is None else round_up(record[name])
        for name in ("epsilon", "epsilon_spent")
    )
    states = [row.get("state", "not run") for row in record["trials"]]
    failed = sum(state in ("failed", "diverged", "interrupted") for state in states)
    claim = (
        "The budget is what may be claimed: trials were chosen by what earlier ones released."
        if record["adaptive"]
        else "Trials that ended early are charged as planned, in full."
    )
    return "\n".join(
        (
            f"Search of {counted(len(states), 'trial')} ({failed} failed or diverged), all of them charged",
            "",
            f"epsilon            {epsilon} at delta = {record['delta']:g}, of the client that is worst off",
            f"spent              {spent} of {record['epsilon_budget']:g}",
            f"best attack        {_best_attack(record['largest_tpr'])}",
            f"neighbours         {RELATION_WORDS[record['neighbours']]}",
            f"accountant         {record['accountant']}",
            f"objective          {record['search']['objective']}: reads {record['objective_reads']}",
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
    """Return the content of search.json for a search by random stopping.

    The number of trials is secret. Nothing in the result depends on this number unless the search was
    interrupted, when no result is shown and the trials are charged by composition.

    Args:
        definition: Facts that define the search.
        bound: ε of the best of the trials.
        settings: Budget and objective.
        state: ``running``, ``ended`` or ``interrupted``.
        best: Values and score of the best trial, or None where no trial has a score.
        begun: Number of trials that an interrupted search had begun, or None where it is not known.
    """
    epsilon = largest = None
    if state == "ended":
        epsilon, largest = bound.epsilon, bound.trade_off().largest()
    elif begun is not None:
        epsilon, largest = bound.composed(begun), bound.trade_off_composed(begun).largest()
    record = {
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
        record["best"] = best
    if state == "interrupted":
        record["trials_begun"] = begun
    return record


def words_of_stopping(record: dict[str, Any]) -> str:
    """Return the text of privacy.txt for the facts that :func:`facts_of_stopping` returned."""
    state = record["state"]
    if state == "running":
        return (
            "This search has not ended, and nothing may be claimed of it. If its process is gone, give its\n"
            "command again: it states what the trials cost that had begun.\n"
        )
    best = record.get("best")
    if state == "ended":
        result = "no trial has a score" if best is None else "the best of a secret number of trials"
        head, claim = f"Search by random stopping: {result}", _CLAIM_OF_ENDED
    else:
        begun = record["trials_begun"]
        trials = "an unknown number of trials" if begun is None else counted(begun, "trial")
        head = f"Search that did not reach its end: {trials}, all of them charged, no result"
        claim = _CLAIM_OF_INTERRUPTED
    objective = record["search"]["objective"]
    epsilon = "not known" if record["epsilon"] is None else round_up(record["epsilon"])
    budget = f"the budget was {record['epsilon_budget']:g}"
    rows = [("epsilon", f"{epsilon} at delta = {record['delta']:g}; {budget}")]
    if record["largest_tpr"]:
        rows.append(("best attack", _best_attack(record["largest_tpr"])))
    rows += [
        ("one trial", f"epsilon {round_up(record['epsilon_trial'])}; all release the same"),
        ("number of trials", f"{record['number_of_trials']}, drawn beforehand"),
        ("neighbours", RELATION_WORDS[record["neighbours"]]),
        ("bound", record["bound"]),
        ("objective", f"{objective}: reads {record['objective_reads']}"),
    ]
    if best is not None:
        values = " ".join(f"{key}={value}" for key, value in best["values"].items())
        rows.append(("best trial", f"{values}, {objective} {best['score']:.4f}"))
    table = (f"{name:<18} {value}" for name, value in rows)
    return "\n".join((head, "", *table, "", *claim, ""))


_CLAIM_OF_ENDED: Sequence[str] = (
    "This covers the model and the values in best/ and their score, for whoever sees nothing else.",
    "Secret stay the number of trials, those that lost, and how long the search took, which tells their",
    "number: the files bear the time at which it began; give away a copy of the folder.",
    "The server is trusted. Clients that take part see the models of trials that lose: against them all",
    "trials compose. Lots, cohorts and noise of every trial came from the operating system.",
)
_CLAIM_OF_INTERRUPTED: Sequence[str] = (
    "The bound of random stopping does not cover a search that was cut short. Its trials were deleted",
    "and are charged by composition, in full. It cannot go on.",
)
