"""``fedpriv account``: ε of releases by every accountant that can account for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text
from fedpriv.common.words import percent_up
from fedpriv.privacy.accountants import (
    Accountant,
    CannotAccount,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
)
from fedpriv.privacy.core.grid import FEW
from fedpriv.privacy.core.names import ACCOUNTANTS, SOUND
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.store.display import console
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table, pairs
from fedpriv.tools.accounting import arguments, shuffle
from fedpriv.tools.accounting.history import from_history
from fedpriv.tools.accounting.releases import (
    Releases,
    from_flags,
    from_run,
    from_schedule,
    read_delta,
    stored_run,
)

_shown = partial(arguments.rounded_up, digits=4)
_POINTS = 40  # of a curve
_FEWER = {"pld": 10, "prv": 4}  # where the noise took many values, and a point a second or more
_FEWER_SUMS = 20
_MARKED = 15  # points of a curve; those of fewer are marked
_PRV_TAKES_LONG = (
    "prv takes long where the noise took many values, and pld is as tight (or: --accountant prv)"
)


@dataclass
class Answer:
    """What one accountant says: ε for each δ, or why it cannot."""

    name: str
    accountant: Accountant
    reason: str | None = None
    epsilons: list[float] = field(default_factory=list)
    orders: list[float] = field(default_factory=list)


def run(options: SimpleNamespace) -> int:
    """Price and print; returns the exit status."""
    if options.shuffle is not None:
        return shuffle.run(options)
    arguments.refuse(options, ("report_epsilon",), "without --shuffle")
    releases = read_releases(options)
    given = read_delta(options)
    if given is None and releases.run_delta is not None:
        given = str(releases.run_delta)
    deltas = _deltas(given)
    chosen = _accountants(options, releases)
    answers = []
    for accountant in chosen:
        unasked = options.accountant is None and accountant.name == "prv"
        if unasked and len(releases.events()) > FEW and releases.refusal(accountant) is None:
            answers.append(Answer(accountant.name, accountant, _PRV_TAKES_LONG))
        else:
            answers.append(answer_of(releases, accountant, deltas))
    if all(p.reason for p in answers):
        raise ConfigError(
            "no accountant can account for this: " + "; ".join(p.reason or "" for p in answers)
        )
    if options.run_folder is not None and not releases.noise_adapts and not releases.claimed:
        _compare_with_statement(options, releases, deltas, answers)
    if options.json:
        print(json_text(as_json(releases, deltas, answers), allow_nan=False), end="")
    else:
        _show(releases, deltas, answers)
    if options.plot is not None:
        drawn = [p for p in answers if p.reason is None]
        if options.accountant is None:  # its curve would take minutes and lie on that of pld
            drawn = [p for p in drawn if p.name != "prv"] or drawn
        draw(options.plot, releases, deltas, drawn)
        if not options.json:
            console().print(f"plot: {options.plot}{_points_words(releases, drawn)}")
    return 0


def _compare_with_statement(
    options: SimpleNamespace, releases: Releases, deltas: list[float], answers: list[Answer]
) -> None:
    """Say where the ledger has another epsilon than the run's own statement."""
    if releases.run_delta not in deltas:
        return
    which = deltas.index(releases.run_delta)
    epsilon = tightest(answers, which).epsilons[which]
    stored_run(options).compare_ledger(epsilon, tightest=options.accountant is None)


def read_releases(options: SimpleNamespace) -> Releases:
    """From ``--run``, ``--history``, ``--schedule`` or the flags."""
    if options.run_folder is not None:
        arguments.refuse(options, ("history",), "with --run")
        return from_run(options)
    arguments.refuse(options, ("view",), "without --run")
    if options.history is not None:
        return from_history(options)
    return from_flags(options) if options.schedule is None else from_schedule(options)


def _deltas(text: str | None) -> list[float]:
    if text is None:
        raise ConfigError("--delta must be given, such as --delta 1e-5 or --delta 1e-4,1e-5,1e-6")
    return list(dict.fromkeys(arguments.delta(part) for part in text.split(",")))


def _accountants(options: SimpleNamespace, releases: Releases) -> list[Accountant]:
    default = ([] if releases.published is None else ["published"]) + list(ACCOUNTANTS)
    names = (",".join(default) if options.accountant is None else options.accountant).split(",")
    if "rdp" not in names:
        arguments.refuse(options, ("orders", "conversion"), "unless --accountant has rdp")
    found = []
    for name in dict.fromkeys(name.strip() for name in names):
        theorem = releases.published if name == "published" else None
        found.append(theorem or arguments.accountant(name, options))
    return found


def answer_of(releases: Releases, accountant: Accountant, deltas: list[float]) -> Answer:
    """ε of the releases at every δ by one accountant."""
    reason = releases.refusal(accountant)
    name = "published" if accountant is releases.published else accountant.name
    if reason is not None:
        return Answer(name, accountant, reason)
    try:
        epsilons = [releases.epsilon(accountant, delta) for delta in deltas]
    except CannotAccount as error:
        return Answer(name, accountant, str(error))
    answer = Answer(name, accountant, epsilons=epsilons)
    if isinstance(accountant, RdpAccountant):
        answer.orders = [_order(releases, accountant, delta) for delta in deltas]
    return answer


def _order(releases: Releases, accountant: RdpAccountant, delta: float) -> float:
    """The best order of the worst client."""
    compositions = list(releases.largest.values())
    worst = compositions[0]
    if len(compositions) > 1:
        worst = max(
            compositions, key=lambda c: accountant.epsilon_of(c, delta, releases.neighbours)
        )
    return accountant.best_order_of(worst, delta, releases.neighbours)


def _show(releases: Releases, deltas: list[float], answers: list[Answer]) -> None:
    out = console()
    out.print(pairs("Releases", releases.lines))
    epsilons = [Column(f"delta = {delta:g}", right=True, shown=_shown) for delta in deltas]
    table = Table("Epsilon", (Column("accountant", style="cyan"), *epsilons, "settings"))
    for p in (p for p in answers if p.reason is None):
        table.add(p.name, *p.epsilons, _words(p, releases, deltas))
    out.print(table)
    if releases.noise_adapts:
        out.print(NO_GUARANTEE, style="yellow")
        for words in _guarantee(releases):
            out.print(words)
    else:
        for i, delta in enumerate(deltas):
            best = tightest(answers, i)
            out.print(
                f"tightest: {best.name}, epsilon = {_shown(best.epsilons[i])} at delta = {delta:g}"
            )
    if (curve := best_attack(releases, answers)) is not None:
        low, high = (percent_up(rate) for rate in curve.largest().values())
        out.print(f"any attack: TPR at most {low} at an FPR of 0.1 %, at most {high} at 1 %")
    for p in answers:
        if p.reason is not None:
            out.print(f"not accounted for: {p.reason}")


NO_GUARANTEE = (
    "The noise of this run adapted to released values: these are the epsilons of noise fixed in advance, not "
    "guarantees."
)


def _guarantee(releases: Releases) -> Iterator[str]:
    """What does hold of a run whose noise adapted, if anything is known to."""
    if releases.guaranteed is not None:
        yield (
            f"Guaranteed, by the run's privacy.txt: epsilon = {_shown(releases.guaranteed)} at "
            f"delta = {releases.run_delta:g}."
        )


def _words(answer: Answer, releases: Releases, deltas: list[float]) -> str:
    """The settings of an accountant and what is to know about its epsilon."""
    words = answer.accountant.describe()
    if answer.orders:
        words += "; best order " + ", ".join(dict.fromkeys(f"{a:g}" for a in answer.orders))
        tried = cast("RdpAccountant", answer.accountant).orders
        if max(answer.orders) == tried[-1]:
            words += " (the largest tried)"
    if isinstance(answer.accountant, PldAccountant) and any(
        releases.is_bound(answer.accountant, delta, epsilon)
        for delta, epsilon in zip(deltas, answer.epsilons, strict=True)
    ):
        words += "; RDP's epsilon, which is lower or at once"
    return words


def tightest(answers: list[Answer], which: int = 0) -> Answer:
    """The smallest ε at one δ. All are valid upper bounds, but for a work's own theorem."""
    able = [p for p in answers if p.reason is None]
    bounds = [p for p in able if p.name != "published"]
    return min(bounds or able, key=lambda p: p.epsilons[which])


def tightest_epsilon(releases: Releases, delta: float) -> float:
    """Return the smallest ε of the worst client by the accountants that are quick; infinite if none can."""
    tried: tuple[Accountant, ...] = (GdpAccountant(), PldAccountant(), RdpAccountant())
    answers = [answer_of(releases, accountant, [delta]) for accountant in tried]
    able = [answer for answer in answers if answer.reason is None]
    return tightest(able).epsilons[0] if able else math.inf


def compare_ledger(run: StoredRun) -> None:
    """Compare a run's ledger with the sound ε of its statement, whose damage is entered in the run.

    Raises ConfigError for what is no ledger. Where the noise adapts, the ledger alone has no ε.
    """
    ledger, delta = run.ledger(SOUND), run.statement.get("delta")
    adapts = run.statement.get("noise_adapts") is not False
    if not adapts and isinstance(delta, float) and 0 < delta < 1:
        epsilon = tightest_epsilon(Releases((), ledger.neighbours, ledger.histories), delta)
        run.compare_ledger(epsilon, tightest=True)


def best_attack(releases: Releases, answers: list[Answer]) -> TradeOff | None:
    """How well any attack can do, by those of the accountants that know; of noise that adapted by what the
    run itself states. A work's claim bounds nothing."""
    if releases.noise_adapts or releases.claimed:
        return releases.stated
    able = [p for p in answers if p.reason is None]
    able = [p for p in able if p.name != "prv"] or able  # it knows ε at one δ alone
    if not able:
        return None
    return trade_off(np.min([releases.deltas(p.accountant, EPSILONS) for p in able], axis=0))


def as_json(releases: Releases, deltas: list[float], answers: list[Answer]) -> dict[str, Any]:
    """Everything the table says, as plain values; an infinite ε is the text ``inf``."""

    def keyed(values: list[float]) -> dict[str, Any]:
        return {f"{d:g}": arguments.plain(value) for d, value in zip(deltas, values, strict=True)}

    accountants: dict[str, Any] = {}
    for p in answers:
        if p.reason is not None:
            accountants[p.name] = {"reason": p.reason}
            continue
        entry: dict[str, Any] = {
            "epsilon": keyed(p.epsilons),
            "settings": p.accountant.describe(),
        }
        if p.orders:
            entry["order"] = keyed(p.orders)
        accountants[p.name] = entry
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
        "tightest": None
        if releases.noise_adapts
        else {f"{d:g}": tightest(answers, i).name for i, d in enumerate(deltas)},
    }


def draw(path: Path, releases: Releases, deltas: list[float], answers: list[Answer]) -> None:
    """Draw ε against steps at one δ, the run's own if it is asked for; with several δ also ε against δ."""
    from fedpriv.store.plots import CYCLE, Line, Panel, draw_beside

    delta = releases.run_delta if releases.run_delta in deltas else deltas[0]
    styles: list[str | tuple[int, tuple[float, ...]]]
    styles = ["-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1))]
    by_steps, by_delta = [], []
    moves = len(releases.events()) > FEW  # then a point takes long
    for p, colour, style in zip(answers, CYCLE, styles, strict=False):
        steps = points(releases.steps, _FEWER.get(p.name, _FEWER_SUMS) if moves else _POINTS)
        between = releases.curve(p.accountant, delta, steps[:-1])
        epsilons = np.array([0.0, *between, p.epsilons[deltas.index(delta)]])
        few = len(steps) < min(_POINTS, releases.steps)
        label = f"{p.name}, {len(steps)} points" if few else p.name
        finite = np.isfinite(epsilons)
        by_steps.append(
            Line(
                label if finite[1:].any() else f"{label}: infinite",
                colour,
                (0, *steps),
                np.where(finite, epsilons, np.nan),
                marker="o" if len(steps) < _MARKED else None,
                style=style,
                width=1.5,
            )
        )
        x, y = zip(*sorted(zip(deltas, p.epsilons, strict=True)), strict=True)
        by_delta.append(
            Line(p.name, colour, x, y, marker="o", style=style, width=1.5, marker_size=6)
        )
    base = Panel("", "", "", (), y_limits=(0, None), x_from_zero=False, legend="inside")
    up = f"ε at δ = {delta:g}"
    panels = [replace(base, x_label="steps", y_label=up, lines=tuple(by_steps), x_limits=(0, None))]
    if len(deltas) > 1:
        up = f"ε after {releases.steps} steps"
        panels.append(replace(base, x_label="δ", y_label=up, lines=tuple(by_delta), x_powers=True))
    note = " ".join([NO_GUARANTEE, *_guarantee(releases)]) if releases.noise_adapts else ""
    draw_beside(path, panels, note, "fedpriv account")


def _points_words(releases: Releases, answers: list[Answer]) -> str:
    """Which curves are drawn at fewer points, in words."""
    slow = [f"{p.name} at {_FEWER[p.name]}" for p in answers if p.name in _FEWER]
    if not slow or len(releases.events()) <= FEW:
        return ""
    return f" ({' and '.join(slow)} evenly spread points, as it takes long where the noise moves)"


def points(steps: int, parts: int = _POINTS) -> list[int]:
    """Numbers of steps from 1 to ``steps`` at which a curve is drawn."""
    return sorted({max(1, round(steps * i / parts)) for i in range(parts + 1)})
