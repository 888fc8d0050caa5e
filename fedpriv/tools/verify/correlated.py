"""Tests of noise that is correlated over rounds, against the strategy that the ledger charges.

A matrix mechanism releases the rows of X + σ C_0 N Z, where N follows from the strategy matrix C alone. The
covariance of the noise is computed here from C, which the settings give once more, and not from the stream
that made the noise. C must have the digest that is in the ledger. Let L L' = N N', with L lower triangular
(L^-1 = C where C is square). Then L^-1 times the noise of the first T rounds has independent rows with the
standard deviation σ C_0 that the ledger states. These rows undergo all tests of independent noise. The
charged sensitivity is compared with the worst of many patterns of participation, and the cohorts are compared
with the allowed patterns.

Sources: Denisov et al. 2022 (arXiv 2202.08312); for trees, Honaker 2015, the estimate from below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from fedpriv.algorithms.dp_ftrl import DpFtrl
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.matrix.participation import NEVER, Cyclic, Participation
from fedpriv.privacy.matrix.strategy import Strategy
from fedpriv.privacy.mechanisms.matrix import CorrelatedQuery
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check

_PATTERNS, _TURNS = 400, 100  # random patterns of participation; turns in which cohorts are drawn
_ROUNDING = 1e-6


class Correlated:
    """A release of all rounds together, and its claims about each round.

    Attributes:
        query: The query that the ledger charges.
    """

    def __init__(self, subject: Subject, reference: Recording, query: CorrelatedQuery):
        self._algorithm = algorithm = cast("DpFtrl", subject.parts.algorithm)
        self.query, self._reference, self._subject = query, reference, subject
        self._participation: Participation = algorithm.cohorts.participation
        self._strategy: Strategy = algorithm.find_strategy()
        noise = noising(self._strategy)[: reference.rounds]
        self._root = np.linalg.cholesky(noise @ noise.T)

    @classmethod
    def of(cls, subject: Subject, reference: Recording) -> Correlated | None:
        """Return the correlated release of a run; None where each round is charged by itself."""
        charged = (release for releases in reference.charged for release in releases)
        queries = (query for release in charged for query in release.joint.queries)
        query = next((q for q in queries if isinstance(q, CorrelatedQuery)), None)
        if query is None or reference.failure is not None:
            return None
        return cls(subject, reference, query)

    def claims(self) -> dict[ReleasePosition, LedgerClaim]:
        """Return the claim about each round: the standard deviation of Z and the bound of the round's sum."""
        (release, *_) = self._reference.charged[0]
        sensitivity = np.asarray(release.sensitivity[self.query.name], dtype=float).max()
        claims = {}
        for position, seen in self._reference.seen.items():
            bound = np.full(len(seen.values), sensitivity / seen.divided_by)
            std = bound * self.query.noise_multiplier
            # The noise of round t is row t of L times independent rows, so its size differs from
            # round to round.
            row_norm = float(np.linalg.norm(self._root[position.round_index]))
            multiplier = self.query.noise_multiplier * row_norm
            claims[position] = LedgerClaim(self.query, GAUSSIAN, std, std, bound, multiplier)
        return claims

    # ---- noise

    def white(self, rows: np.ndarray) -> np.ndarray:
        """Return L^-1 times the noise of the rounds [T, …]."""
        flat = np.linalg.solve(self._root, rows.reshape(len(rows), -1).astype(float))
        return flat.reshape(rows.shape)

    def white_samples(self, samples: list[NoiseSample]) -> list[NoiseSample]:
        """Return L^-1 times the noise of all rounds, for each key that has all rounds."""
        whitened = []
        for key in dict.fromkeys(sample.key for sample in samples):
            rounds = [sample for sample in samples if sample.key == key]
            if len(rounds) == len(self._root):
                values = self.white(np.stack([sample.values for sample in rounds]))
                whitened += [
                    replace(sample, values=row.astype(np.float32))
                    for sample, row in zip(rounds, values, strict=True)
                ]
        return whitened

    def white_list(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """Return L^-1 times vectors, of which each T in a row are the noise of T rounds."""
        rounds, whitened = len(self._root), []
        for first in range(0, len(rows) - rounds + 1, rounds):
            block = rows[first : first + rounds]
            if len({row.shape for row in block}) > 1:
                return rows  # a round has no release or another shape, and fails a check of its own
            whitened += list(self.white(np.stack(block)))
        return whitened

    # ---- what is charged

    def checks(self) -> Iterator[Check]:
        """Check the strategy, its sensitivity, the charged event, and the entry in the ledger."""
        query = self.query
        digest = self._strategy.digest()
        yield Check(
            "charge",
            "the strategy",
            digest,
            query.digest,
            passed=digest == query.digest,
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
        ledger = cast("Ledger", self._reference.ledger)
        # One entry stands for the whole run, or, where clients are sampled in their turns, for one turn.
        needed = self._participation.times(query.answers) if query.sample_rate < 1 else 1
        entered = ledger.samples_of(query.name)
        rounds = max(position.round_index for position in self._reference.seen) + 1
        yield Check(
            "charge",
            f"{query.name} in the ledger",
            f"{int(entered.min())} entered for each client, {query.answers} rounds",
            f"{needed}, >= {rounds} rounds",
            passed=bool((entered >= needed).all()) and query.answers >= rounds,
            note=f"the run released {rounds} rounds; the ledger does not have all of them for all clients",
        )

    def attendance(self, seen: Recording, what: str) -> Check:
        """Test that no client took part more often, or sooner again, than the sensitivity allows.

        Args:
            seen: A run.
            what: Name of the run.
        """
        total = max(self.query.answers, len(seen.cohorts))
        together, most = self._participation.together(total), self._participation.times(total)
        rounds_of: dict[int, list[int]] = {}
        violations: dict[int, list[int]] = {}
        for t, cohort in enumerate(seen.cohorts):
            for client in map(int, cohort):
                earlier = rounds_of.setdefault(client, [])
                if len(earlier) >= most or not all(together[i, t] for i in earlier):
                    violations.setdefault(client, [*earlier, t])
                earlier.append(t)
        client, rounds = next(iter(violations.items()), (0, []))
        numbers = ", ".join(str(t + 1) for t in rounds)
        return Check(
            "sampling",
            f"rounds of a client, {what}",
            f"{len(violations)} clients out of turn",
            "0",
            passed=not violations,
            note=f"client {client} took part in rounds {numbers}, which the charged participation "
            f"({self.query.participation}) does not allow",
        )

    def rates(self) -> Iterator[Check]:
        """Test the charged sampling rate where clients are sampled in their turns.

        Tested are the number of turns that each client joins, and the sizes of cohorts.
        """
        rate, turns = self.query.sample_rate, self._participation.separation
        if rate == 1.0:
            return
        subject = self._subject
        streams, all_clients = subject.streams("turns", ""), np.ones(subject.clients, dtype=bool)
        choose = self._algorithm.cohorts.choose
        joined = np.zeros((turns * _TURNS, subject.clients), dtype=int)
        for t, row in enumerate(joined):
            row[choose(streams, t, all_clients)] = 1
        # A client has its turn once in ``turns`` rounds, always at the same place of the cycle,
        # where its count is not 0.
        by_turn = joined.reshape(_TURNS, turns, subject.clients).sum(0)
        groups = np.bincount(by_turn.argmax(0), minlength=turns)
        uniforms = np.random.default_rng(subject.seed)
        for what, counts, trials in (
            ("joins of a client", by_turn.max(0), np.full(subject.clients, _TURNS)),
            ("sizes of cohorts", joined.sum(1), np.tile(groups, _TURNS)),
        ):
            below, exactly = binom.cdf(counts - 1, trials, rate), binom.pmf(counts, trials, rate)
            normals = statistics.as_normals(below, exactly, uniforms.random(len(counts)))
            yield Check(
                "sampling",
                f"{what} in {_TURNS} turns",
                f"rate {counts.sum() / trials.sum():.4f}",
                f"{rate:g}",
                statistics.mean_and_spread_p(normals),
                note=f"{what} do not have the rate that is charged",
            )


def noising(strategy: Strategy) -> np.ndarray:
    """Return N [T, draws], computed from the matrix C alone.

    N is the inverse of a square matrix C. For a tree, N makes the estimates from below.
    """
    matrix = strategy.matrix()
    if matrix.shape[0] == matrix.shape[1]:
        return np.linalg.inv(matrix)
    prefixes = [_prefix(matrix, t) for t in range(matrix.shape[1])]
    return np.diff(np.stack(prefixes), axis=0, prepend=0.0)


def _prefix(nodes: np.ndarray, last: int) -> np.ndarray:
    """Return the weight of each node's noise in the estimate of the sum of the rounds 0, …, ``last``.

    The sum is that of the fewest nodes that cover the rounds. Each is estimated from all nodes below it, with
    the least variance (Honaker 2015).
    """
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
    """Return the largest ‖Σ_{i∈π} ± C[:, i]‖ over the tried patterns π of participation.

    The signs stand for contributions of a client along one direction. Where clients are sampled, each turn is
    charged by itself, so single rounds are the patterns.

    Args:
        strategy: The strategy C.
        participation: The allowed participation.
        sample_rate: Rate at which clients are sampled in their turns.
    """
    matrix = strategy.matrix()
    if sample_rate < 1.0:
        return float(np.linalg.norm(matrix, axis=0).max())
    return max(_moved(matrix[:, pattern]) for pattern in patterns(participation, matrix.shape[1]))


def patterns(participation: Participation, rounds: int) -> Iterator[np.ndarray]:
    """Yield patterns: arrays of rounds in which one client may take part.

    A client begins in each round and takes part as soon as it may. Further patterns are random.
    """
    stream = np.random.default_rng(0)
    firsts = [(first, 1.0) for first in range(min(rounds, participation.separation))]
    tries = 0 if isinstance(participation, Cyclic) else _PATTERNS  # cycles leave no choice
    at_random = [(0, stream.random()) for _ in range(tries)]
    for first, chance in (*firsts, *at_random):
        last, count, pattern = np.array([NEVER]), np.array([0]), []
        for t in range(first, rounds):
            if stream.random() <= chance and bool(participation.may(t, last, count)[0]):
                pattern.append(t)
                last, count = np.array([t]), count + 1
        if pattern:
            yield np.array(pattern)


def _moved(columns: np.ndarray) -> float:
    """Return the largest ‖Σ ± columns‖ that a local search over the signs finds.

    Each step gives every column the sign of its product with the present sum.
    """
    gram = columns.T @ columns
    best = 0.0
    for signs in (np.ones(len(gram)), *np.eye(len(gram))):
        for _ in range(8):
            signs = np.where(gram @ signs >= 0, 1.0, -1.0)
        best = max(best, float(signs @ gram @ signs), float(gram.sum()))
    return float(np.sqrt(best))
