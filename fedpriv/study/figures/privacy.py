"""The computed figure of three ε: what a work claims, what its mechanism spends, what an audit shows."""

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
_KEYS = {"label", "overrides", "how", "runs", "canaries", "observer"}


@dataclass(frozen=True)
class AuditPlan:
    """One algorithm in one reading. ``how``: one of ``HOW``; ``runs``: how many trainings; ``canaries``: in
    each; ``observer``: whose scores count, fixed before any is seen."""

    label: str
    overrides: tuple[str, ...]
    how: str
    runs: int
    canaries: int
    observer: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AuditPlan:
        """Raises ArgumentError for what is no row."""
        if not isinstance(values, Mapping) or not {"label", "overrides", "how", "runs"} <= set(
            values
        ):
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
        """With so many of its runs, or canaries, and two at least."""
        if self.how == CANARIES:
            return replace(self, canaries=max(2, round(share * self.canaries)))
        return replace(self, runs=max(2, round(share * self.runs)))

    def words(self) -> str:
        """How it was audited."""
        runs = counted(self.runs, "training" if self.how == CANARIES else "run")
        return HOW[self.how].format(runs=runs, each=counted(self.canaries, "canary"))


@dataclass(frozen=True)
class ThreeEpsilons:
    """Of one row. ``claimed``: None where the work claims nothing."""

    row: AuditPlan
    claimed: float | None
    sound: float
    audited: float
    unit: str
    neighbours: str
    delta: float

    def finding(self, confidence: float) -> str:
        """In words."""
        claimed = "nothing" if self.claimed is None else f"{self.claimed:.3f}"
        words = (
            f"**{self.row.label}**: claimed {claimed}, sound {_shown(self.sound)}, audited at least "
            f"{self.audited:.2f} (one {self.unit}, {RELATION_WORDS[self.neighbours]}, δ = {self.delta:g}; "
            f"{self.row.words()}; observer: {self.row.observer})."
        )
        if self.audited > self.sound:
            return f"{words} **More than the ledger charges.**"
        if self.claimed is not None and self.audited > self.claimed:
            return f"{words} The claim is refuted with confidence {confidence:g}."
        return f"{words} Not refuted, which does not make it true."


def three_epsilons(
    rows: Sequence[Mapping[str, Any]],
    base: Sequence[str],
    confidence: float,
    seed: int,
    share: float = 1.0,
) -> Drawing:
    """Claimed, sound and audited ε of every row, each at the claim's own δ. The audited ones hold together
    with ``confidence``: each row is tested at its share of what is left. ``base``: overrides of all rows;
    ``share``: of the runs that each row names."""
    confidence = checks.number("confidence", confidence, above=0.5, below=1)
    seed = checks.seed("seed", seed)
    share = checks.number("share", share, above=0, at_most=1)
    read = [AuditPlan.of(values).fewer(share) for values in rows]
    if not read:
        raise ArgumentError("rows", rows, "at least one row")
    significance = (1.0 - confidence) / len(read)
    found = []
    for row in read:
        found.append(_three(row, base, significance, seed))
        console().print(found[-1].finding(confidence).replace("**", ""))
    caption = (
        f"Lower bounds hold together with confidence {confidence:g}; the score of each row was fixed "
        "beforehand. A bound below a claim is no proof of it."
    )
    return Drawing(((_panel(found),),), caption, [one.finding(confidence) for one in found])


def _three(row: AuditPlan, base: Sequence[str], significance: float, seed: int) -> ThreeEpsilons:
    config = configuration.compose([*base, *row.overrides])
    parts = build_parts(config)
    rounds = checks.whole("rounds", parts.settings.rounds, at_least=1)
    sampling = parts.costs().sampling
    return ThreeEpsilons(
        row,
        _planned(parts, PUBLISHED, rounds) if parts.algorithm.claim is not None else None,
        _planned(parts, SOUND, rounds),
        _audited(row, config, rounds, parts.settings.delta, significance, seed),
        "record" if row.how == NEIGHBOURS else parts.algorithm.unit,  # what two data sets differ in
        sampling.neighbours,
        parts.settings.delta,
    )


def _planned(parts: Parts, view: str, rounds: int) -> float:
    """ε in a view: as its theorem has it, or by PLD."""
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
    trial = _trial(row, config, rounds, seed)
    scores = trial.scores[row.observer]
    if not trial.independent:
        return one_run_bound(scores, delta, significance)
    setup = AuditSetup(delta, 1.0 - significance, True, trial.released, seed)
    cuts = thresholds(len(scores), setup) if row.observer == RELEASES else None
    return independent.bound(scores, delta, significance, cuts, seed)


def _trial(row: AuditPlan, config: DictConfig, rounds: int, seed: int) -> CanaryTrial:
    if row.how == APART:
        return train_apart(config, row.runs, rounds, seed)
    if row.how == NEIGHBOURS:
        return train_on_neighbours(config, row.runs, rounds, seed)
    trainings = (
        train_with_canaries(config, row.canaries, rounds, seed + number)
        for number in range(row.runs)
    )
    return pooled(trainings)


def _panel(found: Sequence[ThreeEpsilons]) -> Panel:
    places = list(range(len(found)))[::-1]

    def marks(label: str, colour: str, marker: str, values: Sequence[float | None]) -> Line:
        kept = [
            (value, place)
            for value, place in zip(values, places, strict=True)
            if value is not None and 0 < value < math.inf
        ]
        x, y = zip(*kept, strict=True) if kept else ((), ())
        return Line(label, COLOURS[colour], x, y, marker=marker, joined=False)

    spans = [
        Line(
            "_span",
            COLOURS["grey"],
            (one.audited, one.sound),
            (place, place),
            thin=True,
            dotted=True,
        )
        for one, place in zip(found, places, strict=True)
        if one.audited > 0 and one.sound < math.inf
    ]
    return Panel(
        title="Three ε",
        x_label="ε",
        y_label="",
        lines=(
            marks("claimed", "orange", "o", [one.claimed for one in found]),
            marks("sound (ledger)", "blue", "s", [one.sound for one in found]),
            marks("audited, at least", "red", ">", [one.audited for one in found]),
            *spans,
        ),
        x_limits=(0.1, _largest(found)),
        x_log=True,
        y_ticks=tuple(_row_words(one) for one in reversed(found)),
    )


def _row_words(one: ThreeEpsilons) -> str:
    return f"{one.row.label} (sound ∞)" if math.isinf(one.sound) else one.row.label


def _largest(found: Sequence[ThreeEpsilons]) -> float:
    """A power of ten above all."""
    numbers = [x for one in found for x in (one.claimed or 0.0, one.sound, one.audited)]
    largest = max((x for x in numbers if math.isfinite(x)), default=1.0)
    return 10.0 ** math.ceil(math.log10(max(10.0, 1.2 * largest)))


def _shown(epsilon: float) -> str:
    return (
        "infinite"
        if math.isinf(epsilon)
        else f"{epsilon:.3f}"
        if epsilon < 1e4
        else f"{epsilon:.2g}"
    )
