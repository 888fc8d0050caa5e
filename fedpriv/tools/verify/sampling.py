"""Sampling: the lots that rounds really read, and the cohorts, against the event that is charged.

Each count becomes a standard normal by its exact law under that event
(:mod:`fedpriv.tools.verify.statistics`):

    size       of a lot
    halves     how many of a lot are in the first half, given its size
    runs       how many runs of neighbours a lot has, given its size: members of blocks come together
    rounds     how many two lots of a client have in common, in rounds up to four apart, given their sizes
    clients    how many places the lots of two clients have in common

Their sum tests the mean, their sum of squares the variance: shuffled data have lots that do not vary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event
from scipy import stats

from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.table import Check

_APART = (1, 2, 3, 4)
"""Rounds between lots that are compared."""


@dataclass(frozen=True)
class Law:
    """The sampling of a lot from ``count``: of fixed size, or each with ``rate``, cut to ``most``."""

    rate: float | None = None
    size: int | None = None
    most: int | None = None

    @property
    def whole(self) -> bool:
        return self.rate == 1.0

    def sizes(self, count: int) -> np.ndarray:
        """Return P(a lot has 0, 1, … members)."""
        if self.size is not None:
            law = np.zeros(count + 1)
            law[min(self.size, count)] = 1.0
            return law
        law = stats.binom.pmf(np.arange(count + 1), count, self.rate)
        if self.most is not None and self.most < count:
            law[self.most] += law[self.most + 1 :].sum()
            law[self.most + 1 :] = 0.0
        return law

    def part(self, count: int) -> float:
        """Return the chance of each to be in a lot."""
        law = self.sizes(count)
        return float((law * np.arange(count + 1)).sum() / max(1, count))

    def __str__(self) -> str:
        if self.size is not None:
            return f"{self.size} without replacement"
        cut = "" if self.most is None else f", at most {self.most}"
        return f"Poisson {self.rate:g}{cut}"


def law_of(event: dp_event.DpEvent) -> Law | None:
    """Return what the charged event says of the sampling; None where it is of an unknown kind."""
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return Law(rate=float(event.sampling_probability))
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
        return Law(size=int(event.sample_size))
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        return Law(rate=float(event.sampling_probability), most=int(event.truncated_batch_size))
    whole = (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent, dp_event.RandomizedResponseDpEvent)
    if isinstance(event, dp_event.ComposedDpEvent):
        inside = {law_of(part) for part in event.events}
        return inside.pop() if len(inside) == 1 else None
    return Law(rate=1.0) if isinstance(event, whole) else None


@dataclass(frozen=True)
class Lot:
    """``members``: ascending places among ``count``; ``who``: a client, or 0 for cohorts; ``when``: a number
    that grows by one from a lot to the client's next."""

    who: int
    when: int
    count: int
    members: np.ndarray


def checks(what: str, lots: list[Lot], laws: dict[int, Law], seed: int) -> Iterator[Check]:
    """Check ``what`` (lots, cohorts); ``laws``: of each of their ``who``."""
    if twice := sum(len(np.unique(lot.members)) < len(lot.members) for lot in lots):
        yield Check(
            "sampling",
            f"{what}: members",
            f"{twice} with one twice",
            "0",
            passed=False,
            note=f"one member is twice in the same of {what}",
        )
        return
    uniforms = np.random.default_rng([seed, len(lots)])
    sampled = [lot for lot in lots if not laws[lot.who].whole]
    missing = sum(len(lot.members) < lot.count for lot in lots if laws[lot.who].whole)
    if len(sampled) < len(lots):
        yield Check(
            "sampling",
            f"{what}: whole",
            f"{missing} with one missing",
            "0",
            passed=missing == 0,
            note=f"{what} of which everyone should be part leave some out",
        )
    if not sampled:
        return
    yield _sizes(what, sampled, laws, uniforms)
    telling = [lot for lot in sampled if 0 < len(lot.members) < lot.count]
    sizes = [(lot.count, len(lot.members)) for lot in telling]
    halves = [int((lot.members < lot.count // 2).sum()) for lot in telling]
    # C(c-1, r-1) C(n-c+1, r) of the C(n, c) lots of size c have r runs
    runs = [1 + int((np.diff(lot.members) > 1).sum()) for lot in telling]
    at_halves = [(count, count // 2, size) for count, size in sizes]
    at_runs = [(count, count - size + 1, size) for count, size in sizes]
    by_place = {(lot.who, lot.when): lot for lot in telling}
    who, when = sorted({lot.who for lot in sampled}), sorted({lot.when for lot in sampled})
    of_clients = [
        (by_place[one, t], by_place[other, t])
        for one, other in zip(who[::2], who[1::2], strict=False)
        for t in when
        if {(one, t), (other, t)} <= by_place.keys()
        and by_place[one, t].count == by_place[other, t].count
    ]
    yield from _both(what, "halves", [_normals(halves, at_halves, uniforms)])
    yield from _both(what, "runs", [_normals(runs, at_runs, uniforms)])
    yield from _both(what, "clients", [_in_common(of_clients, uniforms)])
    rounds = []
    for apart in _APART:  # for each distance disjoint pairs of rounds, so that they are independent
        pairs = [
            (lot, by_place[client, t + apart])
            for (client, t), lot in by_place.items()
            if t // apart % 2 == 0 and (client, t + apart) in by_place
        ]
        rounds.append(_in_common(pairs, uniforms))
    yield from _both(what, "rounds", rounds)
    yield members(what, sampled, laws)


def _sizes(
    what: str, lots: list[Lot], laws: dict[int, Law], uniforms: np.random.Generator
) -> Check:
    words = str(laws[lots[0].who])
    keys = [(laws[lot.who], lot.count) for lot in lots]
    tables = {(law, count): law.sizes(count) for law, count in dict.fromkeys(keys)}
    pairs = [
        statistics.tabulated(tables[key], np.array(len(lot.members)))
        for key, lot in zip(keys, lots, strict=True)
    ]
    below, exactly = np.array(pairs).T
    expected = sum(law.part(count) * count for law, count in keys)
    found = sum(len(lot.members) for lot in lots)
    if all(law.size is not None for law, _ in keys):
        return Check(
            "sampling",
            f"{what}: sizes",
            f"{found:,} in {len(lots):,}",
            words,
            passed=bool(exactly.min() >= 0.5),
            note=f"{what} have another size than {words}",
        )
    normals = statistics.as_normals(below, exactly, uniforms.random(len(lots)))
    spread = float(np.sqrt(np.mean(normals**2)))
    return Check(
        "sampling",
        f"{what}: sizes",
        f"{found / expected:.4f} of the rate, spread {spread:.3f}",
        f"1, 1 ({words})",
        statistics.mean_and_spread_p(normals),
        weight=3.0,
        note=f"{what} are not sampled by {words}: their sizes have {found / expected:.4g} times its mean and "
        f"{spread:.3g} times its spread",
    )


def _both(what: str, name: str, families: list[np.ndarray]) -> Iterator[Check]:
    """Test mean and spread of normals of several families, of which each is independent."""
    families = [normals for normals in families if normals.size]
    if not families:
        return
    tests = [test(own) for own in families for test in (statistics.sum_p, statistics.spread_p)]
    worst = families[int(np.argmin(tests)) // 2]
    spread, mean = float(np.sqrt(np.mean(worst**2))), float(np.mean(worst))
    yield Check(
        "sampling",
        f"{what}: {name}",
        f"mean {mean:+.3f}, spread {spread:.3f}",
        "0, 1",
        statistics.smallest(tests),
        note=f"{what} depend on each other or on places ({name})",
    )


def _normals(
    counts: list[int], parameters: list[tuple[int, int, int]], uniforms: np.random.Generator
) -> np.ndarray:
    """Return normals of hypergeometric counts (population, marked, sampled)."""
    if not counts:
        return np.zeros(0)
    law, found = stats.hypergeom(*np.array(parameters).T), np.array(counts)
    return statistics.as_normals(law.cdf(found - 1), law.pmf(found), uniforms.random(len(found)))


def _in_common(pairs: list[tuple[Lot, Lot]], uniforms: np.random.Generator) -> np.ndarray:
    counts = [len(np.intersect1d(a.members, b.members, assume_unique=True)) for a, b in pairs]
    laws = [(a.count, len(a.members), len(b.members)) for a, b in pairs]
    return _normals(counts, laws, uniforms)


def members(what: str, lots: list[Lot], laws: dict[int, Law]) -> Check:
    """Test how often each one is in a lot: binomial."""
    often: dict[int, np.ndarray] = {}
    times: dict[int, int] = {}
    for lot in lots:
        often.setdefault(lot.who, np.zeros(lot.count, dtype=int))[lot.members] += 1
        times[lot.who] = times.get(lot.who, 0) + 1
    p_values, shares = [], []
    for who, counts in often.items():
        law = stats.binom(times[who], laws[who].part(len(counts)))
        low, high = law.cdf(counts), law.sf(counts - 1)
        p_values.append(np.minimum(1.0, 2.0 * np.minimum(low, high)))
        shares.append(counts / times[who])
    every = np.concatenate(p_values)
    at = int(np.argmin(every))
    share = np.concatenate(shares)[at]
    return Check(
        "sampling",
        f"{what}: worst member of {len(every):,}",
        f"in {share:.3f} of them",
        f"{laws[lots[0].who].part(lots[0].count):.3f}",
        statistics.smallest(every),
        note=f"one member is in {share:.3g} of its {what}",
    )
