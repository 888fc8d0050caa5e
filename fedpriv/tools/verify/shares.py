"""Noise that clients add as shares of whole numbers, of which the server has the sum modulo 2^b.

From outside only a sum is seen that was rotated, rounded and noised. Two things are therefore tested inside:

- The sum modulo 2^b, as the server has it, of clients who contribute zeros. It is the noise alone, and its
  law is computed here independently from the event that is charged.
- What leaves where every share is zero. Then rounding is all that is added to what a unit moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core import modular
from fedpriv.privacy.core.discrete_events import SkellamSharesDpEvent
from fedpriv.privacy.mechanisms import Bounded
from fedpriv.privacy.mechanisms.discrete import SUMS, DiscreteQuery
from fedpriv.privacy.mechanisms.discrete_count import DiscreteCount
from fedpriv.privacy.mechanisms.shares import FAMILIES
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import LedgerClaim
from fedpriv.tools.verify.noise import OVERALL_WEIGHT
from fedpriv.tools.verify.probes import Recording, ReleasePosition, Reopen
from fedpriv.tools.verify.repeat_runs import queries_of, release_again
from fedpriv.tools.verify.table import Check

_SAMPLES_PER_KEY = 800
_TAIL = 14.0  # tabulated half-width of a law, in standard deviations


class Shares:
    """A collector of sums of shares.

    Attributes:
        sums: The sums [draws][D] of each query and number of shares.
    """

    def __init__(self, streams: SecretStreams, samples: int, rounds: Sequence[int]):
        self._streams, self._rounds = streams, frozenset(rounds)
        self._keys = max(4, samples // _SAMPLES_PER_KEY)
        self.sums: dict[DiscreteQuery, dict[int, list[np.ndarray]]] = {}

    def __call__(self, reopen: Reopen, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        """Collect the server's sums of a round whose clients contribute zeros."""
        if step != 0 or t not in self._rounds:
            return
        queries = queries_of(reopen(self._streams))
        name = next((n for n in answers if isinstance(queries.get(n), DiscreteQuery)), None)
        if name is None:
            return
        by_shares = self.sums.setdefault(cast("DiscreteQuery", queries[name]), {})

        def values_of(answer_name: str, values: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(values) if answer_name == name else values

        for i in range(self._keys):
            with _server_sums() as sums:
                release_again(reopen, self._streams, (f"shares {i}",), step, answers, values_of)
            by_shares.setdefault(len(answers[name].values), []).extend(sums)

    def checks(self, seed: int) -> Iterator[Check]:
        """Yield the checks of the noise, and of the event that is charged for it."""
        uniforms = np.random.default_rng(seed)
        for query, by_shares in self.sums.items():
            normals = []
            for shares, of_draws in by_shares.items():
                sums = np.stack(of_draws)
                law = law_of_sum(query, shares, sums)
                # The clients contribute zeros, so the coordinates [draws, D] are independent noise
                # and nothing else.
                normals.append(statistics.as_normals(*law, uniforms.random(sums.shape)))
            yield _noise(query, np.concatenate(normals))
            yield _event(query)


def law_of_sum(
    query: DiscreteQuery | DiscreteCount, shares: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return P(X < x) and P(X = x) of the sum X of ``shares`` shares, by the event that is charged.

    Args:
        query: The charged query. Its event has the variance of a share, or, for Skellam noise, of the
            shares of the honest clients together.
        shares: Number of shares.
        values: The points x.
    """
    event = query.event()
    of_skellam = isinstance(event, SkellamSharesDpEvent)
    variance = event.variance * shares / (query.honest if of_skellam else 1)
    reach = math.ceil(_TAIL * math.sqrt(variance)) + 50
    length = 1 << (4 * reach).bit_length()
    # The law of the sum is the inverse Fourier transform of its characteristic function.
    if of_skellam:  # exp(V (cos θ - 1)), for the variance V of the sum
        angles = 2.0 * math.pi * np.arange(length // 2 + 1) / length
        spectrum = np.exp(variance * (np.cos(angles) - 1.0))
    else:
        integers = np.arange(length)
        integers = np.minimum(integers, length - integers)  # modulo the length, around 0
        weights = np.exp(-(integers.astype(float) ** 2) / (2.0 * event.variance))
        spectrum = np.fft.rfft(weights / weights.sum()) ** shares
    law = np.maximum(np.fft.irfft(spectrum, length), 0.0)
    law = np.concatenate([law[-reach:], law[: reach + 1]])  # at -reach, …, reach
    return statistics.tabulated(law, values + reach)


def counts(
    values: Mapping[ReleasePosition, np.ndarray],
    reference: Recording,
    claims: Mapping[ReleasePosition, LedgerClaim],
    seed: int,
) -> Iterator[Check]:
    """Yield the check of the noise on what a clipper counts.

    Args:
        values: Repeated releases [times, 1, 1] of each count.
        reference: The run, with the exact counts.
        claims: The claims of the ledger.
        seed: Seed of the randomised probability integral transform.
    """
    normals, uniforms = [], np.random.default_rng(seed)
    query: DiscreteCount | None = None
    for position, released in values.items():
        charged = claims[position].query if position in claims else None
        if not isinstance(charged, DiscreteCount):
            continue
        query = charged
        exact = float(reference.seen[position].exact.reshape(-1)[0])
        steps = np.rint((released.reshape(-1) - exact) * query.steps).astype(np.int64)
        law = law_of_sum(query, len(reference.cohorts[position.round_index]), steps)
        normals.append(statistics.as_normals(*law, uniforms.random(len(steps))))
    if query is not None:
        yield _noise(query, np.concatenate(normals)[None])


def _noise(query: DiscreteQuery | DiscreteCount, normals: np.ndarray) -> Check:
    """Test the law of sums of shares, coordinate by coordinate and along their mean.

    ``normals`` [draws, D] are the sums after the randomised probability integral transform.
    """
    flat = normals.reshape(-1)
    spread = float(np.sqrt(np.mean(flat**2)))
    p = 0.0
    if np.isfinite(flat).all():
        means = normals.sum(1) / math.sqrt(normals.shape[1])
        tests = [statistics.sum_p(flat), statistics.spread_p(flat), statistics.shape_p(flat)]
        p = statistics.smallest([*tests, statistics.spread_p(means)])
    return Check(
        "noise",
        f"{query.name}: sums of shares, spread",
        f"{spread:.4f} ({flat.size:,} whole numbers)",
        "1",
        p,
        weight=OVERALL_WEIGHT,
        note=f"the shares of {query.name} do not add up to the {query.family.replace('_', ' ')} noise that "
        "is charged",
    )


def _event(query: DiscreteQuery) -> Check:
    """Compare the charged sensitivity, in grid cells, with the largest norm of a rounded vector.

    A vector of norm c is rounded to norm c + √D at most. Stochastic rounding that is repeated until the norm
    is small enough has c² + D/4 + √(2 log(1/β)) (c + √D/2), with β = e^(-1/2), as a bound of its square
    (Kairouz, Liu and Steinke 2021; see fedpriv/privacy/mechanisms/discrete.py).
    """
    longest = query.cells + math.sqrt(query.dimension)
    # log(1/β) is ½ for β = e^(-1/2).
    slack = math.sqrt(2.0 * 0.5) * (query.cells + math.sqrt(query.dimension) / 2.0)
    least = math.sqrt(query.cells**2 + query.dimension / 4.0 + slack)
    due = longest if query.rounding == SUMS else min(longest, least)
    charged = query.event().l2_sensitivity
    return Check(
        "charge",
        f"{query.name}: sensitivity of rounded vectors",
        f"{charged / due:.6f} of what rounding allows",
        ">= 1",
        passed=charged >= due * (1.0 - 1e-9),
        note=f"the event charges {charged:.6g} whole numbers, and rounded vectors move by {due:.6g}",
    )


@contextmanager
def _server_sums() -> Iterator[list[np.ndarray]]:
    """Collect, within the context, every sum of whole numbers that the server decodes.

    ``modular.decoded`` is replaced meanwhile. The list that is yielded gets each sum [D] before decoding, as
    whole numbers from -2^(b-1) to 2^(b-1) - 1, where 2^b is the modulus.
    """
    decode, sums = modular.decoded, []

    def seen(
        total: np.ndarray, coding: modular.Coding, signs: torch.Tensor, size: int
    ) -> torch.Tensor:
        half = np.int64(1) << np.int64(coding.bits - 1)
        sums.append((total + half) % (2 * half) - half)
        return decode(total, coding, signs, size)

    modular.decoded = seen
    try:
        yield sums
    finally:
        modular.decoded = decode


@contextmanager
def silenced() -> Iterator[None]:
    """Make every share zero, so that rounding is all that happens to a sum."""
    tables: dict[Any, Any] = {kind: kind._table for kind in FAMILIES.values()}
    zeros = SimpleNamespace(draw=lambda stream, count: np.zeros(count, dtype=np.int64))
    for kind in tables:
        kind._table = lambda query: zeros
    try:
        yield
    finally:
        for kind, table in tables.items():
            kind._table = table
