"""Shares of whole numbers: what a server has is their sum modulo 2^b.

A test from outside sees a sum that was rotated, rounded and noised, so two things are looked at from inside:

- the sum modulo 2^b as the server has it, of clients who contribute zeros: it is the noise alone, whose law
  is computed here once more from the event that is charged;
- what leaves without the noise, so that rounding is all that is added to what a unit moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from fedpriv.common.secret_streams import SecretStreams, derived_key
from fedpriv.privacy.core import modular
from fedpriv.privacy.core.discrete_events import SkellamSharesDpEvent
from fedpriv.privacy.mechanisms import Bounded
from fedpriv.privacy.mechanisms.discrete import SUMS, DiscreteQuery
from fedpriv.privacy.mechanisms.discrete_count import DiscreteCount
from fedpriv.privacy.mechanisms.shares import FAMILIES
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import LedgerClaim
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.repeat_runs import Anew, queries_of, released_again, with_values
from fedpriv.tools.verify.table import Check

_SAMPLES_PER_KEY = 800
_TAIL = 14.0  # standard deviations of a law that are tabulated


class Shares:
    """Collects sums of shares: ``sums`` [draws][D] of each query and number of shares."""

    def __init__(self, streams: SecretStreams, samples: int, rounds: Sequence[int]):
        self._streams, self._rounds = streams, frozenset(rounds)
        self._keys = max(4, samples // _SAMPLES_PER_KEY)
        self.sums: dict[DiscreteQuery, dict[int, list[np.ndarray]]] = {}

    def __call__(self, anew: Anew, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        if step != 0 or t not in self._rounds:
            return
        queries = queries_of(anew(self._streams))
        name = next((n for n in answers if isinstance(queries.get(n), DiscreteQuery)), None)
        if name is None:
            return
        kept = self.sums.setdefault(cast("DiscreteQuery", queries[name]), {})
        for i in range(self._keys):
            zeros = {
                n: with_values(a, torch.zeros_like(a.values) if n == name else a.values.clone())
                for n, a in answers.items()
            }
            streams = self._streams.with_noise(derived_key(self._streams.noise_key, f"shares {i}"))
            with _server_sums() as sums:
                released_again(anew, streams, step, zeros)
            kept.setdefault(len(answers[name].values), []).extend(sums)

    def checks(self, seed: int) -> Iterator[Check]:
        """Yield the checks of the noise, and of the event that is charged for it."""
        uniforms = np.random.default_rng(seed)
        for query, by_shares in self.sums.items():
            normals = []
            for shares, of_draws in by_shares.items():
                sums = np.stack(of_draws)
                law = law_of_sum(query, shares, sums)
                normals.append(statistics.as_normals(*law, uniforms.random(sums.shape)))
            yield _noise(query, np.concatenate(normals))
            yield _event(query)


def law_of_sum(
    query: DiscreteQuery | DiscreteCount, shares: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return P(X < x) and P(X = x) of the sum of so many shares, by the event that is charged."""
    event = query.event()
    of_skellam = isinstance(event, SkellamSharesDpEvent)
    variance = event.variance * shares / (query.honest if of_skellam else 1)
    reach = math.ceil(_TAIL * math.sqrt(variance)) + 50
    length = 1 << (4 * reach).bit_length()
    if of_skellam:  # its characteristic function is exp(V (cos θ - 1))
        angles = 2.0 * math.pi * np.arange(length // 2 + 1) / length
        spectrum = np.exp(variance * (np.cos(angles) - 1.0))
    else:
        places = np.arange(length)
        places = np.minimum(places, length - places)
        weights = np.exp(-(places.astype(float) ** 2) / (2.0 * event.variance))
        spectrum = np.fft.rfft(weights / weights.sum()) ** shares
    law = np.maximum(np.fft.irfft(spectrum, length), 0.0)
    law = np.concatenate([law[-reach:], law[: reach + 1]])  # of -reach … reach
    return statistics.tabulated(law, values + reach)


def counts(
    values: Mapping[ReleasePosition, np.ndarray],
    reference: Recording,
    said: Mapping[ReleasePosition, LedgerClaim],
    seed: int,
) -> Iterator[Check]:
    """Yield the check of noise on what a clipper counts. ``values``: repeated releases [times, 1, 1]."""
    normals, uniforms = [], np.random.default_rng(seed)
    query: DiscreteCount | None = None
    for place, released in values.items():
        charged = said[place].query if place in said else None
        if not isinstance(charged, DiscreteCount):
            continue
        query = charged
        exact = float(reference.seen[place].exact.reshape(-1)[0])
        steps = np.rint((released.reshape(-1) - exact) * query.steps).astype(np.int64)
        law = law_of_sum(query, len(reference.cohorts[place.round_index]), steps)
        normals.append(statistics.as_normals(*law, uniforms.random(len(steps))))
    if query is not None:
        yield _noise(query, np.concatenate(normals)[None])


def _noise(query: DiscreteQuery | DiscreteCount, normals: np.ndarray) -> Check:
    """Test that sums of shares [draws, D] have their law, number by number and along their mean."""
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
        weight=8.0,
        note=f"the shares of {query.name} do not add up to the {query.family.replace('_', ' ')} noise that "
        "is charged",
    )


def _event(query: DiscreteQuery) -> Check:
    """Hold the sensitivity that is charged, in whole numbers, against that of rounded vectors."""
    longest = query.cells + math.sqrt(query.dimension)
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
    """Keep every sum that a server has within it, between -2^(b-1) and 2^(b-1)."""
    decode, kept = modular.decoded, []

    def seen(
        total: np.ndarray, coding: modular.Coding, signs: torch.Tensor, size: int
    ) -> torch.Tensor:
        half = np.int64(1) << np.int64(coding.bits - 1)
        kept.append((total + half) % (2 * half) - half)
        return decode(total, coding, signs, size)

    modular.decoded = seen
    try:
        yield kept
    finally:
        modular.decoded = decode


@contextmanager
def silenced() -> Iterator[None]:
    """Let shares be zeros, so that what leaves is rounded and nothing else."""
    tables: dict[Any, Any] = {kind: kind._table for kind in FAMILIES.values()}
    zeros = SimpleNamespace(draw=lambda stream, count: np.zeros(count, dtype=np.int64))
    for kind in tables:
        kind._table = lambda query: zeros
    try:
        yield
    finally:
        for kind, table in tables.items():
            kind._table = table
