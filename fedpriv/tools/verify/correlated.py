"""Noise that is correlated over rounds, against the strategy that the ledger charges.

A matrix mechanism releases rows of X + σ C_0 N Z, where N follows from the strategy C alone. Its covariance
is computed here from the matrix C that the settings give once more, not from the stream that made the noise;
C must be the one whose digest the ledger has. With L L' = N N' (L lower triangular; L^-1 = C where C is
square), L^-1 times the noise of the first T rounds has independent rows of the standard deviation σ C_0
that the ledger states; whatever is tested of independent noise is then tested of these. The sensitivity that
is charged is held against the worst of many patterns in which clients may take part, and who took part
against the patterns.

Sources: Denisov et al. 2022 (arXiv 2202.08312); trees: Honaker 2015, the estimate from below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from fedpriv.algorithms.dp_ftrl import DpFtrl
from fedpriv.privacy.matrix.participation import NEVER, Cyclic, Participation
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.mechanisms.matrix import CorrelatedQuery
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check

_PATTERNS, _TURNS = 400, 100
_ROUNDING = 1e-6


class Correlated:
    """What one release of all rounds says of each of them. ``query``: what the ledger charges."""

    def __init__(self, subject: Subject, reference: Recording, query: CorrelatedQuery):
        self._algorithm = algorithm = cast("DpFtrl", subject.parts.algorithm)
        self.query, self._reference, self._subject = query, reference, subject
        self._participation: Participation = algorithm.cohorts.participation
        self._strategy: Strategy = algorithm.find_strategy()
        noise = noising(self._strategy)[: reference.rounds]
        self._root = np.linalg.cholesky(noise @ noise.T)

    @classmethod
    def of(cls, subject: Subject, reference: Recording) -> Correlated | None:
        """Return None where no round was charged with others together."""
        charged = (release for of in reference.charged for release in of)
        queries = (query for release in charged for query in release.joint.queries)
        query = next((q for q in queries if isinstance(q, CorrelatedQuery)), None)
        return (
            None if query is None or reference.broke is not None else cls(subject, reference, query)
        )

    def claims(self) -> dict[ReleasePosition, LedgerClaim]:
        """Return the claim of each round: the deviation of its row of Z, and the bound of its sum."""
        (release, *_) = self._reference.charged[0]
        sensitivity = np.asarray(release.sensitivity[self.query.name], dtype=float).max()
        found = {}
        for place, seen in self._reference.seen.items():
            bound = np.full(len(seen.values), sensitivity / seen.divided_by)
            std = bound * self.query.noise_multiplier
            own = float(np.linalg.norm(self._root[place.round_index]))
            multiplier = self.query.noise_multiplier * own
            found[place] = LedgerClaim(self.query, GAUSSIAN, std, std, bound, multiplier)
        return found

    # ---- noise

    def white(self, rows: np.ndarray) -> np.ndarray:
        """Return L^-1 times the noise of the rounds [T, …]."""
        flat = np.linalg.solve(self._root, rows.reshape(len(rows), -1).astype(float))
        return flat.reshape(rows.shape)

    def white_samples(self, samples: list[NoiseSample]) -> list[NoiseSample]:
        """Return L^-1 times the noise under each key."""
        found = []
        for key in dict.fromkeys(sample.key for sample in samples):
            own = [sample for sample in samples if sample.key == key]
            if len(own) == len(self._root):
                values = self.white(np.stack([sample.values for sample in own]))
                found += [
                    replace(sample, values=row.astype(np.float32))
                    for sample, row in zip(own, values, strict=True)
                ]
        return found

    def white_list(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """Return L^-1 times vectors that are those of T rounds, again and again."""
        rounds, found = len(self._root), []
        for first in range(0, len(rows) - rounds + 1, rounds):
            own = rows[first : first + rounds]
            if len({row.shape for row in own}) > 1:
                return rows  # a round without a release, or of another shape: its own check fails
            found += list(self.white(np.stack(own)))
        return found

    # ---- what is charged

    def checks(self) -> Iterator[Check]:
        """Check the strategy, its sensitivity, who took part, and the one entry in the ledger."""
        query = self.query
        own = self._strategy.digest()
        yield Check(
            "charge",
            "the strategy",
            own,
            query.digest,
            passed=own == query.digest,
            note="the strategy of the settings is not the one whose digest the ledger has",
        )
        worst = worst_sensitivity(self._strategy, self._participation, query.sample_rate)
        yield Check(
            "sensitivity",
            f"{query.name}: all rounds of a client",
            f"{worst / query.sensitivity:.4f} of the ledger's",
            "<= 1",
            passed=worst <= query.sensitivity * (1.0 + _ROUNDING),
            note=f"one client can move the whole run by {worst:.6g} clip norms; the ledger charges "
            f"{query.sensitivity:.6g}",
        )
        event = query.event()
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            event = event.event
        charged = getattr(event, "noise_multiplier", 0.0)
        due = query.noise_multiplier / query.sensitivity
        yield Check(
            "charge",
            "event ÷ noise multiplier ÷ sensitivity",
            f"{charged / due:.6f} times" if due else "no noise",
            "<= 1",
            passed=charged <= due * (1.0 + _ROUNDING),
            note=f"the event that is charged has noise multiplier {charged:.6g}; the noise and the "
            f"sensitivity make {due:.6g}",
        )
        ledger = self._reference.ledger
        assert ledger is not None
        needed = self._participation.times(query.answers) if query.sample_rate < 1 else 1
        entered = ledger.samples_of(query.name)
        rounds = max(place.round_index for place in self._reference.seen) + 1
        yield Check(
            "charge",
            f"{query.name} in the ledger",
            f"{int(entered.min())} entered for each client, {query.answers} rounds",
            f"{needed}, >= {rounds} rounds",
            passed=bool((entered >= needed).all()) and query.answers >= rounds,
            note=f"the run left {rounds} rounds, and the ledger does not have all of them for everyone",
        )

    def attendance(self, seen: Recording, what: str) -> Check:
        """Test that nobody took part more often, or sooner again, than the sensitivity allows for."""
        total = max(self.query.answers, len(seen.cohorts))
        together, most = self._participation.together(total), self._participation.times(total)
        rounds_of: dict[int, list[int]] = {}
        wrong: dict[int, list[int]] = {}
        for t, cohort in enumerate(seen.cohorts):
            for client in map(int, cohort):
                own = rounds_of.setdefault(client, [])
                if len(own) >= most or not all(together[i, t] for i in own):
                    wrong.setdefault(client, [*own, t])
                own.append(t)
        client, rounds = next(iter(wrong.items()), (0, []))
        said = ", ".join(str(t + 1) for t in rounds)
        return Check(
            "sampling",
            f"rounds of a client, {what}",
            f"{len(wrong)} clients out of turn",
            "0",
            passed=not wrong,
            note=f"client {client} took part in rounds {said}, against what is charged "
            f"({self.query.participation})",
        )

    def rates(self) -> Iterator[Check]:
        """Where clients are sampled in their turns: how often each joins, and how many do in a round, against
        the rate that is charged."""
        rate, turns = self.query.sample_rate, self._participation.separation
        if rate == 1.0:
            return
        subject = self._subject
        streams, everyone = subject.streams("turns", ""), np.ones(subject.clients, dtype=bool)
        choose = self._algorithm.cohorts.choose
        joined = np.zeros((turns * _TURNS, subject.clients), dtype=int)
        for t, row in enumerate(joined):
            row[choose(streams, t, everyone)] = 1
        own = joined.reshape(_TURNS, turns, subject.clients).sum(0)
        groups = np.bincount(own.argmax(0), minlength=turns)
        uniforms = np.random.default_rng(subject.seed)
        for what, counts, of in (
            ("joins of a client", own.max(0), np.full(subject.clients, _TURNS)),
            ("sizes of cohorts", joined.sum(1), np.tile(groups, _TURNS)),
        ):
            below, exactly = binom.cdf(counts - 1, of, rate), binom.pmf(counts, of, rate)
            normals = statistics.as_normals(below, exactly, uniforms.random(len(counts)))
            yield Check(
                "sampling",
                f"{what} in {_TURNS} turns",
                f"rate {counts.sum() / of.sum():.4f}",
                f"{rate:g}",
                statistics.mean_and_spread_p(normals),
                note=f"{what} are not those of the rate that is charged",
            )


def noising(strategy: Strategy) -> np.ndarray:
    """Return N [n, draws] from the matrix C alone: its inverse, or of a tree the estimates from below."""
    matrix = strategy.matrix()
    if matrix.shape[0] == matrix.shape[1]:
        return np.linalg.inv(matrix)
    prefixes = [_prefix(matrix, t) for t in range(matrix.shape[1])]
    return np.diff(np.stack(prefixes), axis=0, prepend=0.0)


def _prefix(nodes: np.ndarray, last: int) -> np.ndarray:
    """Return the weights of the nodes' noise in the sum over rounds 0 … ``last``: of the fewest nodes, each
    the estimate of least variance from all nodes below it."""
    starts, sizes = nodes.argmax(1), nodes.sum(1)
    weights, end = np.zeros(len(nodes)), last + 1
    while end > 0:
        size = int(sizes[starts + sizes == end].max())
        below = (starts >= end - size) & (starts + sizes <= end)
        leaves = np.linalg.pinv(nodes[below][:, end - size : end])
        weights[below] += leaves.sum(0)
        end -= size
    return weights


def worst_sensitivity(
    strategy: Strategy, participation: Participation, sample_rate: float = 1.0
) -> float:
    """Return the largest ‖Σ_{i∈π} ± C[:, i]‖ that was found over patterns π: contributions of a client in one
    direction. Where clients are sampled a turn is charged by itself, so of single rounds."""
    matrix = strategy.matrix()
    if sample_rate < 1.0:
        return float(np.linalg.norm(matrix, axis=0).max())
    return max(_moved(matrix[:, pattern]) for pattern in patterns(participation, matrix.shape[1]))


def patterns(participation: Participation, rounds: int) -> Iterator[np.ndarray]:
    """Yield rounds in which a client may take part: begun in each round and always as soon as allowed, and
    at random."""
    stream = np.random.default_rng(0)
    firsts = [(first, 1.0) for first in range(min(rounds, participation.separation))]
    several = (
        []
        if isinstance(participation, Cyclic)
        else [(0, stream.random()) for _ in range(_PATTERNS)]
    )
    for first, chance in (*firsts, *several):
        last, count, own = np.array([NEVER]), np.array([0]), []
        for t in range(first, rounds):
            if stream.random() <= chance and bool(participation.may(t, last, count)[0]):
                own.append(t)
                last, count = np.array([t]), count + 1
        if own:
            yield np.array(own)


def _moved(columns: np.ndarray) -> float:
    """Return ‖Σ ± columns‖ for signs that agree with their own sum."""
    gram = columns.T @ columns
    best = 0.0
    for signs in (np.ones(len(gram)), *np.eye(len(gram))):
        for _ in range(8):
            signs = np.where(gram @ signs >= 0, 1.0, -1.0)
        best = max(best, float(signs @ gram @ signs), float(gram.sum()))
    return float(np.sqrt(best))
