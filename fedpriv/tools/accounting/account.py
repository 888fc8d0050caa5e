"""``fedpriv account``: ε of releases by every accountant that can account for them.

:func:`run` is the command: it reads the releases, asks each accountant (:func:`answer_of`), and prints a
table, JSON or a plot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text
from fedpriv.common.words import digits_up, percent_up, round_up
from fedpriv.privacy.accountants import (
    Accountant,
    CannotAccount,
    PldAccountant,
    RdpAccountant,
)
from fedpriv.privacy.core.events import describe_event
from fedpriv.privacy.core.names import ACCOUNTANTS, RELATION_WORDS
from fedpriv.privacy.core.rdp import without_noise
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.store.display import console
from fedpriv.store.statement import NOMINAL
from fedpriv.store.table import Column, Table, pairs
from fedpriv.tools.accounting import arguments
from fedpriv.tools.accounting.releases import (
    Releases,
    composed,
    from_flags,
    from_run,
    from_schedule,
)

_LONG = 1e9  # a larger ε is written with an exponent
_MANY_EVENTS = 24  # with more of them an ε takes a second or more
_POINTS, _FEWER = 40, 10  # points of a curve; fewer with many events, each shown by a marker
_PRV_TAKES_LONG = (
    "prv takes long with many noise multipliers (--accountant prv asks it nevertheless)"
)


@dataclass
class Answer:
    """The answer of one accountant about the releases.

    Attributes:
        name: Name of the accountant, or ``published`` for the theorem of a run's work.
        accountant: The accountant.
        reason: Why it cannot account for the releases; None if it can.
        epsilons: ε at each δ.
        orders: Best Rényi order at each δ; only of RDP accountants.
        notes: What a reader should know about ε of PLD at each δ, or an empty text; only of PLD accountants.
    """

    name: str
    accountant: Accountant
    reason: str | None = None
    epsilons: list[float] = field(default_factory=list)
    orders: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(options: SimpleNamespace) -> int:
    """Price the releases, print the answers, and return the exit status.

    By default every accountant is asked, except prv where it would take long.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: The flags contradict one another, or no accountant can account for the releases.
        WriteError: The plot cannot be written.
    """
    releases = read_releases(options)
    deltas = _deltas(options, releases)
    answers = _answers(options, releases, deltas)
    declared = _declared(releases, deltas, answers) if options.statement else ()
    if options.json:
        plain = as_json(releases, deltas, answers)
        if declared:
            rows = [dict(zip(("draws", "event"), row, strict=True)) for row in declared[1].rows]
            plain |= {"statement": declared[0], "ledger": rows}
        print(json_text(plain, allow_nan=False), end="")
    else:
        for part in declared:
            console().print(part)
        _show(releases, deltas, answers)
    if options.plot is not None:
        drawn = with_epsilon(answers)
        if options.accountant is None:  # the curve of prv takes minutes and lies on that of pld
            drawn = [answer for answer in drawn if answer.name != "prv"] or drawn
        draw(options.plot, releases, deltas, drawn)
        if not options.json:
            console().print(f"plot: {options.plot}")
    return 0


def _declared(releases: Releases, deltas: list[float], answers: list[Answer]) -> tuple[str, Table]:
    """Return a privacy paragraph and a ledger of releases that the user declares and nobody has seen."""
    ledger = Table(
        "Ledger (z: noise std / what one unit moves)", (Column("draws", right=True), "event")
    )
    for event, draws in composed(releases.histories[0]).items():
        ledger.add(draws, describe_event(event))
    best = [tightest(answers, i) for i in range(len(deltas))]
    found = [answer.epsilons[i] for i, answer in enumerate(best)]
    guarantees = " and ".join(
        f"epsilon = {_shown(epsilon)} at delta = {delta:g} ("
        f"{answer.accountant.describe()}{_note_on_bound(answer, releases)})"
        for epsilon, delta, answer in zip(found, deltas, best, strict=True)
    )
    vacuous = f" An epsilon above {NOMINAL:g} bounds no attack." if max(found) > NOMINAL else ""
    paragraph = (
        f"Privacy, as declared ({'; '.join(f'{name}: {text}' for name, text in releases.lines)}). Gaussian "
        "noise was added to sums of clipped contributions. If it was, the releases of the ledger satisfy "
        f"(epsilon, delta)-differential privacy with {guarantees}, {RELATION_WORDS[releases.neighbours]}, "
        "for what was clipped as one: a record, or a client with all its records."
        f"{vacuous} As declared: code, clipping, sampling and secrets were not seen; σ, q and the number of "
        "steps are taken as fixed beforehand. What chose them, and every other release about the same data, "
        "is not counted."
    )
    return paragraph, ledger


def _answers(options: SimpleNamespace, releases: Releases, deltas: list[float]) -> list[Answer]:
    """Return the answers of all accountants to ask. Raise ConfigError if none of them has an ε."""
    answers = []
    for accountant in _accountants(options, releases):
        # Who asks for prv by name gets its answer, however long it takes.
        by_default = options.accountant is None and accountant.name == "prv"
        if (
            by_default
            and len(releases.events()) > _MANY_EVENTS
            and releases.refusal(accountant) is None
        ):
            answers.append(Answer(accountant.name, accountant, _PRV_TAKES_LONG))
        else:
            answers.append(answer_of(releases, accountant, deltas))
    if all(answer.reason for answer in answers):
        reasons = "; ".join(answer.reason or "" for answer in answers)
        if len(answers) > 1 and all(releases.refusal(a.accountant) for a in answers):
            others = ", ".join(answer.name for answer in answers[1:])
            reasons = f"{answers[0].reason}, nor can {others}"
        raise ConfigError(f"no accountant can account for this: {reasons}")
    return answers


def read_releases(options: SimpleNamespace) -> Releases:
    """Return the releases that ``--run``, ``--schedule`` or the flags describe.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: Flags contradict one another, or a file cannot be read.
    """
    if options.run_folder is not None:
        if options.statement:
            raise ConfigError(
                "--statement cannot be given with --run, whose folder has privacy.txt"
            )
        return from_run(options)
    arguments.refuse(options, ("view",), "without --run")
    return from_flags(options) if options.schedule is None else from_schedule(options)


def _deltas(options: SimpleNamespace, releases: Releases) -> list[float]:
    """Return the distinct values of ``--delta``, or else the δ of the run."""
    if options.delta is None and releases.run_delta is None:
        raise ConfigError("--delta must be given, such as --delta 1e-5 or --delta 1e-4,1e-5,1e-6")
    text = str(releases.run_delta) if options.delta is None else options.delta
    return list(dict.fromkeys(arguments.delta(part) for part in text.split(",")))


def _accountants(options: SimpleNamespace, releases: Releases) -> list[Accountant]:
    """Return the accountants to ask, in the order of the table."""
    default = ([] if releases.published is None else ["published"]) + list(ACCOUNTANTS)
    names = (",".join(default) if options.accountant is None else options.accountant).split(",")
    if "rdp" not in names:
        arguments.refuse(options, ("orders", "conversion"), "unless --accountant has rdp")
    accountants = []
    for name in dict.fromkeys(name.strip() for name in names):
        theorem = releases.published if name == "published" else None
        accountants.append(theorem or arguments.accountant(name, options))
    return accountants


def answer_of(releases: Releases, accountant: Accountant, deltas: list[float]) -> Answer:
    """Return ε of the releases at every δ by one accountant, or the reason why it cannot account for them.

    Args:
        releases: The releases to account for.
        accountant: The accountant to ask.
        deltas: δ of each ε.

    Returns:
        The answer. Its best orders are those of the worst client.
    """
    reason = releases.refusal(accountant)
    name = "published" if accountant is releases.published else accountant.name
    if reason is not None:
        return Answer(name, accountant, reason)
    answer = Answer(name, accountant)
    try:
        for delta in deltas:
            worst = releases.worst(accountant, delta)
            setting = (worst, delta, releases.neighbours)
            answer.epsilons.append(accountant.epsilon_of(*setting))
            if isinstance(accountant, RdpAccountant):
                answer.orders.append(accountant.best_order_of(*setting))
            if isinstance(accountant, PldAccountant):
                answer.notes.append(accountant.note(*setting))
    except CannotAccount as error:
        return Answer(name, accountant, str(error))
    return answer


def _show(releases: Releases, deltas: list[float], answers: list[Answer]) -> None:
    """Print the releases, the table of ε, and what follows from them for an attacker.

    Where the noise adapted, the guarantee of the run stands in the place of the tightest accountant.
    """
    out = console()
    out.print(pairs("Releases", releases.lines))
    epsilons = [Column(f"delta = {delta:g}", right=True, shown=_shown) for delta in deltas]
    table = Table("Epsilon", (Column("accountant", style="cyan"), *epsilons, "settings"))
    for answer in with_epsilon(answers):
        table.add(answer.name, *answer.epsilons, _settings(answer, releases))
    out.print(table)
    # ε after the fact is no guarantee where noise was chosen from what had been released.
    if releases.noise_adapts:
        out.print(NO_GUARANTEE, style="yellow")
        for sentence in _guarantee(releases):
            out.print(sentence)
    else:
        for i, delta in enumerate(deltas):
            best = tightest(answers, i)
            epsilon = _shown(best.epsilons[i])
            words = f"{best.name}, epsilon = {epsilon} at delta = {delta:g}"
            if best.notes and best.notes[i].startswith("not computed"):
                words = (
                    f"rdp, epsilon is at most {epsilon} at delta = {delta:g}; PLD was not computed"
                )
            out.print(f"tightest: {words}")
    if (curve := best_attack(releases, answers)) is not None:
        low, high = (percent_up(rate) for rate in curve.largest().values())
        out.print(f"any attack: TPR at most {low} at an FPR of 0.1 %, at most {high} at 1 %")
    for answer in answers:
        if answer.reason is not None:
            out.print(f"not accounted for: {answer.reason}")


def _shown(epsilon: float) -> str:
    """Return ε as a text that is never below ε.

    Example:
        >>> _shown(0.0123401)
        '0.01235'
    """
    if _LONG <= epsilon < math.inf:
        return digits_up(epsilon)
    if epsilon == 0 or epsilon >= 0.1:
        return round_up(epsilon)
    decimals = 3 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10**decimals) / 10**decimals:.{decimals}f}"


NO_GUARANTEE = (
    "The noise of this run adapted to released values: these are the epsilons of noise fixed in advance, not "
    "guarantees."
)


def _guarantee(releases: Releases) -> Iterator[str]:
    """Yield the guarantee of a run whose noise adapted, if its statement has one."""
    if releases.guaranteed is not None:
        yield (
            f"Guaranteed, by the run's privacy.txt: epsilon = {_shown(releases.guaranteed)} at "
            f"delta = {releases.run_delta:g}."
        )


def _settings(answer: Answer, releases: Releases) -> str:
    """Return the settings of an accountant and what a reader should know about its ε."""
    settings = answer.accountant.describe()
    if answer.orders:
        settings += "; best order " + ", ".join(dict.fromkeys(f"{a:g}" for a in answer.orders))
        orders = cast("RdpAccountant", answer.accountant).orders
        if max(answer.orders) == orders[-1]:
            settings += " (the largest tried)"
        elif min(answer.orders) == orders[0]:
            settings += " (the smallest tried)"
    return settings + _note_on_bound(answer, releases)


def _note_on_bound(answer: Answer, releases: Releases) -> str:
    """Return the end of the settings where ε is infinite, or PLD's ε is RDP's; empty elsewhere."""
    if math.inf in answer.epsilons:
        if any(without_noise(event) for event in releases.events()):
            return "; a release has no noise"
        return "; it finds no finite bound, which says nothing about those of the others"
    return "".join(f"; {note}" for note in dict.fromkeys(filter(None, answer.notes)))


def with_epsilon(answers: list[Answer]) -> list[Answer]:
    """Return the answers of the accountants that could account for the releases."""
    return [answer for answer in answers if answer.reason is None]


def tightest(answers: list[Answer], which: int = 0) -> Answer:
    """Return the answer with the smallest ε at one δ.

    All accountants give valid upper bounds. The theorem of a work is a claim, and counts only where no
    accountant has an answer.

    Args:
        answers: Answers of several accountants, at least one without a reason.
        which: Index of δ.
    """
    able = with_epsilon(answers)
    bounds = [answer for answer in able if answer.name != "published"]
    return min(bounds or able, key=lambda answer: answer.epsilons[which])


def best_attack(releases: Releases, answers: list[Answer]) -> TradeOff | None:
    """Return the trade-off curve that bounds every attack on the releases.

    The curve is the lowest of the curves of all accountants that have an answer. Where the noise adapted, it
    is the curve of the run's own statement. A work's claim bounds nothing.

    Args:
        releases: The releases.
        answers: Answers of all accountants.

    Returns:
        The curve, or None if none is known.
    """
    if releases.noise_adapts or releases.claimed:
        return releases.stated
    able = with_epsilon(answers)
    able = [answer for answer in able if answer.name != "prv"] or able  # prv knows one δ only
    if not able:
        return None
    # Each curve is valid at every ε, so the least δ at each ε is valid as well.
    deltas = [releases.deltas(answer.accountant, EPSILONS) for answer in able]
    return trade_off(np.min(deltas, axis=0))


def as_json(releases: Releases, deltas: list[float], answers: list[Answer]) -> dict[str, Any]:
    """Return everything that the table says as plain values; an infinite ε is the text ``inf``.

    Args:
        releases: The releases.
        deltas: δ of the answers.
        answers: Answers of all accountants.
    """

    def keyed(values: list[float]) -> dict[str, Any]:
        return {f"{d:g}": arguments.plain(value) for d, value in zip(deltas, values, strict=True)}

    accountants: dict[str, Any] = {}
    for answer in answers:
        if answer.reason is not None:
            accountants[answer.name] = {"reason": answer.reason}
            continue
        entry: dict[str, Any] = {
            "epsilon": keyed(answer.epsilons),
            "settings": answer.accountant.describe() + _note_on_bound(answer, releases),
        }
        if answer.orders:
            entry["order"] = keyed(answer.orders)
        accountants[answer.name] = entry
    curve = best_attack(releases, answers)
    return {
        "releases": dict(releases.lines),
        "neighbours": releases.neighbours,
        "steps": releases.steps,
        "delta": deltas,
        "accountants": accountants,
        "largest_tpr": None if curve is None else curve.largest(),
        "noise_adapts": releases.noise_adapts,
        "guaranteed": arguments.plain(releases.guaranteed),
        "guaranteed_delta": None if releases.guaranteed is None else releases.run_delta,
        # Of noise that adapted, no number in the table is a guarantee, and so none is the tightest.
        "tightest": None
        if releases.noise_adapts
        else {f"{d:g}": tightest(answers, i).name for i, d in enumerate(deltas)},
    }


def draw(path: Path, releases: Releases, deltas: list[float], answers: list[Answer]) -> None:
    """Draw ε against steps at one δ; with several δ draw ε against δ as well.

    An infinite ε has no point. A curve that is infinite throughout is named so in the legend.

    Args:
        path: The file of the plot.
        releases: The releases.
        deltas: δ of the answers. The first plot uses the run's own δ, if it is among these, or the first.
        answers: Answers of the accountants to draw, all with ε. Six of them are drawn at most.

    Raises:
        WriteError: The file cannot be written.
    """
    from fedpriv.store.plots import CYCLE, Line, Panel, draw_panels

    delta = releases.run_delta if releases.run_delta in deltas else deltas[0]
    styles: list[str | tuple[int, tuple[float, ...]]]
    styles = ["-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1))]
    by_steps, by_delta = [], []
    many_events = len(releases.events()) > _MANY_EVENTS
    for answer, colour, style in zip(answers, CYCLE, styles, strict=False):
        steps = points(releases.steps, _FEWER if many_events else _POINTS)
        # The last point is known already. Before the first step nothing was released, so ε is 0.
        epsilons_before = releases.curve(answer.accountant, delta, steps[:-1])
        epsilons = np.array([0.0, *epsilons_before, answer.epsilons[deltas.index(delta)]])
        finite = np.isfinite(epsilons)
        by_steps.append(
            Line(
                answer.name if finite[1:].any() else f"{answer.name}: infinite",
                colour,
                (0, *steps),
                np.where(finite, epsilons, np.nan),
                marker="o" if many_events else None,
                style=style,
                width=1.5,
            )
        )
        x, y = zip(*sorted(zip(deltas, answer.epsilons, strict=True)), strict=True)
        by_delta.append(
            Line(answer.name, colour, x, y, marker="o", style=style, width=1.5, marker_size=6)
        )
    base = Panel("", "", "", (), y_limits=(0, None), x_from_zero=False)
    y_label = f"ε at δ = {delta:g}"
    panels = [
        replace(base, x_label="steps", y_label=y_label, lines=tuple(by_steps), x_limits=(0, None))
    ]
    if len(deltas) > 1:
        y_label = f"ε after {releases.steps} steps"
        panels.append(
            replace(base, x_label="δ", y_label=y_label, lines=tuple(by_delta), x_powers=True)
        )
    note = " ".join([NO_GUARANTEE, *_guarantee(releases)]) if releases.noise_adapts else ""
    draw_panels([path], [panels], stamp=note)


def points(steps: int, parts: int = _POINTS) -> list[int]:
    """Return the numbers of steps, from 1 to ``steps``, at which a curve is drawn.

    They are spread evenly, and there are at most ``parts`` + 1 of them.

    Example:
        >>> points(1000, parts=4)
        [1, 250, 500, 750, 1000]
    """
    return sorted({max(1, round(steps * i / parts)) for i in range(parts + 1)})
