"""Tests of how far one unit moves what leaves: huge, opposite, not a number, in one number alone, absent.

Two runs with the same seed differ by the unit alone, so the distance of what leaves is the unit's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.tools.adapters.members import Fingerprints
from fedpriv.tools.adapters.process import RoundRaised
from fedpriv.tools.adapters.subject import AdapterSubject, Data, Seen
from fedpriv.tools.verify.table import Check

_UNITS = 5
_ROUNDING = 1e-4  # of code in single precision
_HUGE = 1e6
ALMOST_ZERO = "almost zero"
_SEVERAL = 3


def checks(subject: AdapterSubject, fingerprints: Fingerprints) -> Iterator[Check]:
    """Yield a check for each way in which a unit was replaced: the worst distance of any unit tried."""
    distances: dict[tuple[str, str], tuple[float, str]] = {}
    base = subject.ordinary()
    for unit, seed in _tried(subject, fingerprints):
        members = range(subject.claim.units)
        answers: dict[str, Seen | str] = {}
        for name, data in _variations(subject, base, unit).items():
            try:
                answers[name] = subject.run(seed, [data], members)[0]
            except RoundRaised as error:
                answers[name] = str(error)
        for name, key, distance, note in (
            *_compared(subject, answers, unit),
            *_absent(subject, unit, seed),
        ):
            if distance > distances.get((name, key), (-1.0, ""))[0]:
                distances[name, key] = distance, note
    for (name, key), (distance, note) in distances.items():
        yield Check(
            "sensitivity", f"{key}: a {subject.claim.unit} {name}", f"{distance:.4g} of the sensitivity",
            "at most 1", passed=distance <= 1 + _ROUNDING, note=note, of=f"{key}: a {subject.claim.unit}",
        )  # fmt: skip
    yield from _several(subject, fingerprints, base)


def _tried(subject: AdapterSubject, fingerprints: Fingerprints) -> list[tuple[int, int]]:
    """Return units and, for each, a seed with which it takes part: the first, the last, and others."""
    units = subject.claim.units
    between = subject.random.permutation(max(0, units - 2))[: _UNITS - 2] + 1
    chosen = dict.fromkeys([0, units - 1, *between.tolist()])
    held = [(unit, subject.new_seed()) for unit in chosen]
    if subject.chooses_members or subject.claim.law.whole or fingerprints.name is None:
        return held
    seeds = [(unit, fingerprints.seed_with(unit)) for unit in chosen]
    return [(unit, seed) for unit, seed in seeds if seed is not None] or held


def _variations(subject: AdapterSubject, base: Data, unit: int) -> dict[str, Data]:
    direction, size = subject.direction(), subject.claim.size
    huge = _HUGE * subject.clip_norm * direction
    in_one = np.zeros(size)
    in_one[-1] = _HUGE * subject.clip_norm
    in_first = np.zeros(size)
    in_first[0] = _HUGE * subject.clip_norm
    one_nan = 0.5 * subject.clip_norm * direction
    one_nan[size // 2] = math.nan
    vectors = {
        ALMOST_ZERO: subject.quiet_vector,
        "zero": np.zeros(size),
        "huge": huge,
        "opposite": -huge,
        "huge in its last number": in_one,
        "huge in its first number": in_first,
        "just not clipped": (1 - 1e-9) * subject.clip_norm * direction,
        "not a number": np.full(size, math.nan),
        "not a number in one place": one_nan,
        "infinite": np.full(size, math.inf),
    }
    data = {name: subject.set_unit(base, unit, vector) for name, vector in vectors.items()}
    if subject.claim.finite:
        data = {
            name: d for name, d in data.items() if "a number" not in name and name != "infinite"
        }
    return data


def _compared(
    subject: AdapterSubject, answers: dict[str, Seen | str], unit: int
) -> Iterator[tuple[str, str, float, str]]:
    """Yield (variation, value, distance ÷ sensitivity, sentence) of the variations of one unit."""
    replaces = subject.claim.neighbours == REPLACE_ONE
    others = list(answers) if replaces else [ALMOST_ZERO]
    for name, answer in answers.items():
        if isinstance(answer, str):
            note = f"the round stops if {subject.claim.unit} {unit} is {name}, which tells of it: {answer}"
            yield name, "the round", math.inf, note
            continue
        for other in others:
            reference = answers[other]
            if other == name or isinstance(reference, str):
                continue
            for key, distance in _distances(answer, reference).items():
                note = (
                    f"{key} moves by {distance:.4g} times its sensitivity if {subject.claim.unit} {unit} is "
                    f"{name} instead of {other}"
                )
                yield name, key, distance, note


def _absent(subject: AdapterSubject, unit: int, seed: int) -> Iterator[tuple[str, str, float, str]]:
    """Compare a unit against all others with its absence, where all others are alike.

    What depends on the number of units, such as a mean over those that are there, shows then.
    """
    claim = subject.claim
    if claim.neighbours != ADD_OR_REMOVE or not claim.law.whole or claim.units < 2:
        return
    direction = subject.direction()
    present = subject.quiet
    for other in range(claim.units):
        length = -_HUGE if other == unit else 1 - 1e-9
        present = subject.set_unit(present, other, length * subject.clip_norm * direction)
    members = range(claim.units)
    try:
        first = subject.run(seed, [present], members)[0]
        second = subject.run(seed, [subject.without(present, unit)], members[:-1])[0]
    except RoundRaised as error:
        note = f"the round stops if {claim.unit} {unit} is absent, which tells of it: {error}"
        yield "absent", "the round", math.inf, note
        return
    for key, distance in _distances(first, second).items():
        if first.values[key].shape == second.values[key].shape:  # uploads have a row less
            note = f"{key} moves by {distance:.4g} times its sensitivity if {claim.unit} {unit} is absent"
            yield "absent", key, distance, note


def _distances(first: Seen, second: Seen) -> dict[str, float]:
    """Return the distance of each value, in units of its sensitivity, less what rounding may make."""
    distances = {}
    for name, claimed in first.charged.items():
        a, b = first.values.get(name), second.values.get(name)
        if a is None or b is None:
            continue
        distances[name] = math.inf
        if a.shape == b.shape and np.isfinite(a).all() and np.isfinite(b).all():
            rounding = 1e-12 * float(np.abs(a).max(initial=0.0)) * math.sqrt(a.size)
            far = float(np.linalg.norm(a - b)) - rounding
            distances[name] = max(0.0, far) / claimed.sensitivity
    return distances


def _several(subject: AdapterSubject, fingerprints: Fingerprints, base: Data) -> Iterator[Check]:
    """Test that several huge units move values by as many sensitivities, at most."""
    count = min(_SEVERAL, subject.claim.units)
    if count < 2:
        return
    seed = fingerprints.seeds[0] if fingerprints.seeds else subject.new_seed()
    huge, none = base, base
    direction = subject.direction()
    for unit in range(count):
        huge = subject.set_unit(huge, unit, _HUGE * subject.clip_norm * direction)
        none = subject.set_unit(none, unit, subject.quiet_vector)
    members = range(subject.claim.units)
    try:
        first, second = (subject.run(seed, [data], members)[0] for data in (huge, none))
    except RoundRaised:
        return  # the check of a single huge unit says so
    for key, distance in _distances(first, second).items():
        yield Check(
            "sensitivity", f"{key}: {count} {subject.claim.unit}s huge",
            f"{distance:.4g} of the sensitivity", f"at most {count}", passed=distance <= count + _ROUNDING,
            note=f"{count} units move {key} by {distance:.4g} times the sensitivity of one",
        )  # fmt: skip
