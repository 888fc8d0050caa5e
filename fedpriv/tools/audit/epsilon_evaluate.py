"""Lower bounds of ε from scores: every method that the scores allow, with its label and its assumption."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from dp_accounting import dp_event

from fedpriv.attacks.canary_scores import Kind, ideal_scores
from fedpriv.common.random_streams import numpy_stream
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.store.canary_file import BLACK_BOX
from fedpriv.tools.audit import epsilon_families as families
from fedpriv.tools.audit import epsilon_independent as independent
from fedpriv.tools.audit import epsilon_one_run as one_run
from fedpriv.tools.audit.epsilon_estimate import estimate
from fedpriv.tools.audit.epsilon_families import Family, GaussianFamily, LedgerFamily
from fedpriv.tools.audit.epsilon_guesses import Scores, counts_of_guesses

BOUND, FAMILY, ESTIMATE = "bound", "bound within a family", "estimate"
_IDEAL_AUDITS = 20  # simulated audits that an ideal number is the mean of
_MANY_KINDS = 32  # composing more kinds of releases for each noise takes too long


@dataclass(frozen=True)
class Method:
    """A way from scores to an ε.

    All methods but the estimate hold for any scores: guesses made from scores are post-processing of what is
    released, which has no larger trade-off. Scores that are not the best possible make a bound smaller, never
    wrong. Only ``gaussian`` also assumes that scores are independent of one another.

    Attributes:
        name: Name of the method, as in epsilon.csv.
        kind: What its numbers are: ``BOUND``, ``FAMILY`` or ``ESTIMATE``.
        assumes: The assumption, in words.
    """

    name: str
    kind: str
    assumes: str


ONE_RUN = Method("one_run", BOUND, "nothing but that the canaries' coins are fair and independent")
CLOPPER_PEARSON = Method(
    "clopper_pearson", BOUND, "nothing but that the trials are independent of one another"
)
LEDGER = Method(
    "f_dp_ledger", FAMILY, "the ledger's mechanism, sampling and rounds; its noise alone is unknown"
)
GAUSSIAN_F_DP = Method("f_dp_gaussian", FAMILY, "a Gaussian trade-off function")
GAUSSIAN = Method(
    "gaussian", FAMILY, "a Gaussian trade-off function, and scores independent of one another"
)
NORMAL = Method(
    "normal_scores",
    ESTIMATE,
    "normally distributed scores; no confidence: above the truth in about 90 % of Gaussian trials",
)
METHODS = {m.name: m for m in (ONE_RUN, CLOPPER_PEARSON, LEDGER, GAUSSIAN_F_DP, GAUSSIAN, NORMAL)}


@dataclass(frozen=True)
class AuditedEpsilon:
    """One number of an audit: a lower bound of ε with the confidence of the audit, or an estimate.

    Attributes:
        observer: The observer whose scores are used (see :mod:`fedpriv.store.canary_file`).
        method: Name of the method.
        kind: Kind of the method.
        epsilon: The bound or estimate.
        ideal: What the same method finds on average where the mechanism leaks exactly what its ledger
            charges; None if this is not known.
    """

    observer: str
    method: str
    kind: str
    epsilon: float
    ideal: float | None

    def row(self) -> dict[str, Any]:
        """Return the number as a row of a table, with what its method assumes."""
        return {**asdict(self), "assumes": METHODS[self.method].assumes}


@dataclass(frozen=True)
class AuditSetup:
    """The terms on which scores are judged.

    Attributes:
        delta: δ of the audited guarantee.
        confidence: Confidence of all bounds together.
        independent: Whether each canary was in a run of its own.
        released: Kinds of the releases of a canary by the ledger, each with its count; empty if not known.
        seed: Seed of everything that is drawn.
        bounds: Number of bounds that share the confidence.
    """

    delta: float
    confidence: float
    independent: bool
    released: Counter[Kind]
    seed: int = 0
    bounds: int = 1

    @property
    def significance(self) -> float:
        """Probability that a bound is wrong, a share of that of any of them."""
        return (1.0 - self.confidence) / self.bounds

    @property
    def composition(self) -> dict[dp_event.DpEvent, int]:
        """The ledger's events of one canary, each with its count."""
        counts: Counter[Any] = Counter()
        for kind, count in self.released.items():
            counts[kind.event] += count
        return dict(counts)

    @property
    def neighbours(self) -> str:
        """The adjacency that the canaries' coins stand for.

        It is replace-one where a coin chooses between a canary and its opposite (+v or -v), and add/remove
        where it decides whether the canary takes part.
        """
        signed = any(kind.signed for kind in self.released)
        return REPLACE_ONE if signed else ADD_OR_REMOVE

    @property
    def has_noise(self) -> bool:
        """True if the ledger names the noise of every release."""
        return bool(self.released) and all(
            0 < kind.noise_multiplier < math.inf for kind in self.released
        )

    def family(self) -> Family | None:
        """Return the ledger's mechanism with unknown noise.

        Returns:
            The family, or None if the ledger names no noise, or names so many kinds of releases that
            composing them for each noise takes too long.
        """
        if not self.has_noise:
            return None
        if all(kind.sample_rate >= 1.0 for kind in self.released):
            return GaussianFamily(self.delta)  # exact: several Gaussians together are one
        if len(self.released) > _MANY_KINDS:
            return None
        return LedgerFamily(self.composition, self.neighbours, self.delta)


def evaluate(scores: dict[str, Scores], setup: AuditSetup) -> list[AuditedEpsilon]:
    """Return every number that scores allow.

    All bounds together hold with the confidence: each of m bounds is tested at its share, and m is known
    before the scores are. ``ideal`` is simulated for the first observer only, and only where the ledger names
    the noise of every release.

    Args:
        scores: Scores of the same canaries by each observer.
        setup: The terms of the audit.
    """
    family, results = setup.family(), []
    # The losses of one model depend on one another, and they are no likelihood ratios.
    alone = {observer: observer != BLACK_BOX or setup.independent for observer in scores}
    kinds = 1 + setup.independent  # of bounds for each observer; see numbers
    if setup.delta > 0:
        kinds += 1 + (family is not None and not isinstance(family, GaussianFamily))
    extra = sum(alone.values()) if setup.delta > 0 else 0
    setup = replace(setup, bounds=kinds * len(scores) + extra)
    cuts = thresholds(max(map(len, scores.values())), setup)
    for number, (observer, values) in enumerate(scores.items()):
        ideal = _ideal(values, setup, family, cuts) if number == 0 and setup.has_noise else {}
        known = cuts if observer != BLACK_BOX else None
        epsilons = numbers(values, setup, family, known, alone[observer])
        for method, epsilon in epsilons.items():
            kind = METHODS[method].kind
            results.append(AuditedEpsilon(observer, method, kind, epsilon, ideal.get(method)))
    return results


def numbers(
    scores: Scores,
    setup: AuditSetup,
    family: Family | None,
    cuts: np.ndarray | None,
    alone: bool = True,
) -> dict[str, float]:
    """Return ε of each method that applies, by its name.

    ``one_run`` always applies, and ``clopper_pearson`` where the trials are independent. At δ = 0 there is
    nothing else, because no Gaussian has an ε there. For δ > 0 ``f_dp_gaussian`` and ``normal_scores`` apply
    too, ``f_dp_ledger`` where ``family`` is given and is not Gaussian, and ``gaussian`` where ``alone`` is
    true.

    Args:
        scores: Scores and coins of the canaries.
        setup: The terms of the audit.
        family: The ledger's mechanism with unknown noise, if there is one.
        cuts: Thresholds of independent scores; None if none are known beforehand.
        alone: Whether scores are independent of one another, given the coins.
    """
    delta, significance = setup.delta, setup.significance
    epsilons = {}
    if setup.independent:
        epsilons[CLOPPER_PEARSON.name] = independent.bound(
            scores, delta, significance, cuts, setup.seed
        )
    epsilons[ONE_RUN.name] = one_run_bound(scores, delta, significance)
    if delta == 0:  # no Gaussian has an ε at δ = 0
        return epsilons
    gaussian = family if isinstance(family, GaussianFamily) else GaussianFamily(delta)
    if family is not None and family is not gaussian:
        epsilons[LEDGER.name] = family_bound(scores, family, significance)
    epsilons[GAUSSIAN_F_DP.name] = family_bound(scores, gaussian, significance)
    if alone:
        epsilons[GAUSSIAN.name] = independent.gaussian_bound(
            scores, delta, significance, cuts, setup.seed
        )
    epsilons[NORMAL.name] = estimate(scores, delta)
    return epsilons


def one_run_bound(scores: Scores, delta: float, significance: float) -> float:
    """Return the best bound over several numbers of guesses.

    Each number of guesses is tested at its share of the significance, so the best of them is a valid bound.

    Args:
        scores: Scores and coins of the canaries.
        delta: δ.
        significance: Probability that the bound is wrong.
    """
    counts = counts_of_guesses(len(scores))
    share = significance / len(counts)
    return max(one_run.lower_bound(scores.guesses(count), delta, share) for count in counts)


def family_bound(scores: Scores, family: Family, significance: float) -> float:
    """Return the best bound within a family over several numbers of guesses; see :func:`one_run_bound`.

    Args:
        scores: Scores and coins of the canaries.
        family: The family of mechanisms.
        significance: Probability that the bound is wrong, if the mechanism is in the family.
    """
    counts = counts_of_guesses(len(scores))
    share = significance / len(counts)
    return max(families.lower_bound(scores.guesses(count), family, share) for count in counts)


def thresholds(canaries: int, setup: AuditSetup) -> np.ndarray | None:
    """Return thresholds for independent scores, from simulated scores of the ledger's mechanism.

    Args:
        canaries: Number of canaries; at least 2000 are simulated.
        setup: The terms of the audit.

    Returns:
        The thresholds, or None if the ledger names no noise.
    """
    if not setup.has_noise:
        return None
    stream = numpy_stream(setup.seed, "audit_thresholds")
    coins = stream.random(max(2000, canaries)) < 0.5
    return independent.thresholds_of(ideal_scores(setup.released, coins, stream))


def _ideal(
    scores: Scores, setup: AuditSetup, family: Family | None, cuts: np.ndarray | None
) -> dict[str, float]:
    """Return what each method finds on average, on as many canaries of exactly the ledger's mechanism."""
    stream = numpy_stream(setup.seed, "audit_ideal")
    audits = []
    for _ in range(_IDEAL_AUDITS):
        coins = stream.random(len(scores)) < 0.5
        simulated = Scores(ideal_scores(setup.released, coins, stream), coins)
        audits.append(numbers(simulated, setup, family, cuts))
    return {name: float(np.mean([audit[name] for audit in audits])) for name in audits[0]}
