"""Computed figure of three ε: the ε that a work claims, the sound ε of its mechanism, and an audited ε.

The audited ε is a lower bound from an attack. An audited ε above the claim refutes the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.common import checks
from fedpriv.common.config import compose
from fedpriv.common.words import counted
from fedpriv.experiment.build import build_parts
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.names import PUBLISHED, RELATION_WORDS, SOUND
from fedpriv.store.canary_file import RELEASES, SIZES
from fedpriv.store.colours import COLOURS
from fedpriv.store.display import console
from fedpriv.store.plots import Line, Panel
from fedpriv.study.figures.computed import Drawing
from fedpriv.tools.audit import epsilon_independent as independent
from fedpriv.tools.audit import epsilon_trial as trials
from fedpriv.tools.audit.epsilon_evaluate import AuditSetup, one_run_bound, thresholds

CANARIES, APART, NEIGHBOURS = "canaries", "apart", "neighbours"
HOW = {
    CANARIES: "in {runs} like it, {each} each",
    APART: "{runs}, one canary each",
    NEIGHBOURS: "{runs} on two data sets that differ in a crafted record",
}
_MARKS = {
    "claimed": ("claimed", "orange", "o"),
    "sound": ("sound (ledger)", "blue", "s"),
    "audited": ("audited, at least", "red", ">"),
}


@dataclass
class AuditPlan:
    """A row of the figure: one algorithm, and how it is audited.

    Attributes:
        label: Name of the row.
        overrides: Overrides of the trainings.
        how: Kind of audit, a key of ``HOW``.
        runs: Number of trainings.
        canaries: Number of canaries in each training.
        observer: Observer whose scores count, fixed before any score is seen.
    """

    label: str
    overrides: Sequence[str]
    how: str
    runs: int
    canaries: int = 1
    observer: str = RELEASES

    def __post_init__(self) -> None:
        checks.one_of("rows.how", self.how, HOW)
        checks.one_of("rows.observer", self.observer, (RELEASES, SIZES))

    def fewer(self, share: float) -> AuditPlan:
        """Return the plan with a share of its runs, or of its canaries, but at least two."""
        if self.how == CANARIES:
            return replace(self, canaries=max(2, round(share * self.canaries)))
        return replace(self, runs=max(2, round(share * self.runs)))


def three_epsilons(
    rows: Sequence[Mapping[str, Any]],
    base: Sequence[str],
    confidence: float,
    seed: int,
    share: float = 1.0,
) -> Drawing:
    """Draw claimed, sound and audited ε of every row, each at the δ of the claim.

    The audited bounds hold together with ``confidence`` (Bonferroni): each of n rows is tested at
    significance (1 − confidence) / n.

    Args:
        rows: Row by row the values of an :class:`AuditPlan`.
        base: Overrides of all rows.
        confidence: Confidence with which all lower bounds hold together.
        seed: Seed of trainings and audits.
        share: Share of each row's runs, or canaries, that is used.

    Returns:
        One panel with a line of marks for each kind of ε, and a finding for each row.

    Raises:
        ArgumentError: An argument is not allowed.
    """
    plans = [AuditPlan(**values).fewer(share) for values in rows]
    epsilons, findings = [], []
    for plan in plans:
        measured, terms = _measure(plan, base, (1.0 - confidence) / len(plans), seed)
        epsilons.append({"label": plan.label, **measured})
        findings.append(_finding(plan, terms, confidence, **measured))
        console().print(findings[-1].replace("**", ""))
    caption = (
        f"Lower bounds hold together with confidence {confidence:g}; the score of each row was fixed "
        "beforehand. A bound below a claim is no proof of it."
    )
    # The first row is on top.
    frame = pd.DataFrame(epsilons, index=range(len(plans))[::-1])
    return Drawing([[_panel(frame)]], caption, findings)


def _measure(
    plan: AuditPlan, base: Sequence[str], significance: float, seed: int
) -> tuple[dict[str, float], str]:
    """Measure the three ε of a row: two follow from its plan, the third from its trainings.

    Returns:
        Claimed ε by the work's theorem (NaN for a work without a claim), sound ε by PLD accounting, and
        audited ε, a lower bound at the given significance; and the terms of all three in words.
    """
    config = compose([*base, *plan.overrides])
    parts = build_parts(config)
    rounds = checks.whole("rounds", parts.settings.rounds, at_least=1)
    costs, sigma = parts.costs(), parts.noise_schedule.noise_multiplier(0)
    claimed = math.nan
    if parts.claim is not None:
        covered = parts.claim.covers(costs.joint(sigma))
        claimed = replace(costs, view=PUBLISHED).epsilon(sigma, rounds) if covered else math.inf
    sound = replace(costs, view=SOUND, accountant=PldAccountant()).epsilon(sigma, rounds)
    if plan.how == APART:
        trial = trials.train_apart(config, plan.runs, rounds, seed)
    elif plan.how == NEIGHBOURS:
        trial = trials.train_on_neighbours(config, plan.runs, rounds, seed)
    else:
        seeds = range(seed, seed + plan.runs)
        trial = trials.pooled(
            trials.train_with_canaries(config, plan.canaries, rounds, s) for s in seeds
        )
    scores, delta = trial.scores[plan.observer], parts.settings.delta
    if trial.independent:
        # The thresholds of the observer of releases are fixed before any score is seen.
        setup = AuditSetup(delta, 1.0 - significance, True, trial.released, seed)
        cuts = thresholds(len(scores), setup) if plan.observer == RELEASES else None
        audited = independent.bound(scores, delta, significance, cuts, seed)
    else:
        audited = one_run_bound(scores, delta, significance)
    unit = "record" if plan.how == NEIGHBOURS else parts.algorithm.unit
    terms = f"one {unit}, {RELATION_WORDS[costs.sampling.neighbours]}, δ = {delta:g}"
    return {"claimed": claimed, "sound": sound, "audited": audited}, terms


def _finding(
    plan: AuditPlan, terms: str, confidence: float, claimed: float, sound: float, audited: float
) -> str:
    """Return the sentence of comparison.md about a row."""
    claim = "nothing" if math.isnan(claimed) else f"{claimed:.3f}"
    ledger = f"{sound:.3f}" if sound < 1e4 else "infinite" if math.isinf(sound) else f"{sound:.2g}"
    runs = counted(plan.runs, "training" if plan.how == CANARIES else "run")
    how = HOW[plan.how].format(runs=runs, each=counted(plan.canaries, "canary"))
    result = "Not refuted, which does not make it true."
    if audited > sound:
        result = "**More than the ledger charges.**"
    elif audited > claimed:
        result = f"The claim is refuted with confidence {confidence:g}."
    return (
        f"**{plan.label}**: claimed {claim}, sound {ledger}, audited at least {audited:.2f} "
        f"({terms}; {how}; observer: {plan.observer}). {result}"
    )


def _panel(frame: pd.DataFrame) -> Panel:
    """Return the panel, on a logarithmic axis of ε; the index of the frame is the height of a row."""
    lines = []
    for kind, (label, colour, marker) in _MARKS.items():
        x = frame.loc[(frame[kind] > 0) & np.isfinite(frame[kind]), kind]
        at = x.index.tolist()
        lines.append(Line(label, COLOURS[colour], x.tolist(), at, marker=marker, joined=False))
    for row in frame[(frame["audited"] > 0) & np.isfinite(frame["sound"])].itertuples():
        ends, at = [row.audited, row.sound], [row.Index] * 2
        lines.append(Line("_span", COLOURS["grey"], ends, at, thin=True, dotted=True))
    largest = frame[[*_MARKS]].replace(math.inf, 0.0).max(axis=None)
    names = frame["label"] + np.where(np.isinf(frame["sound"]), " (sound ∞)", "")
    return Panel(
        title="Three ε",
        x_label="ε",
        y_label="",
        lines=tuple(lines),
        x_limits=(0.1, 10.0 ** math.ceil(math.log10(max(10.0, 1.2 * largest)))),
        x_log=True,
        y_ticks=tuple(names[::-1]),
    )
