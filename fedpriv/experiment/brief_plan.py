"""The plan before a run in at most ten lines. ``--plan`` and a dry run show the whole plan."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fedpriv.common.words import counted, digits_up, span
from fedpriv.data.federated import FederatedData
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan, Row
from fedpriv.models.base import model_name
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.caveats import CAVEATS, SEES_HIDDEN
from fedpriv.store.statement import first_clause

MOST_LINES = 10
_TITLE = "Plan (--plan shows all)"
_FIRST = ("infinite", "delta is not", "epsilon is large", "vacuous")
"""Words of the caveats that come first, as the guarantee itself depends on them."""
_SHORT = {
    "validation": "validation records are public",
    "warm_start": "the records of the warm start are public",
    "warm_start_on_clients": "the warm start reads clients' records without noise",
    "delta": "delta is not below 1/n",
    "delta_of_clients": "delta is not below 1/K",
    "large": "epsilon is large",
    "paired": "paired runs together have no finite epsilon",
    "fixed_size": "the published view pretends Poisson sampling",
    "correlated": "the run is charged as a whole",
    "secret_turns": "who joins a round must stay secret",
    "secret_rests": "who joins a round must stay secret",
    "search": "the rounds were found by runs on the same data",
    "canaries": "canaries are planted",
    "mislabelled": "copied records cost twice epsilon",
    "aggregation": "a rule combines released uploads",
    "buckets": "a rule combines noised sums of buckets",
    "attackers": "attackers are not charged",
    "omniscient": SEES_HIDDEN,
}
"""Short forms of the caveats of a statement, by their keys."""


def brief_plan(
    parts: Parts, plan: Plan, data: FederatedData, size: int, caveats: Sequence[str], folder: str
) -> list[Row]:
    """Return the rows of the brief plan.

    Args:
        parts: The parts of the run.
        plan: The whole plan.
        data: The records of the clients.
        size: Number of parameters of the model.
        caveats: Sentences that a reader of the privacy numbers must know.
        folder: The run folder.
    """
    settings, algorithm = parts.settings, parts.algorithm
    partition = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(parts.partition).__name__).lower()
    sizes = data.records_per_client
    budget_rows = [row for row in plan.lines if row[0] in ("unspent", "too few rounds")]
    attack_rows = [
        ("attack", text.rpartition("; ")[2])
        for name, text in plan.lines
        if name == "attack" and "; no attack in " in text
    ]
    rows = [
        (
            "training",
            f"{algorithm.name} with {model_name(parts.model)} ({size:,} parameters) on "
            f"{parts.dataset.name}, seed {settings.seed}",
        ),
        (
            "data",
            f"{sizes.sum():,} records, {counted(data.client_count, 'client')} ({partition}) of "
            f"{span(sizes.min(), sizes.max())}",
        ),
        *_privacy_rows(parts, plan),
        *budget_rows,
        *attack_rows,
    ]
    if caveats := _in_short(plan, caveats):
        rows.append(("caveats", "; ".join(caveats)))
    return [*rows, ("run folder", folder)]


def _privacy_rows(parts: Parts, plan: Plan) -> Iterator[Row]:
    """Yield unit and neighbours, noise and rounds, budget and ε."""
    settings, algorithm, schedule = parts.settings, parts.algorithm, parts.noise_schedule
    if plan.first is None:
        yield "privacy", "none: no clipping, no noise, no epsilon"
        yield "rounds", str(settings.rounds)
        return
    relation = RELATION_WORDS[plan.first.upload.joint.sampling.neighbours]
    yield "protects", f"one {algorithm.unit} ({relation}; {algorithm.trust.name} trust)"
    changes = " in the first round" if parts.adaptive else ""
    rounds = "until the budget is spent"
    if settings.rounds is not None:
        rounds = counted(settings.rounds, "round")
    if plan.rounds_allowed is not None:
        rounds += f" (the budget allows {plan.rounds_allowed})"
    yield "noise", f"noise multiplier {schedule.noise_multiplier(0):g}{changes}; {rounds}"
    budget = "none" if settings.epsilon is None else f"epsilon {settings.epsilon:g}"
    counted_by = f"budget_view={settings.budget_view}, accountant {parts.accountant.name}"
    yield "budget", f"{budget} at delta {settings.delta:g} ({counted_by})"
    yield "epsilon", _epsilon_words(parts, plan)


def _epsilon_words(parts: Parts, plan: Plan) -> str:
    """Return the enforced and the sound ε at the end, as far as they are known."""
    assert plan.epsilon is not None
    if math.isinf(plan.epsilon) or parts.unprotected:
        return (
            "no finite sound epsilon" if parts.settings.sound or parts.unprotected else "infinite"
        )
    at_most = "at most " if plan.bound else ""
    name = "enforced" if parts.settings.epsilon is not None else "composed"
    words = f"{at_most}{digits_up(plan.epsilon)} {name}"
    if not parts.settings.sound:
        return f"{words}; sound: known at the end"
    if parts.adaptive and parts.settings.epsilon is not None:
        return f"{words}; {parts.settings.epsilon:g} sound (the whole budget, as the noise adapts)"
    return f"{words}; sound: that at most"


def _in_short(plan: Plan, caveats: Iterable[str]) -> list[str]:
    """Return short forms of all caveats, those first on which the guarantee itself depends."""
    keys = {text: _SHORT[key] for key, text in CAVEATS.items() if key in _SHORT}
    words = [keys.get(caveat) or first_clause(caveat) for caveat in caveats]
    words += [first_clause(text) for name, text in plan.lines if name == "caveat"]
    distinct = list(dict.fromkeys(words))
    return sorted(distinct, key=lambda text: not any(first in text for first in _FIRST))


def show_brief(out: Console, rows: Sequence[Row]) -> None:
    """Print the rows, at most ten lines with the title. Caveats have the lines that are left.

    Args:
        out: The console.
        rows: The rows of the brief plan.
    """
    width = max(len(name) for name, _ in rows) + 4
    free = MOST_LINES - len(rows)  # lines that one row may have, as the title has one
    out.print(Text(_TITLE, style="italic"))
    for name, words in rows:
        text = Text(words)
        lines = text.wrap(out, max(20, out.width - width))
        most = max(1, free) if name == "caveats" else 1
        shown = [str(line).rstrip() for line in lines[:most]]
        if len(lines) > most:
            shown[-1] = _cut(shown[-1], out.width - width)
        for place, line in enumerate(shown):
            head = Text(f"  {name if place == 0 else '':<{width - 2}}", style="cyan")
            out.print(head.append(line, style="yellow" if name == "caveats" else "default"))


def _cut(line: str, width: int) -> str:
    return f"{line[: width - 2].rstrip()} …"
