"""Noise and sensitivity once more where values really leave: what reaches the server, or the new weights.

Nothing of the mechanism is looked at: from one public state, a round under many noise keys, and a round for
each way to be of the unit. The smallest ratio of the noise to what one unit moves has to be the ledger's
noise multiplier. That needs a round whose outcome is an affine function of one release: with Adam, or several
local steps, what happens after the release is left to the pinned runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import stats

from fedpriv.tools.verify.interventions import AS_IT_IS, Variation
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT

_ROUNDING = 1e-3
_AT_MOST = 400
_SAMPLES = 2600
"""Few: how much noise there is, is measured where it is released; this finds what is lost on the way."""
_WAYS = ("huge", "huge, negated", "large", "upload huge", "upload huge, negated", ABSENT)


def affine(subject: Subject, reference: Recording) -> bool:
    """Return whether twice and three times the release move what leaves by as much as once and twice."""
    rule = subject.parts.aggregation
    if rule is not None and not rule.linear and not subject.per_record:
        return False  # the weights are moved by some releases and not by others
    at = []
    for scale in (1.0, 2.0, 3.0):
        seen = subject.run(pinned=reference, rounds=1, scale=scale, keep=False)
        if (value := _left(subject, seen)) is None:
            return False
        at.append(value)
    first, second = at[1] - at[0], at[2] - at[1]
    size = float(np.abs(first).max())
    return size > 0 and float(np.abs(second - first).max()) < 1e-3 * size


def checks(subject: Subject, said: LedgerClaim, variations: Sequence[Variation]) -> Iterator[Check]:
    """Yield the noise multiplier that an observer can measure, where the round gives it any."""
    if said.family != GAUSSIAN:
        return
    base = _left(subject, _once(subject, "left 0"))
    if base is None:
        return
    keys = min(_AT_MOST, math.ceil(_SAMPLES / base.size))
    values = [base]
    for i in range(1, keys + 1):
        if (value := _left(subject, _once(subject, f"left {i}"))) is None:
            return
        values.append(value)
    stack = np.stack(values)
    square_sum = float(((stack - stack.mean(0)) ** 2).sum())
    count = base.size * keys
    moved = _moved(subject, base, variations)
    std = math.sqrt(square_sum / count)
    if moved == 0:
        return
    measured = std / moved
    needed = said.multiplier * moved / (1.0 + _slack(std, moved, base.size))
    p = float(stats.chi2.cdf(square_sum / needed**2, count)) if needed > 0 else 1.0
    where = "an upload" if subject.per_record else "the weights"
    yield Check(
        "noise",
        f"÷ what one {subject.unit_words} moves, in {where}",
        f"{measured:.4f}",
        f">= {said.multiplier:.4f}",
        p,
        note=f"in {where} the noise is {measured:.4g} times what one {subject.unit_words} can move; "
        f"the ledger charges {said.multiplier:.4g}",
    )


def _once(subject: Subject, noise: str, variation: Variation | None = None) -> Recording:
    streams = subject.streams(subject.sampling_name, noise)
    return subject.run(streams, variation or AS_IT_IS, rounds=1, keep=False)


def _left(subject: Subject, recording: Recording) -> np.ndarray | None:
    """Return what an observer has after a round: the upload of the unit's client, or the weights."""
    if recording.broke is not None or not recording.weights:
        return None
    if not subject.per_record:
        return recording.weights[0].double().cpu().numpy()
    cohort, uploads = recording.cohorts[0], recording.uploads[0]
    row = np.flatnonzero(cohort == subject.unit_client)
    if len(uploads) != 1 or not len(row) or len(uploads[0]) != len(cohort):
        return None
    return uploads[0][row[0]].double().cpu().numpy().reshape(-1)


def _moved(subject: Subject, base: np.ndarray, variations: Sequence[Variation]) -> float:
    """Return the largest distance between two ways to be of the unit, or from its absence."""
    found = {"as it is": base}
    for variation in (v for v in variations if v.name in _WAYS or len(variations) <= len(_WAYS)):
        value = _left(subject, _once(subject, "left 0", variation))
        if value is not None:
            found[variation.name] = value
    partners = [found[ABSENT]] if ABSENT in found else list(found.values())
    return max(float(np.linalg.norm(a - b)) for a in found.values() for b in partners)


def _slack(std: float, moved: float, width: int) -> float:
    """Return the part of a distance that the rounding of noise to its grid may add."""
    grid = std * 2.0**-14
    spread = width * grid**2 / 4.0 + 3.3 * math.sqrt(width) * grid**2 + 13.0 * grid * moved
    return math.sqrt((1.0 + _ROUNDING) ** 2 + spread / moved**2) - 1.0
