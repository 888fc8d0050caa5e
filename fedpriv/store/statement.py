"""The privacy statement in words: ``privacy.txt``.

The statement begins with what a reader must know, in about 25 lines; the section ``Details`` says everything.
Every function takes the facts that :mod:`fedpriv.store.statement_facts` writes to ``privacy.json``, so a
statement can be worded again from a stored run.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from fedpriv.common.words import counted, counted_span, percent_up, round_up
from fedpriv.privacy.core.names import (
    ADD_OR_REMOVE,
    AGGREGATOR,
    CLIENT,
    RELATION_WORDS,
    SOUND,
    ZERO_OUT,
)
from fedpriv.privacy.core.trade_off import RATES
from fedpriv.privacy.core.trust import TRUSTS
from fedpriv.store.caveats import CAVEATS, UNIT_CAVEATS
from fedpriv.store.prior_releases import words_before
from fedpriv.store.statement_facts import ENTROPY_ROOT

LEVELS = {"record": "record level, example level", "client": "client level, user level"}
NOMINAL = 100.0
"""Largest ε that the statement calls protection; a larger one is called vacuous."""
_MEANINGS = {
    "enforced": "the running total of the configured accountant, which the budget limits",
    "composed": "the total by the configured accountant; no budget limits it",
    "published": "the claim of the algorithm's paper for this run",
    "sound": "proven for this run: the number to report",
}
_WIDTH = 100  # columns of the statement
_UNBROKEN = "\u00a0"  # a space at which no line is broken


def privacy_words(facts: Mapping[str, Any]) -> str:
    """Return the full text of ``privacy.txt``.

    Args:
        facts: The facts of the statement, as in ``privacy.json``.
    """
    if not facts["private"]:
        return facts["words"] + "\n"
    sound = facts["views"]["sound"]
    unit = sound["unit"]
    details = [
        f"{_protection(facts)} one {unit}{' of one client' if unit == 'record' else ''} "
        f"({LEVELS[unit]}; {_neighbours(sound)}), {TRUSTS[sound['trust']].against}{_covered_clients(facts)}",
        _number("epsilon_sound", "Sound", facts),
        _number("epsilon", composition_word(facts).capitalize(), facts),
        _published(facts),
        *_imagined(facts),
        *words_before(facts),
        _best_attack(facts),
        *_trust_in_aggregator(facts),
        "Over clients: " + _spread(facts),
    ]
    # From the one sentence that may be quoted to the details: many readers stop after the first.
    blocks = [
        _filled(headline(facts)),
        _aligned(_short_rows(facts)),
        "Caveats, each in full below\n"
        + _bullets(first_clause(caveat) for caveat in facts["caveats"]),
        "Details",
        *map(_filled, details),
        "Caveats\n" + _bullets(facts["caveats"]),
    ]
    not_private: list[str] = []
    if facts["randomness"] == ENTROPY_ROOT:
        folder = _published_folder(facts)
    elif facts["diagnostics"]:
        not_private = facts["diagnostics"]
        folder = (
            "This folder is not private. For the analyst it holds exact values that the "
            "mechanism does not release (runtime.diagnostics=false leaves them out):"
        )
    else:
        folder = (
            "Exact statistics of private data and the seeds were left out of this folder "
            "(runtime.diagnostics=false), but whoever guesses the seeds has lots, cohorts and noise. "
            "For a run whose results are given away take publish=true: its secrets come from the "
            "operating system, and its folder public/ holds what may be published."
        )
    return "\n\n".join((*blocks, _filled(folder))) + f"\n{_bullets(not_private)}\n"


def _short_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts that every reader needs, as pairs of a name and a value."""
    view, clients = facts["views"]["sound"], facts["clients"]
    trust, of_a_client = TRUSTS[view["trust"]], " of one client" if view["unit"] == "record" else ""
    label = _protection(facts).partition(",")[0].rstrip(":")
    level = LEVELS[view["unit"]].partition(",")[0]
    if trust.secret_cohort:
        releases = f"{clients['draws_most']} in all, each charged to all {clients['total']} clients"
    else:
        all_clients = clients["took_part"] == clients["total"]
        took_part = (
            clients["total"] if all_clients else f"{clients['took_part']} of {clients['total']}"
        )
        releases = f"{_draws(facts)} from each of {took_part} clients"
    exceeded = " (exceeded)" if facts.get("budget_exceeded") else ""
    budget = "none"
    if facts["budget"] is not None:
        budget = f"epsilon {facts['budget']:g}{exceeded}, by the {facts['budget_view']} analysis"
    return [
        (label, f"one {view['unit']}{of_a_client} ({level})"),
        ("Neighbours", _neighbours(view)),
        ("Against", trust.against.removeprefix("against ").removesuffix(".")),
        *(
            (f"Epsilon, {name}", f"{value} ({meaning})")
            for name, value, meaning in epsilon_rows(facts)
        ),
        (
            "Delta",
            f"{facts['delta']:g} (how far a probability may exceed the bound that epsilon gives)",
        ),
        ("Budget", budget),
        ("Accountant", f"{facts['accountant']} (of the {composition_word(facts)} epsilon)"),
        ("Releases", releases),
        ("Run folder", _folder_in_short(facts)),
    ]


def _folder_in_short(facts: Mapping[str, Any]) -> str:
    """Return in a few words which part of the run folder may be given away."""
    if facts["randomness"] == ENTROPY_ROOT:
        why_not = publishable(facts)
        return f"give away nothing: {why_not}" if why_not else "give away the folder public/ only"
    if facts["diagnostics"]:
        return "not private: it holds exact values of private data, listed at the end"
    return "without exact values of private data, but not for publication: the seeds can be guessed"


def epsilon_rows(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, value and one line of explanation of each ε, the sound one first.

    The statement and the screen show these rows.
    """
    rows = []
    for name, key in (
        ("sound", "epsilon_sound"),
        (composition_word(facts), "epsilon"),
        ("published", "epsilon_published"),
    ):
        epsilon = facts[key]
        if epsilon is None:
            rows.append((name, "none", "no published analysis is claimed for this algorithm"))
        elif name == "sound" and math.isinf(epsilon):
            rows.append((name, round_up(epsilon), "no guarantee holds"))
        else:
            meaning = _MEANINGS[name]
            if name == "sound" and "declared_by" in facts:
                meaning = f"{_declared(facts)}not proven"
            elif name == "sound" and CAVEATS["run_again"] in facts["caveats"]:
                meaning = "as if the noise of rounds that were run again were independent: see the caveats"
            rows.append((name, round_up(epsilon), meaning))
    return rows


def _declared(facts: Mapping[str, Any]) -> str:
    """Begin a sentence on a sound ε with the classes outside fedpriv that declare its events, if any do."""
    names = facts.get("declared_by", ())
    return f"as declared by {' and '.join(names)}, " if names else ""


def first_clause(text: str) -> str:
    """Return a text up to its first full stop or colon that a space follows.

    >>> first_clause("Lots have a fixed size: the sound analysis charges more. Read on.")
    'Lots have a fixed size'
    """
    return re.split(r"[.:]\s", text, maxsplit=1)[0].rstrip(".")


def publishable(facts: Mapping[str, Any]) -> str | None:
    """Return the reason why a run with ``publish=true`` may not be published; None if it may be."""
    if not facts["finished"] or facts["stop_reason"] == "interrupted":
        return "the run has not ended"
    if facts.get("budget_exceeded"):
        return exceeded_words(facts)
    if facts["epsilon_sound"] > NOMINAL:
        return f"its sound epsilon is {round_up(facts['epsilon_sound'])}, above {NOMINAL:g}"
    # The numbers of records are not among the facts. The caveats tell what the run saw of them.
    if {CAVEATS["delta"], CAVEATS["delta_of_clients"]} & set(facts["caveats"]):
        return f"its delta, {facts['delta']:g}, is not smaller than one over the number it protects"
    return None


def _published_folder(facts: Mapping[str, Any]) -> str:
    why_not = publishable(facts)
    if why_not is not None:
        return f"Nothing of this run may be published: {why_not}."
    return (
        "The folder public/ may be published: it holds the model, this statement and the configuration "
        "without seeds. If the test records were declared public (publish_test_metrics=true), it also holds "
        "the metrics. All of it follows from what the mechanism released and from what is public. Give away "
        "nothing else of the run folder. Its file secret_key, which only a resumed run needs, reveals lots, "
        "cohorts and noise."
    )


def composition_word(facts: Mapping[str, object]) -> str:
    """Return the name of the configured accountant's ε: ``composed`` without a budget, else ``enforced``."""
    return "composed" if facts["budget"] is None else "enforced"


def _protection(facts: Mapping[str, Any]) -> str:
    if math.isfinite(facts["epsilon_sound"]):
        return "Protected:"
    if facts["epsilon_published"] is None or math.isinf(facts["epsilon_published"]):
        return "Not protected:"
    return "Not protected, though the published claim is about it:"


def _claimed(facts: Mapping[str, Any]) -> str:
    """State the published claim, for a run that protects nothing or little."""
    published = facts["epsilon_published"]
    if published is None or math.isinf(published):
        return "No published analysis claims a finite epsilon of it."
    return (
        f"The published analysis claims epsilon = {round_up(published)} at delta = {facts['delta']:g} "
        f"about one {facts['views']['published']['unit']}."
    )


def exceeded_words(facts: Mapping[str, Any]) -> str:
    """State that the budget is exceeded, with the ε of the ledger."""
    return (
        f"budget exceeded: the ledger has epsilon = {round_up(facts['epsilon'])} of {facts['budget']:g} "
        f"({facts['budget_view']} view)"
    )


def headline(facts: Mapping[str, Any]) -> str:
    """Return the guarantee that may be claimed, in one sentence.

    It is preceded by another one if its records were not tested or the budget is exceeded, and followed by
    the published claim where the run protects little or nothing.
    """
    sentence = _headline(facts)
    if facts.get("budget_exceeded"):
        sentence = f"{_sentence(exceeded_words(facts))} {sentence}"
    if (name := facts.get("untested")) is not None:
        sentence = (
            f"Not tested: {name}.load makes the records, and a record that depends on other records is not "
            f"protected. {sentence}"
        )
    return sentence


def _headline(facts: Mapping[str, Any]) -> str:
    """Return the first sentence of the statement, which says what holds or that nothing does.

    An infinite ε comes first, then a vacuous one, so that no run with either gets a sentence of protection.
    """
    if not facts["private"]:
        return facts["words"]
    sound, delta = facts["epsilon_sound"], facts["delta"]
    if math.isinf(sound):
        return (
            f"This run is NOT differentially private: its sound epsilon is infinite "
            f"({facts['reasons']['epsilon_sound']}). {_claimed(facts)}"
        )
    view = facts["views"]["sound"]
    protected = "honest client" if facts["attackers"] else "client"
    # Records that are held out for tests or validation are not protected.
    if view["unit"] == "client":
        protected += ", with all its training records,"
    else:
        protected = f"training {view['unit']} of every {protected}"
    trust = TRUSTS[view["trust"]]
    # The server sees each upload, so each upload by itself is private.
    local = "local " if view["unit"] == "client" and trust.sees_each_upload else ""
    observer = trust.observer
    trusting = (
        "" if facts["parts"] is None else ", if the aggregator that sets the clip norm is trusted"
    )
    # A finite ε above this bounds no attack noticeably, so it must not read like protection.
    if sound > NOMINAL:
        return (
            f"Vacuous guarantee: {_if_secret(facts)}{_declared(facts)}{local}differential privacy of "
            f"every {protected} against {observer} holds with epsilon = "
            f"{round_up(sound)} at delta = {delta:g}{trusting}. "
            f"{_claimed(facts)}"
        )
    # A file with a row less has another n_k, which no noise hides.
    sizes_public = UNIT_CAVEATS["record"][0] in facts["caveats"]
    sizes = "; it does not hide the clients' sizes n_k" if sizes_public else ""
    sentence = (
        f"very {protected} is protected by ({round_up(sound)}, {delta:g})-{local}differential privacy "
        f"against {observer}{trusting}{sizes}."
    )
    condition = _if_secret(facts)
    sentence = f"{_declared(facts)}e{sentence}"
    return f"Simulation: {condition}{sentence}" if condition else _sentence(sentence)


def _if_secret(facts: Mapping[str, Any]) -> str:
    """Return the condition under which a simulation's guarantee holds; empty with secrets of the system."""
    if facts["randomness"] == ENTROPY_ROOT:
        return ""
    paired = f" and no other run with paired={facts['paired']} is seen" if "paired" in facts else ""
    return f"if seed and noise_seed are secret{paired}, "


def _number(key: str, label: str, facts: Mapping[str, Any]) -> str:
    value = facts[key]
    shown = round_up(value)
    note = ""
    if key == "epsilon":
        limit = "no budget" if facts["budget"] is None else f"budget {facts['budget']:g}"
        limit += " exceeded" if facts.get("budget_exceeded") else ""
        note = f" ({limit}, {facts['budget_view']} view)"
    declared = _declared(facts) if key == "epsilon_sound" else ""
    return f"{label}: {declared}epsilon = {shown}{note}. {_sentence(facts['reasons'][key])}"


def _published(facts: Mapping[str, Any]) -> str:
    if facts["epsilon_published"] is None:
        return f"Published: none. {_sentence(facts['reasons']['epsilon_published'])}"
    view, sentence = facts["views"]["published"], _number("epsilon_published", "Published", facts)
    if math.isinf(facts["epsilon_published"]):
        return sentence
    return f"{sentence} The claim is about one {view['unit']}, {_neighbours(view)}."


def _imagined(facts: Mapping[str, Any]) -> Iterable[str]:
    """Yield the ε of a population that is not the one simulated, where the noise is meant for one."""
    if (imagined := facts.get("imagined_population")) is not None:
        yield (
            f"Imagined: epsilon = {round_up(imagined['epsilon'])} at delta = {imagined['delta']:g} after "
            f"{counted(imagined['rounds'], 'round')}, for a client of a population of "
            f"{imagined['population']:,} of which {imagined['cohort']:,} take part in a round. No client of "
            "this run has it."
        )


def _best_attack(facts: Mapping[str, Any]) -> str:
    """State the best attack's true positive rate at two false positive rates, from the trade-off curve."""
    attack = f"attack that {_attack_goal(facts['views']['sound'])}"
    low, high = (facts["largest_tpr"][name] for name in RATES)
    if low == 1.0:
        sentence = (
            f"No {attack} is ruled out: its true positive rate may be 100 % at a false positive rate "
            "of 0.1 %."
        )
    else:
        sentence = (
            f"Even the best {attack} has a true positive rate of at most {percent_up(low)} at a false "
            f"positive rate of 0.1 %, and of at most {percent_up(high)} at 1 %."
        )
    return sentence.replace(" %", f"{_UNBROKEN}%")


def _attack_goal(view: dict[str, Any]) -> str:
    """Describe the decision of an attack against which the sound ε protects."""
    if view["neighbours"] == ADD_OR_REMOVE:
        did = "was used" if view["unit"] == "record" else "was among those that train"
        return f"decides whether a given {view['unit']} {did}"
    if view["neighbours"] == ZERO_OUT:
        return f"decides whether what a given {view['unit']} contributed was counted"
    if view["unit"] == "client":
        return "tells two data sets of a client apart"
    return "tells two values of a record apart"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _neighbours(view: dict[str, Any]) -> str:
    """Say which two data sets an observer can hardly tell apart."""
    adjacency = RELATION_WORDS[view["neighbours"]]
    if view["neighbours"] == ADD_OR_REMOVE:
        return f"{adjacency}: data sets that differ by one {view['unit']} more or less"
    if view["neighbours"] == ZERO_OUT:
        return (
            f"{adjacency}: all that one {view['unit']} contributes is zero in the other data set, and who "
            "takes part when is the same"
        )
    if view["unit"] == "client":
        return f"{adjacency}: any two data sets a client may have"
    return f"{adjacency}: data sets that differ in one record replaced"


def _covered_clients(facts: Mapping[str, Any]) -> str:
    """State the clients for which a finite ε holds."""
    if math.isinf(facts["epsilon_sound"]):
        return ""
    if not TRUSTS[facts["views"]["sound"]["trust"]].secret_cohort:
        return " The number is that of the worst client; each client has its own."
    return " The number holds for every client, however often it took part."


def _trust_in_aggregator(facts: Mapping[str, Any]) -> list[str]:
    """Return a paragraph on ε without and with trust in the aggregator; an empty list without one."""
    if facts["parts"] is None:
        return []
    client, aggregator = (round_up(facts["parts"][by]) for by in (CLIENT, AGGREGATOR))
    return [
        f"Whom one must trust: the reports alone, noised by the clients, cost epsilon = {client} and "
        "need nobody's honesty. What the trusted aggregator releases of the clip norm costs epsilon = "
        f"{aggregator} outside the aggregator; inside it the answers are exact, so there is no finite "
        "epsilon against the aggregator. The sound number is of all that the server sees."
    ]


def _spread(facts: Mapping[str, Any]) -> str:
    """Say how many clients took part, how often, and between which values their ε lie."""
    clients = facts["clients"]
    if TRUSTS[facts["views"]["sound"]["trust"]].secret_cohort:
        return (
            f"all {clients['total']} have the same epsilon; each is charged for "
            f"{counted(clients['draws_most'], 'release')}."
        )
    key = "epsilon_sound" if facts["budget_view"] == SOUND else "epsilon"
    spread = facts["spread"][key]
    low, median, high = (round_up(spread[name]) for name in ("lowest", "median", "highest"))
    values = f"{high} for each" if low == high else f"from {low} to {high}, median {median}"
    return (
        f"{clients['took_part']} of {clients['total']} took part, with {_draws(facts)} each; "
        f"{key} {values}."
    )


def _draws(facts: Mapping[str, Any]) -> str:
    """Return how often a client released something, as a range over the clients."""
    noun = "lot" if facts["views"]["sound"]["unit"] == "record" else "report"
    return counted_span(facts["clients"]["draws_fewest"], facts["clients"]["draws_most"], noun)


def _filled(paragraph: str) -> str:
    # A pair (ε, δ) stays on one line.
    paragraph = re.sub(r"(\([\d.]+,) (\S+\)-)", rf"\1{_UNBROKEN}\2", paragraph)
    return textwrap.fill(paragraph, _WIDTH).replace(_UNBROKEN, " ")


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(
        textwrap.fill(item, _WIDTH, initial_indent="- ", subsequent_indent="  ") for item in items
    )


def _aligned(rows: list[tuple[str, str]]) -> str:
    """Return a line for each row, with all values in one column."""
    indent = max(len(name) for name, _ in rows) + 2
    return "\n".join(
        textwrap.fill(
            value, _WIDTH, initial_indent=name.ljust(indent), subsequent_indent=" " * indent
        )
        for name, value in rows
    )
