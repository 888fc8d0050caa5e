"""Membership inference on one run: which records were trained on?"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, field
from typing import Any

import numpy as np

from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import counted
from fedpriv.tools.audit import attacks
from fedpriv.tools.audit.attacks import BLIND, CALIBRATED, LOSS, WHITE_BOX
from fedpriv.tools.audit.bound import TprBound, bound_of
from fedpriv.tools.audit.records import Candidates, choose
from fedpriv.tools.audit.request import MembershipOptions
from fedpriv.tools.audit.shadow_attacks import GAMMA, OFFLINE_A, OWN_VARIANCE, scores_of
from fedpriv.tools.audit.shadow_runs import (
    ShadowRun,
    Training,
    pool_outside,
    refuse_without_shadows,
    shadow_runs,
    signals_of,
)
from fedpriv.tools.audit.statistics import INTERVALS, Estimate, auc, roc, tpr_at
from fedpriv.tools.audit.subject import AuditedRun

RATES = {"tpr_at_1_percent": 0.01, "tpr_at_0.1_percent": 0.001}
"""The false positive rates at which a TPR is reported, by the names of the columns."""


@dataclass(frozen=True)
class Outcome:
    """The result of one attack, or of the blind classifier.

    Attributes:
        attack: Name of the attack.
        auc: AUC of the scores.
        rates: TPR at each of ``RATES``; None if there are too few non-members.
        curve: (FPR, TPR) at every threshold.
    """

    attack: str
    auc: Estimate
    rates: dict[str, Estimate | None]
    curve: tuple[np.ndarray, np.ndarray] = field(repr=False)

    def row(self) -> dict[str, Any]:
        """Return the result as a row of a table."""
        return {"attack": self.attack, **self.estimates()}

    def estimates(self) -> dict[str, float | None]:
        """Return each estimate as three columns: its value and the ends of its interval."""
        columns: dict[str, float | None] = {}
        for name, estimate in {"auc": self.auc, **self.rates}.items():
            values = (None,) * 3 if estimate is None else astuple(estimate)
            columns |= zip((name, f"{name}_low", f"{name}_high"), values, strict=True)
        return columns


@dataclass(frozen=True)
class ShadowFacts:
    """Facts about the shadow runs of an audit.

    Attributes:
        runs: Folders of the shadow runs.
        records: Smallest number of records that a shadow run trains on.
        records_of_run: Number of records that the audited run trains on.
        own_variance: Whether LiRA fits a variance to each record.
        population: Number of records z of RMIA's population.
        gamma: γ of RMIA.
        offline_a: a of offline RMIA.
    """

    runs: list[str]
    records: int
    records_of_run: int
    own_variance: bool
    population: int
    gamma: float = GAMMA
    offline_a: float = OFFLINE_A


@dataclass(frozen=True)
class MembershipAudit:
    """The results of all attacks on one run.

    Attributes:
        subject: Facts about the run, as in the first keys of membership.json.
        options: Options of the audit.
        each: Number of members, and of non-members.
        weights_seen: Rounds after which the white-box attack sees the weights.
        outcomes: Results of the attacks.
        blind: Result of the classifier of the records alone.
        warnings: What a reader must know.
        shadows: Facts about the shadow runs, if there are any.
        bound: The bound that the run's guarantee sets any attack; None without a guarantee.
    """

    subject: dict[str, Any]
    options: MembershipOptions
    each: int
    weights_seen: list[int]
    outcomes: list[Outcome]
    blind: Outcome
    warnings: list[str]
    shadows: ShadowFacts | None = None
    bound: TprBound | None = None

    @property
    def strongest(self) -> Outcome:
        """The attack with the largest AUC."""
        return max(self.outcomes, key=lambda outcome: outcome.auc.value)

    def summary(self) -> dict[str, Any]:
        """Return the entries for ``summary.json``."""
        best = self.strongest
        rates = {name: rate and rate.value for name, rate in best.rates.items()}
        return {"membership_auc": best.auc.value, "membership_attack": best.attack} | {
            f"membership_{name}": value for name, value in rates.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return the content of membership.json."""
        return {
            "schema_version": 1,
            **self.subject,
            "options": asdict(self.options),
            "members": self.each,
            "nonmembers": self.each,
            "weights_after_rounds": self.weights_seen,
            "intervals": INTERVALS,
            "warnings": self.warnings,
            "shadows": self.shadows and asdict(self.shadows),
            "bound": self.bound and self.bound.as_json(),
            "attacks": {outcome.attack: outcome.estimates() for outcome in self.outcomes},
            "blind": self.blind.estimates(),
        }


def audit_membership(
    subject: AuditedRun, options: MembershipOptions, training: Training | None = None
) -> MembershipAudit:
    """Run every membership attack on a run.

    With ``options.shadows``, shadow runs that are missing in ``options.shadow_runs`` are trained and stay
    there.

    Args:
        subject: The run.
        options: Options of the audit.
        training: Settings of shadow runs.

    Returns:
        The audit, not written yet.

    Raises:
        ConfigError: The run has too few members or non-members, or can have no shadow runs.
        FedprivError: A shadow run cannot be trained, or diverged.
        Interrupted: Ctrl-C was pressed while a shadow run trained.
    """
    runs: list[ShadowRun] = []
    pool = None
    if options.shadows:
        refuse_without_shadows(subject)
        pool = pool_outside(subject, options)
    candidates = choose(subject, options.nonmembers, options.records, options.seed, pool)
    if options.shadows:
        runs = shadow_runs(subject, options, training or Training())
    trajectory = subject.trajectory(options.snapshots)
    context, seed = subject.context, options.seed
    scores = {
        LOSS: attacks.loss_scores(context, subject.final, candidates),
        CALIBRATED: attacks.calibrated_scores(context, subject.initial, subject.final, candidates),
        WHITE_BOX: attacks.white_box_scores(
            context, [weights for _, weights in trajectory], candidates, seed
        ),
        BLIND: attacks.blind_scores(candidates, context.data.classes, seed),
    }
    facts = None
    if runs:
        signals = signals_of(subject, candidates, runs, options)
        scores |= scores_of(signals)
        facts = ShadowFacts(
            runs=[str(shadow.folder.path) for shadow in runs],
            records=min(sum(map(len, shadow.clients)) for shadow in runs),
            records_of_run=int(context.data.clients.sizes.sum()),
            own_variance=len(runs) >= OWN_VARIANCE,
            population=len(signals.target_z),
        )
    results = {name: judge(name, scores[name], candidates, seed) for name in scores}
    outcomes = [result for name, result in results.items() if name != BLIND]
    participants = subject.took_part()
    everyone = participants is None or len(participants) == context.data.client_count
    statement = subject.run.statement
    bound = bound_of(statement, everyone)
    return MembershipAudit(
        subject=subject.facts(),
        options=options,
        each=candidates.each,
        weights_seen=[rounds for rounds, _ in trajectory],
        outcomes=outcomes,
        blind=results[BLIND],
        warnings=[
            *candidates.warnings,
            *_warnings(results[BLIND], candidates, len(trajectory), facts),
            *(beyond(outcomes, bound) if bound else []),
        ],
        shadows=facts,
        bound=bound,
    )


def judge(name: str, scores: np.ndarray, candidates: Candidates, seed: int) -> Outcome:
    """Return AUC, TPR at each of ``RATES``, and ROC curve of one attack's scores.

    Args:
        name: Name of the attack.
        scores: Score of each candidate [n].
        candidates: Members and non-members.
        seed: Seed of the bootstrap.
    """
    members, others = candidates.split(scores)
    rates = {
        rate: tpr_at(members, others, fpr, numpy_stream(seed, f"audit_{rate}"))
        for rate, fpr in RATES.items()
    }
    return Outcome(name, auc(members, others), rates, roc(members, others))


def _warnings(
    blind: Outcome, candidates: Candidates, weights: int, shadows: ShadowFacts | None
) -> list[str]:
    """Return a sentence for each reason to read the results with care."""
    warnings = []
    result = (
        f"a classifier of the records alone, without the model, has an AUC of {blind.auc.value:.3f}"
    )
    if blind.auc.low > 0.5:
        warnings.append(
            f"Members and non-members are not drawn from one distribution: {result}, where chance has 0.5."
        )
    elif blind.auc.high < 0.5:
        warnings.append(
            f"Members and non-members were not split at random: {result}, below chance (0.5), as happens "
            "where a rule dealt each kind of record out evenly."
        )
    for name, fpr in RATES.items():
        if blind.rates[name] is None:
            warnings.append(
                f"{counted(candidates.each, 'non-member')} cannot show a false positive rate of {fpr:.1%}, "
                f"for which at least {round(1 / fpr)} are needed: the TPR there is left out."
            )
    if weights == 2:
        warnings.append(
            "white_box sees the initial and the last weights only: the run has no snapshots between them "
            "(runtime.snapshot_interval)."
        )
    if shadows is not None and shadows.records < shadows.records_of_run:
        warnings.append(
            f"A shadow run trains on {shadows.records} records and the run on {shadows.records_of_run}, as "
            "there are not enough that no client has: lira and rmia may be weaker for it."
        )
    return warnings


def beyond(outcomes: list[Outcome], bound: TprBound) -> list[str]:
    """Return a sentence for each attack and FPR whose TPR is above what the ledger allows.

    The lower end of the TPR's interval is compared, so that chance alone exceeds the bound in one of 40.

    Args:
        outcomes: Results of the attacks.
        bound: The bound that follows from the run's guarantee.
    """
    sentences = []
    for outcome in outcomes:
        for name, fpr in RATES.items():
            rate, most = outcome.rates[name], float(bound.tpr(fpr))
            if rate is not None and rate.low > most:
                sentences.append(
                    f"{outcome.attack} has a TPR of at least {rate.low:.1%} at {fpr:.1%} FPR, where the "
                    f"ledger allows any attack {most:.1%}: the run leaks more than it is charged for, or "
                    "members and non-members differ in more than membership, or it is chance (one interval "
                    "in 40)."
                )
    return sentences
