"""From scores to lower bounds: every method that they allow, with its label and what it assumes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
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
_IDEAL_AUDITS = 20
_MANY_KINDS = 32


@dataclass(frozen=True)
class Method:
    """A way from scores to an ε. ``kind``: what may be said of it; ``assumes``: in words.

    All of them but the estimate hold for any scores: guesses made from scores are post-processing of what is
    released, which has no larger trade-off. Scores that are not the best make a bound smaller, never wrong.
    Only ``gaussian`` also counts on scores that are independent of one another.
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
    """One number: at least this ε with the confidence of the audit (an estimate: about it). ``ideal``: what
    the same method finds on average where the mechanism leaks exactly what its ledger charges."""

    observer: str
    method: str
    kind: str
    epsilon: float
    ideal: float | None

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class AuditSetup:
    """The terms on which scores are judged. ``released``: what a canary was part of by the ledger; empty: not
    known."""

    delta: float
    confidence: float
    independent: bool
    released: Counter[Kind]
    seed: int = 0

    @property
    def significance(self) -> float:
        return 1.0 - self.confidence

    @property
    def composition(self) -> dict[dp_event.DpEvent, int]:
        """The ledger's events of one canary."""
        counts: Counter[Any] = Counter()
        for kind, count in self.released.items():
            counts[kind.event] += count
        return dict(counts)

    @property
    def neighbours(self) -> str:
        signed = any(kind.signed for kind in self.released)
        return REPLACE_ONE if signed else ADD_OR_REMOVE

    @property
    def has_noise(self) -> bool:
        """Whether the ledger says of every release with which noise it is."""
        return bool(self.released) and all(
            0 < kind.noise_multiplier < math.inf for kind in self.released
        )

    def family(self) -> Family | None:
        """The ledger's mechanism with its noise unknown; None where it names none, or so many kinds of
        releases that composing them for each noise takes too long."""
        if not self.has_noise:
            return None
        if all(kind.sample_rate >= 1.0 for kind in self.released):
            return GaussianFamily(self.delta)  # exact: so many Gaussians are one
        if len(self.released) > _MANY_KINDS:
            return None
        return LedgerFamily(self.composition, self.neighbours, self.delta)


def evaluate(scores: dict[str, Scores], setup: AuditSetup) -> list[AuditedEpsilon]:
    """Every number that these scores, by observer, allow. Each holds with the confidence by itself; all of
    them together do not."""
    family, found = setup.family(), []
    cuts = thresholds(max(map(len, scores.values())), setup)
    for number, (observer, own) in enumerate(scores.items()):
        ideal = _ideal(own, setup, family, cuts) if number == 0 and setup.has_noise else {}
        seen = (
            observer != BLACK_BOX
        )  # losses of one model hang together, and are no likelihood ratios
        alone = seen or setup.independent
        for method, epsilon in numbers(own, setup, family, cuts if seen else None, alone).items():
            kind = METHODS[method].kind
            found.append(AuditedEpsilon(observer, method, kind, epsilon, ideal.get(method)))
    return found


def numbers(
    scores: Scores,
    setup: AuditSetup,
    family: Family | None,
    cuts: np.ndarray | None,
    alone: bool = True,
) -> dict[str, float]:
    """ε of each method; ``cuts``: the thresholds of independent scores, None where none are known;
    ``alone``: whether scores are independent of one another, given the coins."""
    delta, significance = setup.delta, setup.significance
    found = {}
    if setup.independent:
        found[CLOPPER_PEARSON.name] = independent.bound(
            scores, delta, significance, cuts, setup.seed
        )
    found[ONE_RUN.name] = one_run_bound(scores, delta, significance)
    if delta == 0:  # at which no Gaussian has an ε
        return found
    gaussian = family if isinstance(family, GaussianFamily) else GaussianFamily(delta)
    if family is not None and family is not gaussian:
        found[LEDGER.name] = family_bound(scores, family, significance)
    found[GAUSSIAN_F_DP.name] = family_bound(scores, gaussian, significance)
    if alone:
        found[GAUSSIAN.name] = independent.gaussian_bound(
            scores, delta, significance, cuts, setup.seed
        )
    found[NORMAL.name] = estimate(scores, delta)
    return found


def one_run_bound(scores: Scores, delta: float, significance: float) -> float:
    """The best of all numbers of guesses, each tested at its share of the significance."""
    counts = counts_of_guesses(len(scores))
    each = significance / len(counts)
    return max(one_run.lower_bound(scores.guesses(count), delta, each) for count in counts)


def family_bound(scores: Scores, family: Family, significance: float) -> float:
    """The same within a family."""
    counts = counts_of_guesses(len(scores))
    each = significance / len(counts)
    return max(families.lower_bound(scores.guesses(count), family, each) for count in counts)


def thresholds(canaries: int, setup: AuditSetup) -> np.ndarray | None:
    """Where to cut independent scores, from those of the ledger's mechanism; None where it names no noise."""
    if not setup.has_noise:
        return None
    stream = numpy_stream(setup.seed, "audit_thresholds")
    coins = stream.random(max(2000, canaries)) < 0.5
    return independent.thresholds_of(ideal_scores(setup.released, coins, stream))


def _ideal(
    scores: Scores, setup: AuditSetup, family: Family | None, cuts: np.ndarray | None
) -> dict[str, float]:
    """What each method finds on average on as many canaries of the ledger's mechanism."""
    stream = numpy_stream(setup.seed, "audit_ideal")
    found = []
    for _ in range(_IDEAL_AUDITS):
        coins = stream.random(len(scores)) < 0.5
        made = Scores(ideal_scores(setup.released, coins, stream), coins)
        found.append(numbers(made, setup, family, cuts))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}
