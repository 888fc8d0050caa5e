"""Noise and sensitivity of what an observer receives: the upload at the server, or the new weights.

This check does not look at the mechanism. From one public state it runs a round under many noise keys, and a
round for each variation of the unit. The noise divided by the distance that one unit moves has to be the
ledger's noise multiplier or more. The check needs a round whose outcome is an affine function of one release.
With Adam or several local steps, what happens after the release is left to the pinned runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import stats

from fedpriv.tools.verify.interventions import AS_IT_IS, Variation
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.sensitivity import ROUNDING, rounding_spread
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT

_MOST_KEYS = 400
_SAMPLES = 2600
"""Numbers of noise. A few are enough: other checks measure the noise of releases, this one finds losses
afterwards."""
_VARIATIONS = ("huge", "huge, negated", "large", "upload huge", "upload huge, negated", ABSENT)


def affine(subject: Subject, reference: Recording) -> bool:
    """Return whether the outcome of the first round is an affine function of its release.

    Three pinned runs show it: the outcome must change as much from one to two times the release as from two
    to three. Where nothing is received, or some releases do not move the weights, the answer is False.

    Args:
        subject: The configuration.
        reference: The run whose releases are scaled.
    """
    rule = subject.parts.aggregation
    if rule is not None and not rule.linear and not subject.per_record:
        return False  # some releases do not move the weights
    outcomes = []
    for scale in (1.0, 2.0, 3.0):
        seen = subject.run(pinned=reference, rounds=1, scale=scale, keep=False)
        if (outcome := _observed(subject, seen)) is None:
            return False
        outcomes.append(outcome)
    first, second = outcomes[1] - outcomes[0], outcomes[2] - outcomes[1]
    size = float(np.abs(first).max())
    return size > 0 and float(np.abs(second - first).max()) < 1e-3 * size


def checks(
    subject: Subject, claim: LedgerClaim, variations: Sequence[Variation]
) -> Iterator[Check]:
    """Yield the check of the noise multiplier that an observer measures.

    There is no check where the noise is not Gaussian, a run stops, the observer receives neither an upload
    nor new weights, or no variation moves what is received.

    Args:
        subject: The configuration.
        claim: The ledger's claim about the only release of the first round.
        variations: Changes of the unit, of which a few are run.
    """
    if claim.family != GAUSSIAN:
        return
    base = _outcome(subject, "left 0")
    if base is None:
        return
    keys = min(_MOST_KEYS, math.ceil(_SAMPLES / base.size))
    outcomes = [base]
    for i in range(1, keys + 1):
        if (outcome := _outcome(subject, f"left {i}")) is None:
            return
        outcomes.append(outcome)
    # All outcomes follow from the same data and lots, so their spread [keys + 1, D] is that of the
    # noise alone.
    stack = np.stack(outcomes)
    square_sum = float(((stack - stack.mean(0)) ** 2).sum())
    count = base.size * keys
    moved = _moved(subject, base, variations)
    std = math.sqrt(square_sum / count)
    if moved == 0:
        return
    # Σ (x - mean)² / σ² is χ² with keys · D degrees of freedom for keys + 1 outcomes of D numbers. Only a sum
    # that is too small, so too little noise, fails.
    measured = std / moved
    # The relative part of the distance that the rounding of noise to its grid may have added.
    spread = rounding_spread(std * 2.0**-14, base.size, moved)
    slack = math.sqrt((1.0 + ROUNDING) ** 2 + spread / moved**2) - 1.0
    needed = claim.multiplier * moved / (1.0 + slack)
    p = float(stats.chi2.cdf(square_sum / needed**2, count)) if needed > 0 else 1.0
    where = "an upload" if subject.per_record else "the weights"
    yield Check(
        "noise",
        f"÷ what one {subject.unit_words} moves, in {where}",
        f"{measured:.4f}",
        f">= {claim.multiplier:.4f}",
        p,
        note=f"in {where} the noise is {measured:.4g} times what one {subject.unit_words} can move; "
        f"the ledger charges {claim.multiplier:.4g}",
    )


def _outcome(subject: Subject, noise: str, variation: Variation = AS_IT_IS) -> np.ndarray | None:
    """Run one round and return what an observer has after it."""
    streams = subject.streams(subject.sampling_name, noise)
    return _observed(subject, subject.run(streams, variation, rounds=1, keep=False))


def _observed(subject: Subject, recording: Recording) -> np.ndarray | None:
    """Return the upload of the unit's client, or the new weights; None where there is neither."""
    if recording.failure is not None or not recording.weights:
        return None
    if not subject.per_record:
        return recording.weights[0].double().cpu().numpy()
    cohort, uploads = recording.cohorts[0], recording.uploads[0]
    row = np.flatnonzero(cohort == subject.unit_client)
    if len(uploads) != 1 or not len(row) or len(uploads[0]) != len(cohort):
        return None
    return uploads[0][row[0]].double().cpu().numpy().reshape(-1)


def _moved(subject: Subject, base: np.ndarray, variations: Sequence[Variation]) -> float:
    """Return the largest distance from the absence of the unit, or between two variations of it."""
    outcomes = {"as it is": base}
    few = len(variations) <= len(_VARIATIONS)
    for variation in (v for v in variations if few or v.name in _VARIATIONS):
        outcome = _outcome(subject, "left 0", variation)
        if outcome is not None:
            outcomes[variation.name] = outcome
    partners = [outcomes[ABSENT]] if ABSENT in outcomes else list(outcomes.values())
    return max(float(np.linalg.norm(a - b)) for a in outcomes.values() for b in partners)
