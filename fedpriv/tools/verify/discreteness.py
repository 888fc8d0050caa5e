"""Noise as a computer draws it: on its stated grid, of many values, from many streams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.noise import GRID_BITS
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.draws import Drawn
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

_VALUES = 20_000  # numbers of one row whose distinct values are counted
_ROWS = 5
_FEWEST = 4  # numbers of a row at least by which streams are told apart
_ALIKE = 2.0 ** (1 - GRID_BITS)
_WEIGHT = 0.5
_FOUND = 7.0
"""Equal pairs that are expected of the largest key that is said to be found: none with probability .001."""


def on_grid(
    reference: Recording, said: Mapping[ReleasePosition, LedgerClaim], name: str
) -> Iterator[Check]:
    """Test that what left is on the grid g = 2^(⌊log2 σ⌋ - 14) of its noise."""
    off = numbers = 0
    for place in reference.places(name):
        if place not in said or said[place].family != GAUSSIAN:
            continue
        values = reference.seen[place].values.double().cpu().numpy()
        for row, std in zip(values, said[place].noted, strict=True):
            if math.isfinite(std) and std > 0:
                numbers += row.size
                finite = row[np.isfinite(row)]
                exponents = (math.log2(std * (1.0 + sign * 1e-9)) for sign in (-1, 1))
                grids = [2.0 ** (math.floor(exponent) - GRID_BITS) for exponent in exponents]
                off += row.size - finite.size
                off += min(int((np.rint(finite / g) * g != finite).sum()) for g in grids)
    if not numbers:
        return
    yield Check(
        "noise",
        f"{name}: on the grid of its noise",
        f"{off:,} of {numbers:,} numbers off",
        "0",
        passed=off == 0,
        note=f"{name} leaves as floating-point numbers that are no multiples of 2^(⌊log2 σ⌋ - {GRID_BITS}): "
        "which ones are possible depends on what the noise hides",
    )


def of_draws(
    name: str, drawn: Mapping[ReleasePosition, Drawn], white: bool = False
) -> Iterator[Check]:
    """Yield whether noise has as many distinct values, and streams, as it should have.

    Args:
        drawn: In units of the standard deviation that the noise should have.
        white: Whether it was made independent of other rounds', so that it is on no grid any more.
    """
    if drawn and not white:
        yield _distinct(name, drawn)
    numbers = min((own.heads.shape[2] for own in drawn.values()), default=0)
    if numbers >= (2 * _FEWEST if white else _FEWEST):
        yield _birthday(name, drawn, numbers, 8.0 * _ALIKE if white else _ALIKE)


def _distinct(name: str, drawn: Mapping[ReleasePosition, Drawn]) -> Check:
    """Count distinct values in some rows; a row's grid, and so its chance of equal values, is one."""
    coincidence = 2.0**-GRID_BITS / (2.0 * math.sqrt(math.pi)) * 1.001
    rows = [(d, row) for d in drawn.values() for row in {0, d.kept.shape[1] - 1}]
    p_values, shares = [], []
    for own, row in rows[:_ROWS]:
        values = own.kept[:, row].reshape(-1)[:_VALUES]
        distinct = len(np.unique(values))
        p_values.append(statistics.fewest_distinct_p(distinct, len(values), coincidence))
        shares.append((distinct, len(values)))
    at = int(np.argmin(p_values))
    return Check(
        "noise",
        f"{name}: distinct values",
        f"{shares[at][0]:,} of {shares[at][1]:,}",
        "nearly all",
        statistics.smallest(p_values),
        weight=_WEIGHT,
        note=f"the noise of {name} has far fewer values than its grid: {shares[at][0]:,} among "
        f"{shares[at][1]:,} numbers",
    )


def _birthday(
    name: str, drawn: Mapping[ReleasePosition, Drawn], numbers: int, tolerance: float
) -> Check:
    """Look for two streams that begin alike."""
    parts = [own.heads[:, :, :numbers].reshape(-1, numbers) for own in drawn.values()]
    heads = np.concatenate(parts).astype(np.float64)
    pairs = equal_pairs(heads, tolerance)
    return Check(
        "independence",
        f"{name}: streams that begin alike",
        f"{pairs} pairs of {len(heads):,}",
        f"0 (finds keys of up to {key_bits(len(heads))} bits)",
        passed=pairs == 0,
        note=f"{pairs} pairs of {len(heads):,} noise streams are the same: their keys have few bits",
    )


def equal_pairs(heads: np.ndarray, tolerance: float = _ALIKE) -> int:
    """Return how many rows [n, k] have a row that is alike but for the rounding to a grid."""
    ordered = heads[np.argsort(heads[:, 0], kind="stable")]
    found = 0
    for lag in range(1, len(ordered)):
        near = ordered[lag:, 0] - ordered[:-lag, 0] < tolerance
        if not near.any():
            break
        apart = np.abs(ordered[lag:][near] - ordered[:-lag][near]).max(axis=1)
        found += int((apart < tolerance).sum())
    return found


def key_bits(streams: int) -> int:
    """Return the largest key size of which so many streams have two alike with probability > .999."""
    return max(0, math.floor(math.log2(max(1.0, streams * (streams - 1) / (2.0 * _FOUND)))))


def run_keys(keys: list[bytes], streams: SecretStreams, count: int) -> Check:
    """Return whether keys of runs, and streams of lots, are all distinct."""
    lots = [streams.sampling("birthday", i).bits(2).tobytes() for i in range(count)]
    alike = len(keys) - len(set(keys)) + len(lots) - len(set(lots))
    return Check(
        "independence",
        "keys of runs, streams of lots",
        f"{alike} of {len(keys):,} and {len(lots):,} alike",
        f"0 (finds keys of up to {key_bits(min(len(keys), len(lots)))} bits)",
        passed=alike == 0,
        note="keys of runs, or the streams that lots are drawn from, come from keys of few bits",
    )
