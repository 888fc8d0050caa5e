"""Computed figure of three ε: the ε that a work claims, the sound ε of its mechanism, and an audited ε.

The audited ε is a lower bound from an attack. An audited ε above the claim refutes the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from fedpriv.common import checks
from fedpriv.common import config as configuration
from fedpriv.common.errors import ArgumentError
from fedpriv.common.words import counted
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.names import PUBLISHED, RELATION_WORDS, SOUND
from fedpriv.store.canary_file import RELEASES, SIZES
from fedpriv.store.colours import COLOURS
from fedpriv.store.display import console
from fedpriv.store.plots import Line, Panel
from fedpriv.study.figures.computed import Drawing
from fedpriv.tools.audit import epsilon_independent as independent
from fedpriv.tools.audit.epsilon_evaluate import AuditSetup, one_run_bound, thresholds
from fedpriv.tools.audit.epsilon_trial import (
    CanaryTrial,
    pooled,
    train_apart,
    train_on_neighbours,
    train_with_canaries,
)

CANARIES, APART, NEIGHBOURS = "canaries", "apart", "neighbours"
HOW = {
    CANARIES: "in {runs} like it, {each} each",
    APART: "{runs}, one canary each",
    NEIGHBOURS: "{runs} on two data sets that differ in a crafted record",
}
_REQUIRED = {"label", "overrides", "how", "runs"}
_KEYS = _REQUIRED | {"canaries", "observer"}


@dataclass(frozen=True)
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
    overrides: tuple[str, ...]
    how: str
    runs: int
    canaries: int
    observer: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AuditPlan:
        """Return the plan that the values of a row describe.

        Raises:
            ArgumentError: A key is unknown or missing, or a value is not allowed.
        """
        if not isinstance(values, Mapping) or not set(values) >= _REQUIRED:
            raise ArgumentError("rows", values, "label, overrides, how and runs in each")
        if unknown := set(values) - _KEYS:
            raise ArgumentError(
                "rows", sorted(unknown)[0], f"keys among {', '.join(sorted(_KEYS))}"
            )
        return cls(
            checks.text("rows.label", values["label"]),
            tuple(map(str, values["overrides"])),
            checks.one_of("rows.how", values["how"], tuple(HOW)),
            checks.whole("rows.runs", values["runs"], at_least=1),
            checks.whole("rows.canaries", values.get("canaries", 1), at_least=1),
            checks.one_of("rows.observer", values.get("observer", RELEASES), (RELEASES, SIZES)),
        )

    def fewer(self, share: float) -> AuditPlan:
        """Return the plan with a share of its runs, or of its canaries, but at least two."""
        if self.how == CANARIES:
            return replace(self, canaries=max(2, round(share * self.canaries)))
        return replace(self, runs=max(2, round(share * self.runs)))

    def words(self) -> str:
        """Describe the audit: the number of trainings and canaries."""
        runs = counted(self.runs, "training" if self.how == CANARIES else "run")
        return HOW[self.how].format(runs=runs, each=counted(self.canaries, "canary"))


@dataclass(frozen=True)
class ThreeEpsilons:
    """The three ε of one row.

    Attributes:
        row: The audited algorithm.
        claimed: ε of the work's theorem, or None for a work without a claim.
        sound: ε of the mechanism by PLD accounting.
        audited: Lower bound of ε by the audit.
        unit: Unit of privacy, ``record`` or ``client``.
        neighbours: Adjacency of all three ε.
        delta: δ of all three ε.
    """

    row: AuditPlan
    claimed: float | None
    sound: float
    audited: float
    unit: str
    neighbours: str
    delta: float

    def finding(self, confidence: float) -> str:
        """Return the sentence of comparison.md about the row."""
        claimed = "nothing" if self.claimed is None else f"{self.claimed:.3f}"
        sound = f"{self.sound:.3f}" if self.sound < 1e4 else f"{self.sound:.2g}"
        sound = "infinite" if math.isinf(self.sound) else sound
        numbers = (
            f"**{self.row.label}**: claimed {claimed}, sound {sound}, audited at least {self.audited:.2f} "
            f"(one {self.unit}, {RELATION_WORDS[self.neighbours]}, δ = {self.delta:g}; "
            f"{self.row.words()}; observer: {self.row.observer})."
        )
        if self.audited > self.sound:
            return f"{numbers} **More than the ledger charges.**"
        if self.claimed is not None and self.audited > self.claimed:
            return f"{numbers} The claim is refuted with confidence {confidence:g}."
        return f"{numbers} Not refuted, which does not make it true."


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
    confidence = checks.number("confidence", confidence, above=0.5, below=1)
    seed = checks.seed("seed", seed)
    share = checks.number("share", share, above=0, at_most=1)
    plans = [AuditPlan.of(values).fewer(share) for values in rows]
    if not plans:
        raise ArgumentError("rows", rows, "at least one row")
    significance = (1.0 - confidence) / len(plans)
    results = []
    for row in plans:
        results.append(_three(row, base, significance, seed))
        console().print(results[-1].finding(confidence).replace("**", ""))
    caption = (
        f"Lower bounds hold together with confidence {confidence:g}; the score of each row was fixed "
        "beforehand. A bound below a claim is no proof of it."
    )
    findings = [result.finding(confidence) for result in results]
    return Drawing(((_panel(results),),), caption, findings)


def _three(row: AuditPlan, base: Sequence[str], significance: float, seed: int) -> ThreeEpsilons:
    """Compute the three ε of a row: two from its plan, the third from its trainings."""
    config = configuration.compose([*base, *row.overrides])
    parts = build_parts(config)
    rounds = checks.whole("rounds", parts.settings.rounds, at_least=1)
    sampling = parts.costs().sampling
    return ThreeEpsilons(
        row,
        _planned(parts, PUBLISHED, rounds) if parts.claim is not None else None,
        _planned(parts, SOUND, rounds),
        _audited(row, config, rounds, parts.settings.delta, significance, seed),
        "record"
        if row.how == NEIGHBOURS
        else parts.algorithm.unit,  # two data sets differ in a record
        sampling.neighbours,
        parts.settings.delta,
    )


def _planned(parts: Parts, view: str, rounds: int) -> float:
    """Return the planned ε in a view: by the claimed theorem, or by PLD accounting."""
    costs = replace(parts.costs(), view=view)
    if view == SOUND:
        costs = replace(costs, accountant=PldAccountant())
    elif costs.claim is None or not costs.claim.covers(
        costs.joint(parts.noise_schedule.noise_multiplier(0))
    ):
        return math.inf
    return costs.epsilon(parts.noise_schedule.noise_multiplier(0), rounds)


def _audited(
    row: AuditPlan, config: DictConfig, rounds: int, delta: float, significance: float, seed: int
) -> float:
    """Train, and return the lower bound of ε at the given significance."""
    trial: CanaryTrial
    if row.how == APART:
        trial = train_apart(config, row.runs, rounds, seed)
    elif row.how == NEIGHBOURS:
        trial = train_on_neighbours(config, row.runs, rounds, seed)
    else:
        seeds = range(seed, seed + row.runs)
        trial = pooled(train_with_canaries(config, row.canaries, rounds, s) for s in seeds)
    scores = trial.scores[row.observer]
    if not trial.independent:
        return one_run_bound(scores, delta, significance)
    # The thresholds of the observer of releases are fixed before any score is seen.
    setup = AuditSetup(delta, 1.0 - significance, True, trial.released, seed)
    cuts = thresholds(len(scores), setup) if row.observer == RELEASES else None
    return independent.bound(scores, delta, significance, cuts, seed)


def _panel(results: Sequence[ThreeEpsilons]) -> Panel:
    """Return the panel, on a logarithmic axis of ε, with the first row on top."""
    heights = list(range(len(results)))[::-1]

    def marks(label: str, colour: str, marker: str, values: Sequence[float | None]) -> Line:
        drawable = [
            (value, height)
            for value, height in zip(values, heights, strict=True)
            if value is not None and 0 < value < math.inf
        ]
        x, y = zip(*drawable, strict=True) if drawable else ((), ())
        return Line(label, COLOURS[colour], x, y, marker=marker, joined=False)

    grey = COLOURS["grey"]
    spans = [
        Line("_span", grey, (r.audited, r.sound), (height, height), thin=True, dotted=True)
        for r, height in zip(results, heights, strict=True)
        if r.audited > 0 and r.sound < math.inf
    ]
    numbers = [x for r in results for x in (r.claimed or 0.0, r.sound, r.audited)]
    largest = max((x for x in numbers if math.isfinite(x)), default=1.0)
    end_of_axis = 10.0 ** math.ceil(math.log10(max(10.0, 1.2 * largest)))
    return Panel(
        title="Three ε",
        x_label="ε",
        y_label="",
        lines=(
            marks("claimed", "orange", "o", [r.claimed for r in results]),
            marks("sound (ledger)", "blue", "s", [r.sound for r in results]),
            marks("audited, at least", "red", ">", [r.audited for r in results]),
            *spans,
        ),
        x_limits=(0.1, end_of_axis),
        x_log=True,
        y_ticks=tuple(
            f"{r.row.label} (sound ∞)" if math.isinf(r.sound) else r.row.label
            for r in reversed(results)
        ),
    )
