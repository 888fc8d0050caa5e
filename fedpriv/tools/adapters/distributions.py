"""Tests for adapters whose seed cannot be held still: averages over many runs instead of differences.

They see less: a difference of two runs has no noise, an average over n runs has noise/√n. Each check states
what it would find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.tools.adapters.members import other_denominator
from fedpriv.tools.adapters.noise import NoiseRuns
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.table import Check

_RUNS = 400
_HUGE = 1e6
_FOUND = 7.0  # standard errors that are found with probability > .99 at the level of a check


def checks(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Yield tests of how far one unit moves values on average, and of how often units take part."""
    subject = noise_runs.subject
    claim = subject.claim
    names = [
        n for n in noise_runs.names() if noise_runs.runs[0][0].values[n].shape[-1:] == (claim.size,)
    ]
    if not names:
        reason = f"no value has the {claim.size} numbers of an upload"
        if claim.law.whole:
            yield Check("sensitivity", "a huge unit", f"skipped: {reason}", "-")
            return
        yield Check(
            "sampling", "cohorts", f"not tested: {reason}", "-", passed=False,
            note=f"{claim.sampling} is claimed, and who takes part cannot be read: {reason}; let round "
            "return values of that length, or claim sampling none",
        )  # fmt: skip
        return
    name = names[0]
    claimed = claim.values[name]
    direction, rate = (
        subject.direction(),
        claim.law.part(claim.records if subject.per_record else claim.clients),
    )
    huge = _HUGE * subject.clip_norm * direction
    for unit in (0, claim.units - 1):
        other = -huge if claim.neighbours == REPLACE_ONE else subject.quiet_vector
        means, squares = [], []
        for vector in (huge, other):
            data = subject.set_unit(subject.quiet, unit, vector)
            runs = subject.all_runs([(subject.new_seed(), [data]) for _ in range(_RUNS)])
            along = np.array([r[0].rows(name, claim.size).sum(axis=0) @ direction for r in runs])
            means.append(along.mean() / claimed.sensitivity)
            squares.append(along.var(ddof=1) / claimed.sensitivity**2)
        moved = abs(float(means[0] - means[1]))
        error = math.sqrt(sum(squares) / _RUNS)
        p = float(stats.t.sf((moved - rate) / error, _RUNS - 1)) if math.isfinite(moved) else 0.0
        yield Check(
            "sensitivity", f"{name}: {claim.unit} {unit} huge, on average of {_RUNS} runs",
            f"{moved:.3f} of the sensitivity", f"at most {rate:.3g} (finds {rate + _FOUND * error:.2g})", p,
            note=f"{claim.unit} {unit} moves {name} by {moved:.3g} times its sensitivity on average",
        )  # fmt: skip
    yield from _frequency(noise_runs, name, rate)


def _frequency(noise_runs: NoiseRuns, name: str, rate: float) -> Iterator[Check]:
    """Test how often each unit takes part, from the mean of its own coordinate."""
    subject, claim = noise_runs.subject, noise_runs.subject.claim
    claimed = claim.values[name]
    data, units = subject.fingerprints(), subject.read_units
    runs = subject.all_runs([(subject.new_seed(), [data]) for _ in range(_RUNS)])
    rows = [run[0].rows(name, subject.claim.size).sum(axis=0)[:units] for run in runs]
    shares = np.stack(rows) * claimed.denominator / claimed.clip_norm
    error = shares.std(axis=0, ddof=1) / math.sqrt(_RUNS)
    students = np.abs(shares.mean(axis=0) - rate) / error
    p_values = np.nan_to_num(2.0 * stats.t.sf(students, _RUNS - 1))
    worst = int(np.argmin(p_values))
    level = float(np.sqrt(np.mean(noise_runs.standardised(name) ** 2)))
    weight = abs(float(shares.mean())) / rate
    cause = other_denominator(name, claim.unit, claimed.denominator, level, weight)
    if cause:
        yield Check("sensitivity", f"a {claim.unit}'s weight", f"{weight:.3g}", "-", note=cause)
    what = "lots" if subject.per_record else "cohorts"
    yield Check(
        "sampling", f"{what}: worst of {units} units, on average", f"in {shares.mean(axis=0)[worst]:.3f}",
        f"{rate:.3g} (finds ±{_FOUND * error.max():.2g})", statistics.smallest(p_values),
        note=f"unit {worst} is in {shares.mean(axis=0)[worst]:.3g} of the {what}",
    )  # fmt: skip
