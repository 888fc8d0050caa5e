"""The noise of an adapter: its size, shape, directions and independence, on quiet data.

All runs have the same data and other seeds. Helmert's contrasts of what leaves in round t over the runs are
independent samples of the noise of that round, whatever constant is below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import stats

from fedpriv.tools.adapters.claim import AdapterClaim
from fedpriv.tools.adapters.process import AdapterError
from fedpriv.tools.adapters.subject import RUNS, AdapterSubject, RoundSeen
from fedpriv.tools.verify import directions, statistics
from fedpriv.tools.verify import noise as own_noise
from fedpriv.tools.verify.probes import ReleasePosition
from fedpriv.tools.verify.table import FALSE_ALARM, Check

_RANDOM_DIRECTIONS = 64
_COUNTED = 2_000  # numbers whose distinct values are counted
_GRID = 2.0**-10  # coarsest grid, in standard deviations, that is allowed
_WEIGHT = 0.5
_MORE_IS_RIGHT = 1e6
_NO_NOISE = (
    1e-6  # level, in claimed standard deviations, below which there is no noise to standardise
)
_FEWEST_NUMBERS = 8  # of a value of which zeros are no coincidence
_MOST_ROUNDS, _CALLS = 1000, 1600  # of the runs of all rounds
_FEWEST_RUNS, _MOST_RUNS = 3, 10
_KEPT = 10_000_000  # numbers of a run of all rounds


class NoiseRuns:
    """Runs on quiet data under many seeds.

    Args:
        subject: The adapter.
        count: Number of runs.
        absent: Unit whose data are absent in all of them, which is the last; None: all are there.
        rounds: Number of rounds of a run; None: those of the subject.

    Attributes:
        rounds: Number of rounds of a run.
        seeds: Seed of each run. Every second one is the seed before it plus one, because code that adds the
            round to the seed makes the same noise in neighbouring runs.
        runs: What left in each round of each run.
    """

    def __init__(
        self,
        subject: AdapterSubject,
        count: int = RUNS,
        absent: int | None = None,
        rounds: int | None = None,
    ):
        self.subject, self.rounds = subject, rounds or subject.rounds
        self.members = range(0, subject.claim.units - (absent is not None), 2)
        firsts = [subject.new_seed() for _ in range(0, count, 2)]
        self.seeds = [seed + more for seed in firsts for more in (0, 1)][:count]
        units = subject.quiet if absent is None else subject.without(subject.quiet, absent)
        data = [units] * self.rounds
        self.runs = subject.all_runs([(seed, data) for seed in self.seeds], self.members)
        if absent is not None:
            return  # fewer units may leave other shapes
        for run in self.runs:
            for t, seen in enumerate(run):
                subject.steady(seen, t + 1)

    def names(self) -> list[str]:
        """Return the names of values that are claimed to have noise and that left in every round."""
        seen = [s.values for run in self.runs for s in run]
        return [n for n in self.subject.claim.values if all(n in values for values in seen)]

    def standardised(self, name: str) -> np.ndarray:
        """Return Helmert's contrasts [rounds, runs - 1, rows, d], in claimed standard deviations."""
        size = self.subject.claim.size
        rounds = []
        for t in range(self.rounds):
            rows = [run[t].rows(name, size) for run in self.runs]
            # Where the adapter charges each round for itself, each run has its own standard deviation.
            stds = [run[t].charged[name].std for run in self.runs]
            rounds.append(contrasts(np.stack(rows), np.array(stds)))
        return np.stack(rounds)

    def first_round(self, name: str) -> np.ndarray:
        """Return what left in the first rounds, minus what left in that of the first run [runs - 1, n]."""
        rows = np.stack([run[0].values[name].reshape(-1) for run in self.runs])
        return (rows[1:] - rows[0]) / self.runs[0][0].charged[name].std


def contrasts(rows: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """Return Helmert's contrasts of rows [runs, ...] whose noise has the given standard deviations."""
    result = []
    mean, weight = (
        rows[0].copy(),
        stds[0] ** -2.0,
    )  # weighted by precision, so that contrasts are independent
    for row, std in zip(rows[1:], stds[1:], strict=True):
        result.append((row - mean) / math.sqrt(std**2 + 1.0 / weight))
        weight += std**-2.0
        mean += (row - mean) * std**-2.0 / weight
    return np.stack(result)


def checks(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Yield the checks of the noise of each value."""
    for name in noise_runs.names():
        if (without := _without_noise(noise_runs, name)) is not None:
            yield without
        for check in _of_value(noise_runs, name):
            yield replace(check, note=_hinted(noise_runs.subject.claim, check))
    runs = noise_runs.runs
    if (every := _every_round(noise_runs.subject)) is not None:
        runs = runs + every.runs
        for name in every.names():
            yield _worst_round(every, name, _wrong_level(noise_runs, name))
    yield _repeats(runs, noise_runs.names())
    names = noise_runs.names()
    if len(names) > 1:
        # The first number of each value, as a vector over the runs.
        vectors = np.stack([noise_runs.standardised(name)[0, :, 0, 0] for name in names])
        shared = _shared(vectors)
        p = statistics.common_p(shared)
        note = f"the noise of {', '.join(names)} is not independent"
        yield own_noise.common_noise("over values", shared, p, note)


def finite(noise_runs: NoiseRuns) -> Check | None:
    """Look for rounds that leave no numbers, with data that are almost zero; None if there is no such round.

    Raises:
        AdapterError: No round leaves numbers.
    """
    rounds = [seen for run in noise_runs.runs for seen in run]
    names = noise_runs.names()
    bad = {n: sum(not np.isfinite(s.values[n]).all() for s in rounds) for n in names}
    for name in names:
        if bad[name] == len(rounds):
            file = noise_runs.subject.process.file.name
            raise AdapterError(
                f"{file}: {name} has numbers that are not finite (nan, infinite) in every round, although "
                "all data are almost zero"
            )
    worst = max(names, key=lambda name: bad[name], default="")
    if not worst or not bad[worst]:
        return None
    return Check(
        "noise", f"{worst}: finite numbers", f"none in {bad[worst]:,} of {len(rounds):,} rounds", "0",
        passed=False, note=f"{worst} is not finite in some rounds, although all data are almost zero, which "
        "may tell who takes part (an empty cohort?); nothing else was tested",
    )  # fmt: skip


def _without_noise(noise_runs: NoiseRuns, name: str) -> Check | None:
    """Look for rounds that leave exact zeros; None if there is no such round, or no other one."""
    values = [seen.values[name] for run in noise_runs.runs for seen in run]
    zeros = sum(not value.any() for value in values)
    if values[0].size < _FEWEST_NUMBERS or not 0 < zeros < len(values):
        return None
    return Check(
        "noise", f"{name}: rounds without noise", f"{zeros:,} of {len(values):,}", "0", passed=False,
        note=f"some rounds leave exact zeros of {name}: if there is no noise where nobody takes part, that "
        "tells of it",
    )  # fmt: skip


def _every_round(subject: AdapterSubject) -> NoiseRuns | None:
    """Run a few runs of all rounds, up to a limit; None where all other runs are as long."""
    numbers = sum(value.size for value in subject.quiet)
    rounds = min(subject.claim.rounds, _MOST_ROUNDS, max(subject.rounds, _KEPT // numbers))
    if rounds <= subject.rounds:
        return None
    count = max(_FEWEST_RUNS, min(_MOST_RUNS, _CALLS // rounds))
    return NoiseRuns(subject, count, rounds=rounds)


def _worst_round(every: NoiseRuns, name: str, wrong_level: float | None) -> Check:
    """Test the level of the noise in each round, of which one without noise is lost in an average."""
    values, claim = every.standardised(name) / (wrong_level or 1.0), every.subject.claim
    sums: dict[int, list[float]] = {}
    for t, numbers in enumerate(values):
        statistics.add_squares(sums, t + 1, numbers)
    squares, counts = np.array(list(sums.values())).T
    more = claim.least or _moves(every.subject, values.shape[-1])
    law = stats.chi2(counts)
    p_values = np.nan_to_num(law.cdf(squares) if more else statistics.squares_p(squares, counts))
    worst = int(np.argmin(p_values))
    ratio = math.sqrt(squares[worst] / counts[worst])
    part = "all" if len(sums) == claim.rounds else f"the first {len(sums):,} of"
    check = Check(
        "noise", f"{name}: worst round of {part} {claim.rounds:,}", f"{ratio:.3f} (round {worst + 1})",
        "at least 1" if more else "1", statistics.smallest(p_values),
        note=f"in round {worst + 1} the noise of {name} has {ratio:.4g} times the standard deviation that is "
        "claimed",
    )  # fmt: skip
    return check if wrong_level is None else _of_the_whole(check)


def _wrong_level(noise_runs: NoiseRuns, name: str) -> float | None:
    """Return the level of the noise, in claimed standard deviations, where it is wrong as a whole; else None.

    The other checks then divide the noise by this level: one wrong scale is one failure, and a second fault
    still shows.
    """
    values = noise_runs.standardised(name)
    level = float(np.sqrt(np.mean(values**2)))
    subject = noise_runs.subject
    law, squares = stats.chi2(values.size), values.size * level**2
    more = subject.claim.least or _moves(subject, values.shape[-1])
    p = law.cdf(squares) if more else statistics.squares_p(squares, values.size)
    return level if math.isfinite(level) and level > _NO_NOISE and p < FALSE_ALARM else None


def _of_the_whole(check: Check) -> Check:
    """Return the check of a part of the noise, which was divided by the level of all noise."""
    note = check.note.replace("that is claimed", "of the whole")
    return replace(check, expected=f"{check.expected} (of the whole)", note=note)


def _moves(subject: AdapterSubject, width: int) -> bool:
    """Return whether a value varies with the members, as a count does whose cohorts are secret."""
    return not (subject.claim.law.whole or subject.chooses_members) and width != subject.claim.size


def _of_value(noise_runs: NoiseRuns, name: str) -> Iterator[Check]:
    subject, values = noise_runs.subject, noise_runs.standardised(name)
    rounds, count, rows, width = values.shape
    clients = np.arange(rows) if rows > 1 else np.array([-1])
    samples = [
        own_noise.NoiseSample(ReleasePosition(t, 0, name), key + 1, values[t, key], clients)
        for t in range(rounds)
        for key in range(count)
    ]
    more = _MORE_IS_RIGHT if subject.claim.least or _moves(subject, width) else 1.0
    wrong_level = _wrong_level(noise_runs, name)
    level = float(np.sqrt(np.mean(values**2)))
    none = level <= _NO_NOISE
    if wrong_level is None and (more == 1 or none):
        level = 1.0
    scaled = values / level
    scaled_samples = [replace(s, values=s.values / level) for s in samples]
    direct = scaled.reshape(-1)
    whole = next(own_noise.checks(name, samples, direct, more, []))
    # Nothing more is said of noise that is missing as a whole.
    parts = [] if none else [*own_noise.checks(name, scaled_samples, direct, more, [])][1:]
    for check in (whole, *parts):
        if more > 1 and check.expected.startswith("1 to"):
            check = replace(check, expected="at least 1")
        check = replace(
            check, name=check.name.replace("the ledger's", "claimed"), note=_claimed(check.note)
        )
        part = wrong_level is not None and ": worst " in check.name
        yield _of_the_whole(check) if part else check
    if none:
        return
    yield from own_noise.independence(name, scaled_samples)
    yield from _over_runs(name, scaled)
    yield _distinct(name, noise_runs.first_round(name))
    if width > 1:
        together = scaled.reshape(-1, width)
        yield _along(name, together, subject.random)
        yield from directions.spectrum(f"{name}: directions", [together], width, subject.random)


def _claimed(note: str) -> str:
    return note.replace("that the ledger charges", "that is claimed").replace(
        "it is charged for", "that is claimed"
    )


def _hinted(claim: AdapterClaim, check: Check) -> str:
    """Return the sentence of a check with what may be the reason that it fails."""
    note = check.note
    if check.name.startswith("std of"):
        if claim.least:
            return note.replace(
                "the standard deviation that is claimed",
                f"the least standard deviation that ε = {claim.epsilon:g} needs",
            )
        if float(check.measured.split()[0]) > 1:
            note += (
                " (more noise is no loss of privacy by itself: where it is wanted, claim epsilon and delta "
                "without noise_multiplier)"
            )
    elif check.name.endswith(": shape"):
        note += "; only Gaussian noise can be judged"
    elif check.name.endswith(": over rounds and steps"):
        note += " (leave momentum, and adding up a model, out of round: it returns what is new)"
    return note


def _over_runs(name: str, values: np.ndarray) -> Iterator[Check]:
    """Test that the noise of runs with other seeds is independent, and that of rounds for single numbers."""
    width = values.shape[2] * values.shape[3]
    flat = values.reshape(values.shape[0], values.shape[1], width)
    if width > 1:
        shared = _shared(flat[0, : min(len(flat[0]), width)])
        what = "over runs"
    elif len(flat) > 1:
        shared, what = _shared(flat[:, :, 0]), "over rounds"
    else:
        return
    note = f"the noise of {name} is not independent {what}"
    yield own_noise.common_noise(f"{name}: {what}", shared, statistics.common_p(shared), note)


def _shared(vectors: np.ndarray) -> np.ndarray:
    if not np.isfinite(vectors).all():
        return np.full(1, math.nan)
    return statistics.off_diagonal(vectors.astype(float))


def _along(name: str, values: np.ndarray, random: np.random.Generator) -> Check:
    """Test sums of squares along the mean and along random directions."""
    width = values.shape[1]
    squares: dict[str, list[float]] = {}
    statistics.add_squares(squares, "the mean", values @ np.full(width, width**-0.5))
    for i in range(_RANDOM_DIRECTIONS):
        vector = random.standard_normal(width)
        statistics.add_squares(
            squares, f"random {i + 1}", values @ (vector / np.linalg.norm(vector))
        )
    where, ratio, p = statistics.worst_spread(squares)
    note = f"along {where} the noise has {ratio:.4g} times its standard deviation"
    name = f"{name}: worst of {len(squares)} directions"
    return Check("noise", name, f"{ratio:.3f} ({where})", "1", p, weight=_WEIGHT, note=note)


def _distinct(name: str, differences: np.ndarray) -> Check:
    """Test that noise has as many values as one of a fine grid: coarse rounding shows what it hides."""
    numbers = differences.reshape(-1)[:_COUNTED]
    distinct = len(np.unique(np.round(numbers / 1e-9))) if np.isfinite(numbers).all() else 0
    coincidence = _GRID / math.sqrt(2.0 * math.pi)
    p = statistics.fewest_distinct_p(distinct, len(numbers), coincidence)
    note = (
        f"the noise of {name} is on a grid coarser than 1/{1 / _GRID:.0f} of its standard deviation"
    )
    return Check(
        "noise", f"{name}: distinct values", f"{distinct:,} of {len(numbers):,}", "nearly all", p,
        weight=_WEIGHT, note=note,
    )  # fmt: skip


def _repeats(runs: list[list[RoundSeen]], names: list[str]) -> Check:
    """Look for two rounds, of one run or of two, that left the same numbers."""
    left = [(t, n, s.values[n].tobytes()) for run in runs for t, s in enumerate(run) for n in names]
    same = len(left) - len({(name, value) for _, name, value in left})
    return Check(
        "independence", "the same noise again", f"{same:,} of {len(left):,}", "0", passed=same == 0,
        note="rounds of one run, or runs with other seeds, left exactly the same numbers: the noise does "
        "not depend on the round or on the seed, or seed + round is seeded, which two runs share (the seed "
        "is that of the run: a round must make other noise of it, for example by default_rng([seed, round]))",
    )  # fmt: skip
