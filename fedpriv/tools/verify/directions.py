"""Tests of the noise in every direction of a vector, and across clients and rounds.

Noise that is missing in one direction protects nothing there, even if its total size is right. Noise minus
its mean, for example, releases the exact mean of the answer. Projections on unit vectors are standard
normals. The covariance of more vectors than a vector has numbers shows all directions at once
(:func:`statistics.spectrum_p`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.draws import Drawn, Draws
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

_WEIGHT = 0.5
_BLOCKS = 6
_MARGIN = 8.0  # least √n - √d: noise that is missing in a direction then has p <= e^(-32)
_STACKED = 1000  # most clients × rounds that are compared with each other
_STACKED_NUMBERS = 12_000_000


def checks(
    name: str,
    draws: Draws,
    drawn: Mapping[ReleasePosition, Drawn],
    reference: Recording,
    units: Sequence[int],
    random: np.random.Generator,
) -> Iterator[Check]:
    """Yield the checks of the noise of one query.

    Args:
        name: Name of the query.
        draws: The collector, which knows the directions of the projections.
        drawn: The draws of this query, in units of the standard deviation that they should have.
        reference: The run, for the clients of rows.
        units: Clients that are tested one by one.
        random: Generator that chooses blocks of coordinates.
    """
    if not drawn:
        return
    yield _along(name, draws, drawn, reference)
    values_at = {position: draw.values for position, draw in drawn.items()}
    width = next(iter(drawn.values())).width
    if width > 1 and len({draw.width for draw in drawn.values()}) == 1:
        # All draws and rows are samples of one vector of noise.
        together = np.concatenate([k.reshape(-1, k.shape[2]) for k in values_at.values()])
        yield from spectrum(f"{name}: directions", [together], width, random)
        # Noise that is right over all clients may still lack a direction at one of them.
        of_clients: dict[int, list[np.ndarray]] = {}
        for position, values in values_at.items():
            clients = reference.clients_of_rows(position, values.shape[1])
            for client in units if len(clients) > 1 else ():
                for row in np.flatnonzero(clients == client):
                    of_clients.setdefault(client, []).append(values[:, row])
        groups = [np.concatenate(rows) for rows in of_clients.values()]
        yield from spectrum(f"{name}: directions of a client", groups, width, random)
    yield from _stacked(name, values_at, random)


def _along(
    name: str,
    draws: Draws,
    drawn: Mapping[ReleasePosition, Drawn],
    reference: Recording,
) -> Check:
    """Test sums of squares along each direction, of all draws, of each client and of each round."""
    squares: dict[tuple[str, str], list[float]] = {}
    add = partial(statistics.add_squares, squares)
    for position, draw in drawn.items():
        directions, _ = draws.directions(draw.width)
        projected = draw.projected
        add(("all numbers", ""), draw.values)
        for i, direction in enumerate(directions):
            add((direction, ""), projected[:, :, i])
            if not direction.startswith("the mean"):
                continue
            add((direction, f" in round {position.number}"), projected[:, :, i])
            for row, client in enumerate(reference.clients_of_rows(position, projected.shape[1])):
                if client >= 0:
                    add((direction, f" of client {client}"), projected[:, row, i])
    (direction, part), ratio, p = statistics.worst_spread(squares)
    return Check(
        "noise",
        f"{name}: worst of {len(squares):,} directions",
        f"{ratio:.3f} ({direction}{part})",
        "1",
        p,
        weight=_WEIGHT,
        note=f"along {direction}{part} the noise has {ratio:.4g} times its standard deviation",
    )


def spectrum(
    what: str, groups: Sequence[np.ndarray], width: int, random: np.random.Generator
) -> Iterator[Check]:
    """Test the covariance of the numbers of a vector, of all numbers or of random blocks."""
    tests = []  # (p-value, smallest spread ÷ the smallest that is expected, numbers) of each block
    for values in groups:
        rows, columns = values.shape
        # All directions are tested at once if there are enough rows for the test's margin; else
        # random blocks of coordinates that are narrow enough.
        block, count = columns, 1
        if columns < width or math.sqrt(rows) < math.sqrt(columns) + _MARGIN:
            block = min(columns, rows // 4, int(max(0.0, math.sqrt(rows) - _MARGIN) ** 2))
            count = _BLOCKS
        if block < 2:
            continue
        for _ in range(count):
            chosen = np.sort(random.permutation(columns)[:block])
            p, ratio = statistics.spectrum_p(values[:, chosen])
            tests.append((p, ratio / max(1e-9, 1.0 - math.sqrt(block / rows)), block))
    if not tests:
        return
    _, least, size = min(tests, key=lambda entry: entry[0])
    blocks = f"{size} of {width:,} numbers" if size < width else f"{width:,} numbers"
    yield Check(
        "noise",
        what,
        f"smallest {least:.3f} ({blocks})",
        "1",
        statistics.smallest([p for p, *_ in tests]),
        weight=_WEIGHT,
        note=f"among {blocks} there is a direction in which the noise has about {least:.2g} times the "
        "smallest standard deviation that chance leaves",
    )


def _stacked(
    name: str, values_at: Mapping[ReleasePosition, np.ndarray], random: np.random.Generator
) -> Iterator[Check]:
    """Test the covariance across clients and rounds, to find noise that is a mixture of other noise."""
    keys = min(len(values) for values in values_at.values())
    rows = [values[:keys, row] for values in values_at.values() for row in range(values.shape[1])]
    if len(rows) > _STACKED:  # keep the first, the last, and random rows between them
        between = random.permutation(len(rows) - 2)[: _STACKED - 2] + 1
        rows = [rows[i] for i in sorted({0, len(rows) - 1, *between.tolist()})]
    count, numbers = len(rows), min(row.shape[1] for row in rows)
    if count < 2:
        return
    # Each vector of a client and round becomes a column. Its rows are taken from several draws
    # until the test has its margin, within the memory that is allowed.
    most = max(1, min(_STACKED_NUMBERS // count, int(4 * (math.sqrt(count) + 2 * _MARGIN) ** 2)))
    each = max(1, -(-most // numbers))
    columns = np.stack([row[:each, :numbers].reshape(-1)[:most] for row in rows], axis=1)
    if math.sqrt(len(columns)) < math.sqrt(count) + _MARGIN:
        return
    p, smallest = statistics.spectrum_p(columns)
    ratio = smallest / (1.0 - math.sqrt(count / len(columns)))
    yield Check(
        "independence",
        f"{name}: {count} vectors of clients and rounds",
        f"smallest {ratio:.3f}",
        "1",
        p,
        weight=_WEIGHT,
        note=f"the noise of {name} of one client or round is a mixture of the noise of others",
    )
