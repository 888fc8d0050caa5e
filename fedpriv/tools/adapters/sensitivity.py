"""Tests of how far one unit moves what leaves: huge, opposite, not a number, in one number alone, absent.

Two runs with the same seed differ by the unit alone, so the distance of what leaves is the unit's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.tools.adapters.members import Fingerprints, single, spread
from fedpriv.tools.adapters.noise import NoiseRuns
from fedpriv.tools.adapters.process import RoundRaised
from fedpriv.tools.adapters.subject import AdapterSubject, Data, RoundSeen
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.table import Check

_UNITS = 5
_ROUNDING = 1e-4  # of code in single precision
_HUGE = 1e6
ALMOST_ZERO = "almost zero"
_ROUND = "the round"
_ALL_OPPOSITE = "opposite to all others"
_SEVERAL = 3
_LEAST_NOISE = 1e-6  # level, in claimed standard deviations, from which on there is noise
_SEEDS = 40  # of rounds in which a unit is absent


def checks(noise_runs: NoiseRuns, fingerprints: Fingerprints) -> Iterator[Check]:
    """Yield a check for each way in which a unit was replaced: the worst distance of any unit tried."""
    subject = noise_runs.subject
    distances: dict[tuple[str, str], tuple[float, str]] = {}
    base = subject.ordinary()
    claim, members = subject.claim, range(subject.claim.units)
    # A unit can be absent where nobody samples, or where fedpriv says who takes part.
    removes = claim.neighbours == ADD_OR_REMOVE and claim.units > 1
    levels = None
    if removes and (claim.law.whole or subject.chooses_members):
        levels = _noise_levels_without(subject)
    comparable = levels is not None
    if removes and (levels is None or subject.chooses_members):
        yield from _noise_without(noise_runs)
        yield from _others_without(subject, fingerprints)
    elif levels is not None:
        yield from (_noise_level(subject, name, ratio) for name, ratio in levels.items())
    for unit, seed in _tried(subject, fingerprints):
        variations = _variations(subject, base, unit)
        seen = subject.runs([(seed, [data]) for data in variations.values()], members)
        answers: dict[str, RoundSeen | str] = {
            name: str(rounds) if isinstance(rounds, RoundRaised) else rounds[0]
            for name, rounds in zip(variations, seen, strict=True)
        }
        compared = [*_compared(subject, answers, unit)]
        if comparable:
            compared += _absent(subject, unit, seed, base, answers)
        for name, key, distance, note in compared:
            if distance > distances.get((name, key), (-1.0, ""))[0]:
                distances[name, key] = distance, note
    for (name, key), (distance, note) in distances.items():
        yield Check(
            "sensitivity", f"{key}: a {subject.claim.unit} {name}", _words(key, distance),
            "at most 1", passed=distance <= 1 + _ROUNDING, note=note, of=f"{key}: a {subject.claim.unit}",
        )  # fmt: skip
    far = any(name == "absent" and d > 1 + _ROUNDING for (name, _), (d, _) in distances.items())
    if far and not subject.chooses_members:
        # The weights of the others explain the distance. They are no verdict: a sum that is clipped as well
        # changes them, and moves by no more than one unit.
        yield from _others_without(subject, fingerprints)
    yield from _several(subject, fingerprints, base)


def _words(key: str, distance: float) -> str:
    # All distances have one format: the table shows the largest text of several rows.
    return "stops" if key == _ROUND else f"{distance:.4f} of the sensitivity"


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


def _answer(
    subject: AdapterSubject, seed: int, data: Data, members: Sequence[int]
) -> RoundSeen | str:
    """Return what the observer sees of one round, or the sentence of the exception that it raised."""
    try:
        return subject.run(seed, [data], members)[0]
    except RoundRaised as error:
        return str(error)


_Found = tuple[str, str, float, str]
"""Variation, value, distance ÷ sensitivity, sentence."""


def _compared(
    subject: AdapterSubject, answers: Mapping[str, RoundSeen | str], unit: int
) -> Iterator[_Found]:
    """Compare the variations of one unit: each with each where units are replaced, else with almost zero."""
    others = list(answers) if subject.claim.neighbours == REPLACE_ONE else [ALMOST_ZERO]
    for name in answers:
        for other in others:
            if other != name:
                yield from _pair(subject, answers, unit, name, other)


def _pair(
    subject: AdapterSubject,
    answers: Mapping[str, RoundSeen | str],
    unit: int,
    name: str,
    other: str,
) -> Iterator[_Found]:
    claim, answer, reference = subject.claim, answers[name], answers[other]
    if isinstance(answer, str):
        note = f"the round stops if {claim.unit} {unit} is {name}, which tells of it: {answer}"
        yield name, _ROUND, math.inf, note
        return
    if isinstance(reference, str):
        return
    for key, distance in _distances(answer, reference).items():
        if (
            other == ALMOST_ZERO
            and claim.neighbours != REPLACE_ONE
            and answer.values[key].shape[-1:] != (claim.size,)
        ):
            # Both may be counted, unlike a unit that is absent: they are two sensitivities apart.
            distance /= 2
        note = (
            f"{key} moves by {distance:.4g} times its sensitivity if {claim.unit} {unit} is {name} instead "
            f"of {other}"
        )
        yield name, key, distance, note


def _noise_levels_without(subject: AdapterSubject) -> dict[str, float] | None:
    """Return the level of the noise without one unit ÷ that with it, of values as long as an upload.

    Both runs have the same seed. Where noise is drawn in another order, a run without a unit cannot be
    compared with one that has it, and None is returned. A factor is kept, because it tells of the unit.
    """
    seed, unit = subject.new_seed(), subject.claim.units - 1
    first = _answer(subject, seed, subject.quiet, range(unit + 1))
    second = _without(subject, seed, subject.quiet, unit)
    if isinstance(first, str) or isinstance(second, str):
        return {}  # the comparison tells of it
    levels = {}
    for name, charged in first.charged.items():
        values = (seen.values.get(name, np.zeros(0)).reshape(-1) for seen in (first, second))
        a, b = values
        if len(a) != len(b):
            return None
        level, without = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        if len(a) > 1 and a @ b < 0.999 * level * without:
            return None
        # Without noise, what is left of the data would be compared.
        if len(a) == subject.claim.size and level > _LEAST_NOISE * charged.std * math.sqrt(len(a)):
            levels[name] = without / level
    return levels


def _noise_level(subject: AdapterSubject, name: str, ratio: float) -> Check:
    """Return the check of the noise of one seed, with and without a unit."""
    unit = subject.claim.unit
    return Check(
        "sensitivity", f"{name}: noise with a {unit} absent", f"{ratio:.4f} (the same seed)", "1",
        passed=abs(ratio - 1.0) <= _ROUNDING, note=_tells_of_it(name, unit, ratio),
    )  # fmt: skip


def _tells_of_it(name: str, unit: str, ratio: float) -> str:
    return (
        f"without a {unit} the noise of {name} has {ratio:.4g} times the standard deviation with it, which "
        f"tells of the {unit}: does the denominator count the {unit}s that are there?"
    )


def _noise_without(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Test the level of the noise of runs in which the data of one unit are absent.

    A denominator that counts the units shows in it. The level is compared with that of runs in which the
    unit is there.
    """
    subject = noise_runs.subject
    unit = subject.claim.unit
    try:
        runs = NoiseRuns(subject, absent=subject.claim.units - 1)
    except RoundRaised as error:
        yield Check("sensitivity", f"a {unit} absent", f"skipped: {error}", "-")
        return
    for name in runs.names():
        values, there = runs.standardised(name), noise_runs.standardised(name)
        if values.shape[-1] != subject.claim.size:
            continue  # a count varies with the members
        ratio, p = statistics.compared_spreads(values, there)
        yield Check(
            "sensitivity", f"{name}: noise with a {unit} absent",
            f"{ratio:.4f} ({values.size:,} numbers)", "1", p, weight=0.5,
            note=_tells_of_it(name, unit, ratio),
        )  # fmt: skip


def _others_without(subject: AdapterSubject, fingerprints: Fingerprints) -> Iterator[Check]:
    """Compare the weights of all other units with what they are where the data of one unit are absent."""
    if fingerprints.name is None or fingerprints.unreadable:
        return
    unit = subject.claim.unit
    name, last = f"{fingerprints.name}: weights with a {unit} absent", subject.claim.units - 1
    worlds = [subject.without(data, last) for data in (subject.fingerprints(), subject.quiet)]
    seeds = [subject.new_seed() for _ in range(_SEEDS)]
    answers = subject.runs([(seed, [data]) for seed in seeds for data in worlds])
    rounds = [a[0] for a in answers if not isinstance(a, RoundRaised)]
    if len(rounds) < len(answers):
        yield Check("sensitivity", name, "skipped: a round stops", "-")
        return
    shares = [fingerprints.shares_of(*rounds[i : i + 2]) for i in range(0, len(rounds), 2)]
    there, without = single(np.abs(fingerprints.shares)), single(np.abs(np.stack(shares)))
    if max(spread(there), spread(without)) > _ROUNDING:
        yield Check("sensitivity", name, "skipped: weights vary with who takes part", "-")
        return
    there, without = there.max(axis=0), without.max(axis=0)
    seen = (there > 0) & (without > 0)
    changes = np.abs(without - there)[seen]
    # Those that were not seen in both worlds are taken to change as the others do.
    moved = float(there.max() + (last * changes.mean() if changes.size else 0.0))
    yield Check(
        "sensitivity", name, f"{moved:.4g} of the sensitivity", "at most 1",
        passed=moved <= 1 + 10 * _ROUNDING,
        note=f"without a {unit} all others have another weight, which moves {fingerprints.name} by up to "
        f"{moved:.4g} times its sensitivity: does the denominator count the {unit}s that are there?",
    )  # fmt: skip


def _without(subject: AdapterSubject, seed: int, data: Data, unit: int) -> RoundSeen | str:
    """Return what the observer sees of a round in which one unit is absent."""
    members = range(subject.claim.units)
    if subject.chooses_members:
        return _answer(subject, seed, data, [*members[:unit], *members[unit + 1 :]])
    return _answer(subject, seed, subject.without(data, unit), members[:-1])


def _absent(
    subject: AdapterSubject, unit: int, seed: int, base: Data, answers: dict[str, RoundSeen | str]
) -> list[_Found]:
    """Compare a unit with its absence: in all its variations, and against all others, which are alike.

    What depends on the number of units, such as a mean over those that are there, shows in the latter.
    """
    direction, aligned = subject.direction(), subject.quiet
    for other in range(subject.claim.units):
        length = -_HUGE if other == unit else 1 - 1e-9
        aligned = subject.set_unit(aligned, other, length * subject.clip_norm * direction)
    against = {
        "absent": _without(subject, seed, aligned, unit),
        _ALL_OPPOSITE: _answer(subject, seed, aligned, range(subject.claim.units)),
    }
    pairs = [*_pair(subject, against, unit, "absent", _ALL_OPPOSITE)]
    if subject.chooses_members:
        answers["absent"] = _without(subject, seed, base, unit)
        for name in answers:
            if name != "absent":
                pairs += _pair(subject, answers, unit, name, "absent")
    return pairs


def _distances(first: RoundSeen, second: RoundSeen) -> dict[str, float]:
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
    seed, units = subject.new_seed(), list(range(subject.claim.units))[:_SEVERAL]
    if fingerprints.seeds and not subject.chooses_members:
        seed, units = fingerprints.most_members(_SEVERAL)
    count = len(units)
    if count < 2:
        return
    huge, none = base, base
    direction = subject.direction()
    for unit in units:
        huge = subject.set_unit(huge, unit, _HUGE * subject.clip_norm * direction)
        none = subject.set_unit(none, unit, subject.quiet_vector)
    members = range(subject.claim.units)
    answers = {
        "huge": _answer(subject, seed, huge, members),
        ALMOST_ZERO: _answer(subject, seed, none, members),
    }
    for _, key, distance, _ in _pair(subject, answers, 0, "huge", ALMOST_ZERO):
        if math.isfinite(distance):  # else, the check of a single huge unit tells of it
            yield Check(
                "sensitivity", f"{key}: {count} {subject.claim.unit}s huge",
                f"{distance:.4g} of the sensitivity", f"at most {count}",
                passed=distance <= count + _ROUNDING,
                note=f"{count} units move {key} by {distance:.4g} times the sensitivity of one",
            )  # fmt: skip
