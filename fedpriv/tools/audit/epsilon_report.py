"""Tables of an audit of ε. Bounds, bounds within a family and estimates are never mixed."""

from __future__ import annotations

import pandas as pd

from fedpriv.common.words import counted, digits_down, digits_up
from fedpriv.data.names import MISLABELLED
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.table import Column, Table
from fedpriv.tools.audit.epsilon_audit import EpsilonAudit
from fedpriv.tools.audit.epsilon_evaluate import BOUND, ESTIMATE, FAMILY, AuditedEpsilon
from fedpriv.tools.audit.epsilon_guesses import Scores

OBSERVERS = {
    "releases": "every release",
    "final_model": "the final model",
    "black_box": "queries of the final model",
    "sizes": "the size of the last release",
    "scores": "scores",
}
LABELS = {
    BOUND: "a lower bound: the claim of a smaller ε is refuted",
    FAMILY: "a lower bound if the assumption holds: it refutes no claim of (ε, δ)",
    ESTIMATE: (
        "an estimate without confidence, above the truth in about 90 % of Gaussian trials: it refutes nothing"
    ),
}


def frame(audit: EpsilonAudit) -> pd.DataFrame:
    """Return a row for each number of an audit, with the kind of canary in each."""
    return frame_of(audit.found).assign(canary=audit.canary)


def frame_of(found: list[AuditedEpsilon]) -> pd.DataFrame:
    """Return a row for each number."""
    return pd.DataFrame([number.row() for number in found])


def row(audit: EpsilonAudit) -> dict[str, object]:
    """Return one audit as a row of the table of several runs."""
    facts = {key: value for key, value in audit.subject.items() if key != "finished"}
    facts |= {"delta": audit.delta, "confidence": audit.options.confidence}
    facts |= {"canaries": audit.canaries, "unit": audit.unit, "neighbours": audit.neighbours}
    facts |= {f"{number.observer}_{number.method}": number.epsilon for number in audit.found}
    return facts | {"canary": audit.canary}


def table(audit: EpsilonAudit, name: str) -> Table:
    """Return the numbers of one audit, grouped by their kind.

    Args:
        audit: The audit.
        name: Name of the run.
    """
    mislabelled = "mislabelled " if audit.canary == MISLABELLED else ""
    canaries = counted(audit.canaries, f"{mislabelled}canary {audit.unit}")
    if audit.independent:
        how = "each by itself"
    elif audit.planted:
        how = "planted in it"
    else:
        how = f"in {counted(audit.options.repetitions, 'training')} like it"
    title = (
        f"ε of {name} from below: {canaries} {how}, {RELATION_WORDS[audit.neighbours]}, "
        f"δ = {audit.delta:g}, confidence {audit.options.confidence:g}"
    )
    return _by_label(title, audit.found, audit.headline)


def of_scores(found: list[AuditedEpsilon], count: int, delta: float, confidence: float) -> Table:
    """Return the numbers that a file of scores allows, grouped by their kind.

    Args:
        found: The numbers.
        count: Number of canaries.
        delta: δ of the audited guarantee.
        confidence: Confidence of all bounds together.
    """
    title = f"ε from below: {counted(count, 'canary')}, δ = {delta:g}, confidence {confidence:g}"
    return _by_label(title, found, None)


def _by_label(title: str, numbers: list[AuditedEpsilon], headline: AuditedEpsilon | None) -> Table:
    has_ideal = any(number.ideal is not None for number in numbers)
    columns = ("what it is", Column("method", style="cyan"), "who looks", "ε at least")
    table = Table(title, (*columns, "ideal") if has_ideal else columns)
    for kind in (BOUND, FAMILY, ESTIMATE):
        for number in numbers:
            if number.kind == kind:
                style = "bold" if number is headline else "dim" if kind != BOUND else ""
                bound = digits_down(number.epsilon)
                cells = [f"about {number.epsilon:.3g}" if kind == ESTIMATE else bound]
                if has_ideal:
                    cells.append("" if number.ideal is None else f"{number.ideal:.3g}")
                table.add(kind, number.method, OBSERVERS[number.observer], *cells, style=style)
        table.end_section()
    return table


def meanings(found: list[AuditedEpsilon]) -> list[str]:
    """Return the meaning of each kind of number, a line each."""
    return [f"{kind}: {LABELS[kind]}." for kind in dict.fromkeys(number.kind for number in found)]


def note_on_ties(scores: Scores) -> list[str]:
    """Return a line on equal scores, whose guesses are lost; none if all scores differ."""
    if not scores.tied:
        return []
    return [
        f"{counted(scores.tied, 'canary')} of {len(scores)} share their score with another: a group of "
        "equal scores across a cut counts as wrong guesses. Scores with finer steps find more. So does a "
        "random number added to each score that is smaller than the steps and independent of the coins."
    ]


def notes(audit: EpsilonAudit) -> list[tuple[str, str]]:
    """Return the lines below the table, each with its style."""
    lines = [(line, "dim") for line in meanings(audit.found)]
    sound = audit.subject.get("epsilon_sound")
    if sound is not None:
        lines.append((f"The ledger says at most {digits_up(float(sound))}.", ""))
    lines.append(
        (
            "ideal: the average result of the method if exactly the ledger's ε leaks. A small number is no "
            "proof of privacy.",
            "dim",
        )
    )
    if audit.canary == MISLABELLED:
        lines.append(
            ("ideal is for canaries of one direction; canaries with wrong labels show less.", "dim")
        )
    return lines


def several(audits: list[EpsilonAudit], names: list[str]) -> Table:
    """Return a table with a row for each run.

    Args:
        audits: The audits.
        names: The name of each run.
    """
    columns = ("run", "ε sound", "ε published", "bound", "method", "within a family")
    summary = Table("ε from below", columns)
    for audit, name in zip(audits, names, strict=True):
        best = max((number.epsilon for number in audit.found if number.kind == FAMILY), default=0.0)
        head = audit.headline
        claims = [audit.subject.get(f"epsilon_{view}") for view in ("sound", "published")]
        shown = ["none" if epsilon is None else digits_up(float(epsilon)) for epsilon in claims]
        summary.add(name, *shown, digits_down(head.epsilon), head.method, digits_down(best))
    return summary
