"""Statistics of lots and cohorts, tested against the sampling that is charged.

Each count becomes a standard normal by its exact law under the charged event
(:mod:`fedpriv.tools.verify.statistics`):

    sizes      number of members of a lot
    halves     number of members in the first half of the places, given the size
    runs       number of runs of neighbouring places, given the size; blocks of data have few runs
    rounds     number of common members of two lots of a client, up to four rounds apart, given the sizes
    clients    number of common places of the lots of two clients, given the sizes

The sum of the normals tests the mean. Their sum of squares tests the variance: lots of shuffled data, for
example, do not vary in size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event
from scipy import stats

from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.table import Check

_DISTANCES = (1, 2, 3, 4)
"""Distances, in rounds, of the lots that are compared."""


@dataclass(frozen=True)
class Law:
    """The sampling of a lot.

    Attributes:
        rate: Probability of each member; None where the size is fixed.
        size: Fixed size of a lot; None where members are independent.
        most: Largest size, to which larger lots are cut; None: no limit.
    """

    rate: float | None = None
    size: int | None = None
    most: int | None = None

    @property
    def whole(self) -> bool:
        """True if every lot has all members."""
        return self.rate == 1.0

    def sizes(self, count: int) -> np.ndarray:
        """Return the probabilities that a lot of ``count`` places has 0, 1, …, ``count`` members."""
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
        """Return the probability of each of ``count`` places to be in a lot."""
        law = self.sizes(count)
        return float((law * np.arange(count + 1)).sum() / max(1, count))

    def __str__(self) -> str:
        if self.size is not None:
            return f"{self.size} without replacement"
        cut = "" if self.most is None else f", at most {self.most}"
        return f"Poisson {self.rate:g}{cut}"


def law_of(event: dp_event.DpEvent) -> Law | None:
    """Return the sampling of a charged event; None where the event is of an unknown kind."""
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
    """A lot of records of a client, or a cohort of clients.

    Attributes:
        who: The client; 0 for cohorts.
        when: Number of the lot among the lots of the client.
        count: Number of places from which the lot was sampled.
        members: Sampled places, ascending.
    """

    who: int
    when: int
    count: int
    members: np.ndarray


def checks(kind: str, lots: list[Lot], laws: dict[int, Law], seed: int) -> Iterator[Check]:
    """Check lots or cohorts.

    Args:
        kind: Name of what is checked: lots or cohorts.
        lots: The lots.
        laws: The sampling that is charged, for each ``who`` of the lots.
        seed: Seed of the randomised probability integral transform.
    """
    if twice := sum(len(np.unique(lot.members)) < len(lot.members) for lot in lots):
        yield Check(
            "sampling",
            f"{kind}: members",
            f"{twice} with one twice",
            "0",
            passed=False,
            note=f"a member is twice in one of the {kind}",
        )
        return
    # Lots and cohorts get uniforms of their own for the transform to normals.
    uniforms = np.random.default_rng([seed, len(lots)])
    sampled = [lot for lot in lots if not laws[lot.who].whole]
    missing = sum(len(lot.members) < lot.count for lot in lots if laws[lot.who].whole)
    if len(sampled) < len(lots):
        yield Check(
            "sampling",
            f"{kind}: whole",
            f"{missing} with one missing",
            "0",
            passed=missing == 0,
            note=f"{kind} that should have all members leave some out",
        )
    if not sampled:
        return
    yield _sizes(kind, sampled, laws, uniforms)
    # Empty and full lots say nothing about places.
    partial_lots = [lot for lot in sampled if 0 < len(lot.members) < lot.count]
    sizes = [(lot.count, len(lot.members)) for lot in partial_lots]
    halves = [int((lot.members < lot.count // 2).sum()) for lot in partial_lots]
    # C(c-1, r-1) C(n-c+1, r) of the C(n, c) lots of size c have r runs
    runs = [1 + int((np.diff(lot.members) > 1).sum()) for lot in partial_lots]
    laws_of_halves = [(count, count // 2, size) for count, size in sizes]
    laws_of_runs = [(count, count - size + 1, size) for count, size in sizes]
    lot_at = {(lot.who, lot.when): lot for lot in partial_lots}
    who, when = sorted({lot.who for lot in sampled}), sorted({lot.when for lot in sampled})
    client_pairs = [
        (lot_at[first, t], lot_at[second, t])
        for first, second in zip(who[::2], who[1::2], strict=False)
        for t in when
        if {(first, t), (second, t)} <= lot_at.keys()
        and lot_at[first, t].count == lot_at[second, t].count
    ]
    yield from _both(kind, "halves", [_normals(halves, laws_of_halves, uniforms)])
    yield from _both(kind, "runs", [_normals(runs, laws_of_runs, uniforms)])
    yield from _both(kind, "clients", [_in_common(client_pairs, uniforms)])
    rounds = []
    for distance in _DISTANCES:  # pairs of one distance are disjoint, and therefore independent
        pairs = [
            (lot, lot_at[client, t + distance])
            for (client, t), lot in lot_at.items()
            if t // distance % 2 == 0 and (client, t + distance) in lot_at
        ]
        rounds.append(_in_common(pairs, uniforms))
    yield from _both(kind, "rounds", rounds)
    yield members(kind, sampled, laws)


def _sizes(
    kind: str, lots: list[Lot], laws: dict[int, Law], uniforms: np.random.Generator
) -> Check:
    """Test the sizes of lots. Sizes that are fixed are compared, others become normals."""
    law_text = str(laws[lots[0].who])
    keys = [(laws[lot.who], lot.count) for lot in lots]
    # Many lots share a law, whose table may be long.
    tables = {(law, count): law.sizes(count) for law, count in dict.fromkeys(keys)}
    pairs = [
        statistics.tabulated(tables[key], np.array(len(lot.members)))
        for key, lot in zip(keys, lots, strict=True)
    ]
    below, exactly = np.array(pairs).T
    expected = sum(law.part(count) * count for law, count in keys)
    total = sum(len(lot.members) for lot in lots)
    # Fixed sizes leave nothing to chance: any other size is a failure.
    if all(law.size is not None for law, _ in keys):
        return Check(
            "sampling",
            f"{kind}: sizes",
            f"{total:,} in {len(lots):,}",
            law_text,
            passed=bool(exactly.min() >= 0.5),
            note=f"{kind} have another size than {law_text}",
        )
    normals = statistics.as_normals(below, exactly, uniforms.random(len(lots)))
    spread = float(np.sqrt(np.mean(normals**2)))
    return Check(
        "sampling",
        f"{kind}: sizes",
        f"{total / expected:.4f} of the rate, spread {spread:.3f}",
        f"1, 1 ({law_text})",
        statistics.mean_and_spread_p(normals),
        weight=3.0,
        note=f"{kind} are not sampled by {law_text}: their sizes have {total / expected:.4g} times its mean "
        f"and {spread:.3g} times its spread",
    )


def _both(kind: str, name: str, families: list[np.ndarray]) -> Iterator[Check]:
    """Test mean and spread of families of normals. The normals of each family are independent."""
    families = [normals for normals in families if normals.size]
    if not families:
        return
    tests = [
        test(normals) for normals in families for test in (statistics.sum_p, statistics.spread_p)
    ]
    worst = families[int(np.argmin(tests)) // 2]
    spread, mean = float(np.sqrt(np.mean(worst**2))), float(np.mean(worst))
    yield Check(
        "sampling",
        f"{kind}: {name}",
        f"mean {mean:+.3f}, spread {spread:.3f}",
        "0, 1",
        statistics.smallest(tests),
        note=f"members of {kind} depend on each other or on their places ({name})",
    )


def _normals(
    counts: list[int], parameters: list[tuple[int, int, int]], uniforms: np.random.Generator
) -> np.ndarray:
    """Return normals of hypergeometric counts, with parameters (population, marked, sampled)."""
    if not counts:
        return np.zeros(0)
    law, array = stats.hypergeom(*np.array(parameters).T), np.array(counts)
    return statistics.as_normals(law.cdf(array - 1), law.pmf(array), uniforms.random(len(array)))


def _in_common(pairs: list[tuple[Lot, Lot]], uniforms: np.random.Generator) -> np.ndarray:
    counts = [len(np.intersect1d(a.members, b.members, assume_unique=True)) for a, b in pairs]
    laws = [(a.count, len(a.members), len(b.members)) for a, b in pairs]
    return _normals(counts, laws, uniforms)


def members(kind: str, lots: list[Lot], laws: dict[int, Law]) -> Check:
    """Test the number of lots that each member is in, which is binomial."""
    often: dict[int, np.ndarray] = {}
    times: dict[int, int] = {}
    for lot in lots:
        often.setdefault(lot.who, np.zeros(lot.count, dtype=int))[lot.members] += 1
        times[lot.who] = times.get(lot.who, 0) + 1
    p_values, shares = [], []
    for who, counts in often.items():
        law = stats.binom(times[who], laws[who].part(len(counts)))
        p_values.append(statistics.two_sided(law.cdf(counts), law.sf(counts - 1)))
        shares.append(counts / times[who])
    all_p = np.concatenate(p_values)
    share = np.concatenate(shares)[int(np.argmin(all_p))]
    return Check(
        "sampling",
        f"{kind}: worst member of {len(all_p):,}",
        f"in {share:.3f} of them",
        f"{laws[lots[0].who].part(lots[0].count):.3f}",
        statistics.smallest(all_p),
        note=f"a member is in {share:.3g} of its {kind}",
    )
