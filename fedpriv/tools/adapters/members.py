"""Tests of who takes part, read from what leaves.

Each unit's upload lies along a coordinate of its own. Two runs with the same seed, one on these uploads and
one on quiet data, differ by the contributions of the members alone: the noise is the same. Membership is
thereby never reported by the adapter itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import special, stats

from fedpriv.tools.adapters.noise import NoiseRuns
from fedpriv.tools.adapters.subject import AdapterSubject, RoundSeen
from fedpriv.tools.verify import sampling, statistics
from fedpriv.tools.verify.table import Check

_SEEDS, _LATER = 200, 60
_FAR_CALLS, _MOST_ROUNDS = 600, 1000  # of runs to late rounds
_NUMBERS, _UNITS = 400, 200  # of noise and units whose chances are compared
_ROUNDING = 1e-4  # of code in single precision
_FEWEST = 4.0  # variance of a membership, summed over rounds, that is compared with noise
_SAME = 0.05  # relative difference of a level of noise and a weight that one factor explains
_LEAST = 1e-3  # share of its allowance from which on a unit is a member


class Fingerprints:
    """Contributions of all units in rounds of many seeds.

    Args:
        noise_runs: The runs on quiet data.

    Attributes:
        name: The value that uploads are read from; None where no value has their length.
        seeds: Seed of each round that was read.
        rounds: Round of each.
        shares: Contribution of each unit ÷ what a unit may add [rounds read, units].
        noise: Numbers of noise in standard deviations, of each round that was read [rounds read, numbers].
        rest: Largest difference, in standard deviations, in numbers that no upload has.
        moved: By value: largest distance ÷ (two contributions of each member).
        failure: Why nothing could be read, in words.
    """

    def __init__(self, noise_runs: NoiseRuns):
        subject = noise_runs.subject
        self.subject = subject
        size = subject.claim.size
        lasting = [n for n in noise_runs.names() if _rows(noise_runs.runs[0][0], n, size)]
        self.name = lasting[0] if lasting else None
        self.seeds: list[int] = []
        self.rounds: list[int] = []
        self.rest = 0.0
        self.moved: dict[str, float] = {}
        if self.name is None:
            return
        data, quiet, last = subject.fingerprints(), subject.quiet, subject.rounds - 1
        read = [(seed, 0) for seed in noise_runs.seeds[:_SEEDS]]
        if last > 0:
            read = [(seed, t) for seed, _ in read[:_LATER] for t in (0, last)] + read[_LATER:]
        # Both runs choose their members by themselves, by the same seed.
        far = min(subject.claim.rounds, _MOST_ROUNDS)
        if far > subject.rounds:
            # The last round, and one at random between, of a few runs.
            between = int(subject.random.integers(subject.rounds, far))
            for seed in noise_runs.seeds[: max(2, min(10, _FAR_CALLS // (4 * far)))]:
                read += [(seed, t) for t in sorted({between, far - 1})]
        pairs = [(seed, [*[quiet] * t, upload]) for seed, t in read for upload in (data, quiet)]
        runs = subject.all_runs(pairs)
        self.seeds = [seed for seed, _ in read]
        self.rounds = [t for _, t in read]
        shares = [
            self.shares_of(first[-1], second[-1])
            for first, second in zip(runs[::2], runs[1::2], strict=True)
        ]
        self.shares = np.stack(shares)
        left = [(r[-1].values[self.name], r[-1].charged[self.name].std) for r in runs[1::2]]
        self.noise = np.stack([value.reshape(-1)[:_NUMBERS] / std for value, std in left])

    def shares_of(self, with_data: RoundSeen, without: RoundSeen) -> np.ndarray:
        """Return the contribution of each unit, in units of what it may add."""
        subject = self.subject
        assert self.name is not None
        claimed = with_data.charged[self.name]
        size = subject.claim.size
        difference = with_data.rows(self.name, size) - without.rows(self.name, size)
        units = subject.read_units
        rest = np.abs(difference[:, units:]) / claimed.std
        if rest.size:
            self.rest = float(np.maximum(self.rest, np.nan_to_num(rest, nan=np.inf).max()))
        contribution = difference[:, :units].sum(axis=0)
        allowed = claimed.clip_norm / claimed.denominator
        shares = np.nan_to_num(contribution / allowed, nan=np.inf)
        members = max(1, int((np.abs(shares) > _LEAST).sum()))
        for name, value in with_data.charged.items():
            if name != self.name and name in with_data.values and name in without.values:
                change = np.linalg.norm(with_data.values[name] - without.values[name])
                # An upload that is clipped and one that is almost zero may both be counted, so that they
                # are two contributions apart.
                moved = float(change * abs(value.denominator) / (2 * value.clip_norm * members))
                self.moved[name] = max(self.moved.get(name, 0.0), moved)
        return shares

    @property
    def unreadable(self) -> bool:
        """True if noise changes with the data, so that differences say nothing about members."""
        return self.rest > _ROUNDING or not np.isfinite(self.shares).all()

    def seed_with(self, unit: int) -> int | None:
        """Return a seed with which a unit takes part in round 1; None if no seed is known."""
        for seed, t, shares in zip(self.seeds, self.rounds, self.shares, strict=True):
            if t == 0 and unit < len(shares) and abs(shares[unit]) > _LEAST:
                return seed
        return None

    def most_members(self, most: int) -> tuple[int, list[int]]:
        """Return the seed of the first round with the most members, and up to ``most`` of these."""
        firsts = [i for i, t in enumerate(self.rounds) if t == 0]
        members = [np.flatnonzero(np.abs(self.shares[i]) > _LEAST).tolist() for i in firsts]
        largest = max(range(len(firsts)), key=lambda i: len(members[i]))
        return self.seeds[firsts[largest]], members[largest][:most]


def _rows(seen: RoundSeen, name: str, size: int) -> bool:
    return seen.values[name].shape[-1:] == (size,)


def checks(fingerprints: Fingerprints) -> Iterator[Check]:
    """Yield the checks of members, of their weights and of what depends on them."""
    subject = fingerprints.subject
    kind = "lots" if subject.per_record else "cohorts"
    if fingerprints.name is None:
        reason = f"no value has the {subject.claim.size} numbers of an upload"
        if subject.claim.law.whole:
            yield Check("sampling", kind, f"skipped: {reason}", "-")
            return
        # Sampling makes ε smaller, so it must not be believed.
        yield Check(
            "sampling", kind, f"not tested: {reason}", "-", passed=False,
            note=f"{subject.claim.sampling} is claimed, and who takes part cannot be read: {reason}; let "
            "round return values of that length, or claim sampling none",
        )  # fmt: skip
        return
    yield Check(
        "noise", "the same with other data", f"differs by {fingerprints.rest:.1e} std", "0",
        passed=fingerprints.rest <= _ROUNDING,
        note="with the same seed but other data, numbers that no upload has are different: the noise, or "
        "who takes part, depends on the data",
    )  # fmt: skip
    if fingerprints.unreadable:
        yield Check("sampling", kind, "skipped: noise changes with the data", "-")
        return
    yield from _weights(fingerprints)
    lots = _lots(fingerprints)
    sizes = {len(lot.members) for lot in lots}
    for check in sampling.checks(kind, lots, _laws(subject), subject.seed):
        if check.name == f"{kind}: sizes" and len(sizes) == 1 and subject.claim.sample_size is None:
            reason = f"all {kind} have {min(sizes)} members: are they of a fixed size, or shuffled?"
            check = replace(check, note=reason)
        yield check
    if not subject.claim.law.whole:
        yield _noise_of_members(fingerprints, kind)


def _noise_of_members(fingerprints: Fingerprints, kind: str) -> Check:
    """Test that noise does not tell who takes part, as if both had one source.

    For unit u and number j, Σ (m_u − mean) x_j / √Σ (m_u − mean)² over the rounds is a standard normal if the
    noise x is independent of the membership m. The same is done with |x| and with the length of all x, made
    normal, and with the number of members.
    """
    # One round of each seed: those of the same seed are not new.
    firsts = np.array([t == 0 for t in fingerprints.rounds])
    counts = (np.abs(fingerprints.shares) > _LEAST).sum(axis=1)
    members = (np.abs(fingerprints.shares[firsts]) > _LEAST).astype(float)[:, :_UNITS]
    members = np.concatenate([members, counts[firsts, None]], axis=1)
    members -= members.mean(axis=0)
    members = members[:, (members**2).sum(axis=0) >= _FEWEST]
    noise = fingerprints.noise[firsts]
    noise = noise - noise.mean(axis=0)
    scale = float(np.sqrt(np.mean(noise**2)))
    noise = noise / scale if scale > 0 else noise
    sizes = special.ndtri(np.clip(2.0 * special.ndtr(np.abs(noise)) - 1.0, 1e-16, 1 - 1e-16))
    squares = stats.chi2.cdf((noise**2).sum(axis=1), noise.shape[1])
    lengths = special.ndtri(np.clip(squares, 1e-16, 1 - 1e-16))
    both = np.concatenate([noise, sizes, lengths[:, None]], axis=1)
    alike = members.T @ both / np.sqrt((members**2).sum(axis=0))[:, None]
    worst = np.unravel_index(int(np.abs(alike).argmax()), alike.shape) if alike.size else (0, 0)
    cause = "members and noise are made of the same random numbers"
    if worst[1] == both.shape[1] - 1:
        cause = "its level depends on them (does each member add a share of the noise?)"
    alike = alike.reshape(-1) if alike.size else np.zeros(1)
    return Check(
        "independence", f"{kind} and noise", f"largest {np.abs(alike).max():.2f} std of {alike.size:,}",
        "normal", statistics.smallest(statistics.normal_p(alike)),
        note=f"the noise tells who takes part: {cause}",
    )  # fmt: skip


def _weights(fingerprints: Fingerprints) -> Iterator[Check]:
    """Test how far each unit moves the sum, and whether that depends on who else takes part."""
    shares = np.abs(fingerprints.shares)
    unit_word = fingerprints.subject.claim.unit
    worst = int(np.argmax(shares.max(axis=0)))
    largest = float(shares.max())
    yield Check(
        "sensitivity", f"worst {unit_word} of {shares.shape[1]}, by its weight", f"{largest:.4g}",
        "at most 1", passed=largest <= 1 + _ROUNDING,
        note=f"{unit_word} {worst} moves {fingerprints.name} by {largest:.4g} times clip norm ÷ denominator",
    )  # fmt: skip
    for name, moved in fingerprints.moved.items():
        yield Check(
            "sensitivity", f"{name}: of all members", f"{moved:.4g}", "at most 1",
            passed=moved <= 1 + _ROUNDING,
            note=f"members move {name} by {moved:.4g} times twice its clip norm each",
        )  # fmt: skip
    # A weight that varies is no fault by itself: a clipped mean, for example, scales all members alike.
    varies = spread(single(shares))
    if varies > _ROUNDING:
        cause = _cause(shares)
    else:
        level = float(np.std(fingerprints.noise - fingerprints.noise.mean(axis=0)))
        assert fingerprints.name is not None
        denominator = fingerprints.subject.claim.values[fingerprints.name].denominator
        cause = other_denominator(fingerprints.name, unit_word, denominator, level, largest)
    yield Check(
        "sensitivity", f"a {unit_word}'s weight, whoever else takes part", f"varies by {100 * varies:.3g} %",
        "-", note=cause,
    )  # fmt: skip


def other_denominator(name: str, unit: str, denominator: float, level: float, weight: float) -> str:
    """Return the sentence that another denominator explains noise and weights alike; empty if it does not.

    Args:
        name: Name of the value.
        unit: Word for a unit.
        denominator: The claimed denominator.
        level: Standard deviation of the noise ÷ the claimed one.
        weight: Weight of a unit ÷ the claimed one.
    """
    if not (weight > 0 and abs(level / weight - 1.0) < _SAME and abs(weight - 1.0) > _SAME):
        return ""
    question = f"is {name} a mean? " if weight < 1 and denominator == 1 else ""
    return (
        f"the noise of {name} and the weight of a {unit} are both {weight:.3g} times what is claimed: "
        f"{question}claim denominator={denominator / weight:.4g}"
    )


def _cause(shares: np.ndarray) -> str:
    """Return a likely reason why weights vary with who takes part."""
    sums, norms = shares.sum(axis=1), np.linalg.norm(shares, axis=1)
    several = (shares > _LEAST).sum(axis=1) > 1
    if not several.any():
        return ""
    if np.ptp(sums[several]) <= 1e-3 * sums[several].max():
        return (
            "the weights of members add up to the same: the sum is divided by the realised cohort"
        )
    if np.ptp(norms[several]) <= 1e-3 * norms[several].max():
        return "members together have the same norm: their sum or mean is clipped, and not each of them"
    return ""


def single(shares: np.ndarray) -> np.ndarray:
    """Return shares with those of units that were drawn several times divided by that number."""
    times = _times(shares)
    return np.where(times > 0, shares / np.maximum(times, 1), 0.0)


def _times(shares: np.ndarray) -> np.ndarray:
    """Return how often each unit was drawn [rounds, units].

    A unit's share, relative to its smallest, is compared with that of the others in the round.
    """
    shares = np.abs(shares)
    present = shares > _LEAST
    least = np.where(present, shares, np.inf).min(axis=0)
    relative = np.where(present, shares / np.where(np.isfinite(least), least, 1.0), np.nan)
    times = np.zeros(shares.shape, dtype=int)
    for row, values in enumerate(relative):
        if present[row].any():
            # Weights that vary a little with the number of members are no second draw.
            several = np.rint(values / np.nanmin(values))
            times[row] = np.nan_to_num(np.maximum(several, 1.0))
    return times


def spread(shares: np.ndarray) -> float:
    """Return the largest relative range of a unit's share over the rounds in which it takes part."""
    present = shares > _LEAST
    low = np.where(present, shares, np.inf).min(axis=0)
    high = np.where(present, shares, -np.inf).max(axis=0)
    seen = np.isfinite(low) & np.isfinite(high)
    return float((high[seen] / low[seen] - 1.0).max(initial=0.0))


def _lots(fingerprints: Fingerprints) -> list[sampling.Lot]:
    """Return the lots that were read: one a round, or one for each client where records are sampled."""
    subject = fingerprints.subject
    times = _times(fingerprints.shares)
    lots = []
    units = subject.read_units
    each = subject.claim.records if subject.per_record else units
    for when, row in enumerate(times):
        for who in range(units // each):
            part = row[who * each : (who + 1) * each]
            lots.append(sampling.Lot(who, when, each, np.repeat(np.arange(each), part)))
    return lots


def _laws(subject: AdapterSubject) -> dict[int, sampling.Law]:
    owners = subject.read_units // (subject.claim.records if subject.per_record else 1)
    return dict.fromkeys(range(max(1, owners) if subject.per_record else 1), subject.claim.law)
