"""How an audit of ε is shown: one table, the labels never mixed."""

from __future__ import annotations

import pandas as pd

from fedpriv.common.words import counted
from fedpriv.data.names import MISLABELLED
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.table import Column, Table
from fedpriv.tools.audit.epsilon_audit import EpsilonAudit
from fedpriv.tools.audit.epsilon_evaluate import BOUND, ESTIMATE, FAMILY, METHODS, AuditedEpsilon
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
    """A row for each number, with the kind of canary in each."""
    return frame_of(audit.found).assign(canary=audit.canary)


def frame_of(found: list[AuditedEpsilon]) -> pd.DataFrame:
    """A row for each number."""
    return pd.DataFrame([{**one.row(), "assumes": METHODS[one.method].assumes} for one in found])


def row(audit: EpsilonAudit) -> dict[str, object]:
    """One audit as a row of the table of several runs."""
    found = {key: value for key, value in audit.subject.items() if key != "finished"}
    found |= {"delta": audit.delta, "confidence": audit.options.confidence}
    found |= {"canaries": audit.canaries, "unit": audit.unit, "neighbours": audit.neighbours}
    found |= {f"{f.observer}_{f.method}": f.epsilon for f in audit.found}
    return found | {"canary": audit.canary}


def table(audit: EpsilonAudit, name: str) -> Table:
    """The numbers of one audit, by label."""
    return _by_label(_title(audit, name), audit.found, audit.headline)


def of_scores(found: list[AuditedEpsilon], count: int, delta: float, confidence: float) -> Table:
    """The numbers that a file of scores allows."""
    title = f"ε from below: {counted(count, 'canary')}, δ = {delta:g}, confidence {confidence:g}"
    return _by_label(title, found, None)


def _by_label(title: str, numbers: list[AuditedEpsilon], headline: AuditedEpsilon | None) -> Table:
    has_ideal = any(one.ideal is not None for one in numbers)
    columns = ("what it is", Column("method", style="cyan"), "who looks", "ε at least")
    table = Table(title, (*columns, "ideal") if has_ideal else columns)
    for kind in (BOUND, FAMILY, ESTIMATE):
        for one in numbers:
            if one.kind == kind:
                style = "bold" if one is headline else "dim" if kind != BOUND else ""
                cells = _cells(one)[: 2 if has_ideal else 1]
                table.add(kind, one.method, OBSERVERS[one.observer], *cells, style=style)
        table.end_section()
    return table


def meanings(found: list[AuditedEpsilon]) -> list[str]:
    """Return what each kind of number means."""
    return [f"{kind}: {LABELS[kind]}." for kind in dict.fromkeys(one.kind for one in found)]


def note_on_ties(scores: Scores) -> list[str]:
    """Return a line on equal scores, of which guesses are lost; none where all scores differ."""
    if not scores.tied:
        return []
    return [
        f"{counted(scores.tied, 'canary')} of {len(scores)} share their score with another: a group of "
        "equal scores across a cut counts as wrong guesses. Finer scores, or a random number added to "
        "each that is smaller than their steps and independent of the coins, find more."
    ]


def notes(audit: EpsilonAudit) -> list[tuple[str, str]]:
    """Return the lines below the table, each with its style."""
    lines = [(line, "dim") for line in meanings(audit.found)]
    sound = audit.subject.get("epsilon_sound")
    if sound is not None:
        lines.append((f"The ledger says at most {float(sound):.4g}.", ""))
    lines.append(
        (
            "ideal: what the method finds on average where exactly the ledger's ε leaks. A small number is "
            "no proof of privacy.",
            "dim",
        )
    )
    if audit.canary == MISLABELLED:
        lines.append(("ideal is of canaries of one direction; wrong labels show less.", "dim"))
    return lines


def _title(audit: EpsilonAudit, name: str) -> str:
    mislabelled = "mislabelled " if audit.canary == MISLABELLED else ""
    what = counted(audit.canaries, f"{mislabelled}canary {audit.unit}")
    how = "each by itself" if audit.independent else "planted in it" if audit.planted else ""
    if not how:
        how = f"in {counted(audit.options.repetitions, 'training')} like it"
    return (
        f"ε of {name} from below: {what} {how}, {RELATION_WORDS[audit.neighbours]}, "
        f"δ = {audit.delta:g}, confidence {audit.options.confidence:g}"
    )


def _cells(one: AuditedEpsilon) -> list[str]:
    about = "about " if one.kind == ESTIMATE else ""
    return [f"{about}{one.epsilon:.3g}", "" if one.ideal is None else f"{one.ideal:.3g}"]


def several(audits: list[EpsilonAudit], names: list[str]) -> Table:
    """A row for each run."""
    columns = ("run", "ε sound", "ε published", "bound", "method", "within a family")
    found = Table("ε from below", columns)
    for audit, name in zip(audits, names, strict=True):
        best = max((f.epsilon for f in audit.found if f.kind == FAMILY), default=0.0)
        head = audit.headline
        claims = [audit.subject.get(f"epsilon_{view}") for view in ("sound", "published")]
        shown = ["none" if c is None else f"{float(c):.4g}" for c in claims]
        found.add(name, *shown, f"{head.epsilon:.3g}", head.method, f"{best:.3g}")
    return found
