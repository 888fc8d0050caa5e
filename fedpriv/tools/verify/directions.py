"""Noise in every direction: along given vectors, in the covariance of its numbers, and of clients and rounds.

Noise of the right size that is missing in one direction protects nothing there: noise minus its mean leaves
the mean of what it hides exact. Projections on unit vectors are standard normals, and the covariance of
more vectors than they have numbers shows every direction at once (:func:`statistics.spectrum_p`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.draws import Drawn, Draws
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

_WEIGHT = 0.5
_BLOCKS = 6
_MARGIN = 8.0  # √n - √d at least: noise that is missing in a direction then has p <= e^(-32)
_STACKED = 1000  # clients × rounds that are held against each other
_STACKED_NUMBERS = 12_000_000


def checks(
    name: str,
    draws: Draws,
    drawn: Mapping[ReleasePosition, Drawn],
    reference: Recording,
    units: Sequence[int],
    random: np.random.Generator,
) -> Iterator[Check]:
    """Yield the checks of one query's noise.

    Args:
        draws: What knows the directions.
        drawn: The draws of this query, in units of the standard deviation that they should have.
        units: Clients who are looked at one by one.
    """
    if not drawn:
        return
    yield _along(name, draws, drawn, reference)
    kept = {place: own.kept for place, own in drawn.items()}
    width = next(iter(drawn.values())).width
    if width > 1 and len({own.width for own in drawn.values()}) == 1:
        together = np.concatenate([k.reshape(-1, k.shape[2]) for k in kept.values()])
        if (check := _spectrum(f"{name}: directions", [together], width, random)) is not None:
            yield check
        of_clients = _of_clients(kept, reference, units)
        if (
            check := _spectrum(f"{name}: directions of a client", of_clients, width, random)
        ) is not None:
            yield check
    if (check := _stacked(name, kept, random)) is not None:
        yield check


def _along(
    name: str,
    draws: Draws,
    drawn: Mapping[ReleasePosition, Drawn],
    reference: Recording,
) -> Check:
    """Sums of squares along each direction: of all draws, and of each client and round by itself."""
    squares: dict[tuple[str, str], list[float]] = {}

    def enter(direction: str, whose: str, values: np.ndarray) -> None:
        entry = squares.setdefault((direction, whose), [0.0, 0.0])
        entry[0] += float((values.astype(np.float64) ** 2).sum())
        entry[1] += values.size

    for place, own in drawn.items():
        names, _ = draws.directions(own.width)
        along = own.projected
        cohort = reference.cohorts[place.round_index]
        enter("all", "", own.kept)
        for i, direction in enumerate(names):
            enter(direction, "", along[:, :, i])
            if not direction.startswith("the mean"):
                continue
            enter(direction, f" in round {place.number}", along[:, :, i])
            if along.shape[1] == len(cohort):
                for row, client in enumerate(cohort):
                    enter(direction, f" of client {client}", along[:, row, i])
    table = np.array(list(squares.values()))
    p_values = statistics.squares_p(table[:, 0], table[:, 1])
    p_values = np.where(np.isfinite(table[:, 0]), p_values, 0.0)
    at = int(np.argmin(p_values))
    direction, whose = list(squares)[at]
    where = "all numbers" if direction == "all" else direction
    ratio = math.sqrt(table[at, 0] / table[at, 1])
    return Check(
        "noise",
        f"{name}: worst of {len(table):,} directions",
        f"{ratio:.3f} ({where}{whose})",
        "1",
        statistics.smallest(p_values),
        weight=_WEIGHT,
        note=f"along {where}{whose} the noise has {ratio:.4g} times its standard deviation",
    )


def _of_clients(
    kept: Mapping[ReleasePosition, np.ndarray], reference: Recording, units: Sequence[int]
) -> list[np.ndarray]:
    """Return the draws of each of these clients where releases have a row for each."""
    found: dict[int, list[np.ndarray]] = {}
    for place, values in kept.items():
        cohort = reference.cohorts[place.round_index]
        if values.shape[1] != len(cohort) or len(cohort) < 2:
            continue
        for client in units:
            for row in np.flatnonzero(cohort == client):
                found.setdefault(client, []).append(values[:, row])
    return [np.concatenate(rows) for rows in found.values()]


def _spectrum(
    what: str, groups: Sequence[np.ndarray], width: int, random: np.random.Generator
) -> Check | None:
    """Test the covariance of the numbers of a vector: of all of them, or of random blocks."""
    p_values, ratios, sizes = [], [], []
    for values in groups:
        rows, columns = values.shape
        block, count = columns, 1
        if columns < width or math.sqrt(rows) < math.sqrt(columns) + _MARGIN:
            block = min(columns, rows // 4, int(max(0.0, math.sqrt(rows) - _MARGIN) ** 2))
            count = _BLOCKS
        if block < 2:
            continue
        for _ in range(count):
            chosen = np.sort(random.permutation(columns)[:block])
            p, ratio = statistics.spectrum_p(values[:, chosen])
            p_values.append(p)
            ratios.append(ratio / max(1e-9, 1.0 - math.sqrt(block / rows)))
            sizes.append(block)
    if not p_values:
        return None
    at = int(np.argmin(p_values))
    blocks = f"{sizes[at]} of {width:,} numbers" if sizes[at] < width else f"{width:,} numbers"
    return Check(
        "noise",
        what,
        f"smallest {ratios[at]:.3f} ({blocks})",
        "1",
        statistics.smallest(p_values),
        weight=_WEIGHT,
        note=f"among {blocks} there is a direction in which the noise has about {ratios[at]:.2g} times the "
        "smallest standard deviation that chance leaves",
    )


def _stacked(
    name: str, kept: Mapping[ReleasePosition, np.ndarray], random: np.random.Generator
) -> Check | None:
    """Test the covariance of clients and rounds: noise of one that is made of others'."""
    keys = min(len(values) for values in kept.values())
    rows = [values[:keys, row] for values in kept.values() for row in range(values.shape[1])]
    if len(rows) > _STACKED:  # the first, the last, and others between them
        between = random.permutation(len(rows) - 2)[: _STACKED - 2] + 1
        rows = [rows[i] for i in sorted({0, len(rows) - 1, *between.tolist()})]
    count, numbers = len(rows), min(own.shape[1] for own in rows)
    if count < 2:
        return None
    most = max(1, min(_STACKED_NUMBERS // count, int(4 * (math.sqrt(count) + 2 * _MARGIN) ** 2)))
    each = max(1, -(-most // numbers))
    columns = np.stack([own[:each, :numbers].reshape(-1)[:most] for own in rows], axis=1)
    if math.sqrt(len(columns)) < math.sqrt(count) + _MARGIN:
        return None
    p, smallest = statistics.spectrum_p(columns)
    ratio = smallest / (1.0 - math.sqrt(count / len(columns)))
    return Check(
        "independence",
        f"{name}: {count} vectors of clients and rounds",
        f"smallest {ratio:.3f}",
        "1",
        p,
        weight=_WEIGHT,
        note=f"the noise of {name} of one client or round is made of that of others",
    )
