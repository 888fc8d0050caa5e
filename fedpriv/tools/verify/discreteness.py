"""Tests of the noise as computers draw it: its grid, the number of its values, and its streams."""

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
_FEWEST = 4  # least numbers of a row that tell streams apart
_ALIKE = 2.0 ** (1 - GRID_BITS)
_WEIGHT = 0.5
_FOUND = 7.0
"""Expected number of equal pairs at the largest key size that the check claims to find.

There is no equal pair with probability e^(-7) = .001.
"""


def on_grid(
    reference: Recording, claims: Mapping[ReleasePosition, LedgerClaim], name: str
) -> Iterator[Check]:
    """Test that releases are on the grid g = 2^(⌊log2 σ⌋ - 14) of their noise."""
    off = numbers = 0
    for position in reference.positions(name):
        if position not in claims or claims[position].family != GAUSSIAN:
            continue
        values = reference.seen[position].values.double().cpu().numpy()
        for row, std in zip(values, claims[position].noted, strict=True):
            if math.isfinite(std) and std > 0:
                numbers += row.size
                finite = row[np.isfinite(row)]
                # σ is known up to rounding, so both grids are tried where it is close to a power of 2.
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
    """Yield the checks of the number of distinct values and of distinct streams.

    Args:
        name: Name of the query.
        drawn: Draws in units of the standard deviation that the noise should have.
        white: True for noise that was correlated over rounds and has been whitened. Such noise is on no grid.
    """
    if drawn and not white:
        yield _distinct(name, drawn)
    numbers = min((draw.heads.shape[2] for draw in drawn.values()), default=0)
    if numbers < (2 * _FEWEST if white else _FEWEST):
        return
    # Two streams with the same key give the same first numbers, so a few numbers of each stream suffice.
    heads = [draw.heads[:, :, :numbers].reshape(-1, numbers) for draw in drawn.values()]
    streams = np.concatenate(heads).astype(np.float64)
    pairs = equal_pairs(streams, 8.0 * _ALIKE if white else _ALIKE)
    yield Check(
        "independence",
        f"{name}: streams that begin alike",
        f"{pairs} pairs of {len(streams):,}",
        f"0 (finds keys of up to {key_bits(len(streams))} bits)",
        passed=pairs == 0,
        note=f"{pairs} pairs of {len(streams):,} noise streams are the same: their keys have few bits",
    )


def _distinct(name: str, drawn: Mapping[ReleasePosition, Drawn]) -> Check:
    """Count the distinct values of some rows. Each row has one grid, so one chance of equal values."""
    # Two values on a grid g <= σ 2^-14 coincide with probability about g / (2 √π σ).
    coincidence = 2.0**-GRID_BITS / (2.0 * math.sqrt(math.pi)) * 1.001
    rows = [(d, row) for d in drawn.values() for row in {0, d.values.shape[1] - 1}]
    p_values, counts = [], []
    for draw, row in rows[:_ROWS]:
        values = draw.values[:, row].reshape(-1)[:_VALUES]
        distinct = len(np.unique(values))
        p_values.append(statistics.fewest_distinct_p(distinct, len(values), coincidence))
        counts.append((distinct, len(values)))
    distinct, total = counts[int(np.argmin(p_values))]
    return Check(
        "noise",
        f"{name}: distinct values",
        f"{distinct:,} of {total:,}",
        "nearly all",
        statistics.smallest(p_values),
        weight=_WEIGHT,
        note=f"the noise of {name} has far fewer values than its grid: {distinct:,} among {total:,} numbers",
    )


def equal_pairs(heads: np.ndarray, tolerance: float = _ALIKE) -> int:
    """Return the number of pairs of rows [n, k] that are equal up to the rounding to a grid."""
    ordered = heads[np.argsort(heads[:, 0], kind="stable")]
    pairs = 0
    # Rows are sorted by their first number, so equal rows are near each other.
    for lag in range(1, len(ordered)):
        near = ordered[lag:, 0] - ordered[:-lag, 0] < tolerance
        if not near.any():
            break
        apart = np.abs(ordered[lag:][near] - ordered[:-lag][near]).max(axis=1)
        pairs += int((apart < tolerance).sum())
    return pairs


def key_bits(streams: int) -> int:
    """Return the largest key size at which two of ``streams`` streams agree with probability > .999."""
    return max(0, math.floor(math.log2(max(1.0, streams * (streams - 1) / (2.0 * _FOUND)))))


def run_keys(keys: list[bytes], streams: SecretStreams, count: int) -> Check:
    """Return the check that all keys of runs, and all of ``count`` streams of lots, are different."""
    lots = [streams.sampling("birthday", i).bits(2).tobytes() for i in range(count)]
    equal = len(keys) - len(set(keys)) + len(lots) - len(set(lots))
    return Check(
        "independence",
        "keys of runs, streams of lots",
        f"{equal} of {len(keys):,} and {len(lots):,} alike",
        f"0 (finds keys of up to {key_bits(min(len(keys), len(lots)))} bits)",
        passed=equal == 0,
        note="keys of runs, or the streams that lots are drawn from, come from keys of few bits",
    )
