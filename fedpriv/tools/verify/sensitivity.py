"""The distance by which one unit moves a release, over the whole vector and with equal noise.

Every variation of the unit is run at the same public state and with the same lots, cohorts and noise. Where
neighbours add or remove a unit, each variation is compared with the absence of the unit. Where neighbours
replace a unit, each variation is compared with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from torch import Tensor

from fedpriv.privacy.mechanisms import RandomizedBit
from fedpriv.privacy.mechanisms.randomized_response import flip_probability
from fedpriv.tools.verify.ledger_claims import BIT, NONE, LedgerClaim
from fedpriv.tools.verify.probes import Recording, ReleasePosition, Seen
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT

ROUNDING = 1e-3


@dataclass
class Moves:
    """The differences that one variation made to the releases.

    Attributes:
        name: Name of the variation.
        unit_row: Difference of the unit's own row [d].
        others: Squared norm of the differences of all other rows, in units of their bounds.
        failure: Error that ended the run; None where it did not end.
    """

    name: str
    unit_row: dict[ReleasePosition, np.ndarray] = field(default_factory=dict)
    others: dict[ReleasePosition, float] = field(default_factory=dict)
    failure: str | None = None


class Displacements:
    """A collector of the moves of variations of one unit.

    Args:
        reference: A run with the unit as it is.
        claims: What the ledger claims of each release.
        client: Client of the unit.
    """

    def __init__(
        self, reference: Recording, claims: Mapping[ReleasePosition, LedgerClaim], client: int
    ):
        self._reference, self._claims, self._client = reference, claims, client
        self.moves = [Moves("as it is")]

    def begin(self, name: str) -> Moves:
        """Start the next variation and return its moves, which are still empty."""
        self.moves.append(Moves(name))
        return self.moves[-1]

    def see(self, position: ReleasePosition, values: Tensor) -> None:
        """Add the difference between a release of the present variation and the reference.

        Args:
            position: The release. One that is not charged, or has another shape than in the reference, is
                left to other checks.
            values: Released values [rows, d].
        """
        claim, seen = self._claims.get(position), self._reference.seen.get(position)
        if claim is None or seen is None or seen.values.shape != values.shape:
            return
        moved = (values.double() - seen.values.double()).cpu().numpy()
        row = self._row(position, len(moved))
        moves = self.moves[-1]
        # The unit's client is not in this round, so nothing may move.
        if row is None:
            moves.others[position] = _squared_norm(moved, claim.bound)
            return
        moves.unit_row[position] = moved[row]
        moves.others[position] = _squared_norm(
            np.delete(moved, row, 0), np.delete(claim.bound, row)
        )

    def _row(self, position: ReleasePosition, rows: int) -> int | None:
        if rows == 1:
            return 0
        is_unit = self._reference.cohorts[position.round_index] == self._client
        return int(is_unit.argmax()) if is_unit.any() else None

    def checks(self, add_or_remove: bool) -> Iterator[Check]:
        """Yield a check for each variation and each name of a release.

        Args:
            add_or_remove: Whether neighbours add or remove a unit; else they replace one.
        """
        absent = next((m for m in self.moves if m.name == ABSENT), None)
        partners = [absent] if add_or_remove and absent is not None else self.moves
        # Without the absence, two variations are compared that both differ from it by the sensitivity.
        twice = add_or_remove and absent is None and self._reference.rows_of_clients
        for moves in self.moves:
            if moves is absent:
                continue
            if moves.failure is not None:
                yield Check(
                    "sensitivity",
                    moves.name,
                    "the run stopped",
                    "goes on",
                    passed=False,
                    note=f"a unit that is {moves.name} ends the run, although every release is the same: "
                    f"{moves.failure}",
                )
                continue
            for name in self._reference.names:
                yield from self._worst(moves, partners, name, 2.0 if twice else 1.0)

    def _worst(
        self, moves: Moves, partners: list[Moves], name: str, times: float
    ) -> Iterator[Check]:
        """Yield the check of the largest difference between a variation and its partners."""
        worst, limit = -1.0, 1.0  # in units of the ledger's bound
        where: tuple[ReleasePosition, str] | None = None
        for position, claim in self._claims.items():
            if position.name != name or not np.isfinite(claim.bound).all():
                continue
            row = self._row(position, len(claim.bound))
            bound = times * float(claim.bound[0 if row is None else row])
            allowed = _allowed(bound, claim, row or 0, self._reference.seen[position])
            for other in partners:
                if other is not moves and other.failure is None:
                    moved = self._moved(moves, other, position, bound, claim)
                    if worst < 0 or moved / allowed > worst / limit or math.isnan(moved):
                        worst, limit = moved / bound, allowed / bound
                        where = (position, other.name)
        if where is None:
            return
        position, partner = where
        yield Check(
            "sensitivity",
            f"{name}: {moves.name}",
            f"{worst:.4f} of the ledger's",
            f"<= 1 (rounding {limit - 1:.4f})",
            passed=worst <= limit,  # false for NaN
            of=name,
            note=f"a unit that is {moves.name} instead of {partner} moves {position} by {worst:.4g} times "
            "what the ledger says one unit can",
        )

    def _moved(
        self, a: Moves, b: Moves, position: ReleasePosition, bound: float, claim: LedgerClaim
    ) -> float:
        """Return the distance of two variations over the whole release.

        Rows of other clients count in units of their own bounds.
        """
        zeros = np.zeros(1)
        distance = float(
            np.linalg.norm(a.unit_row.get(position, zeros) - b.unit_row.get(position, zeros))
        )
        if claim.family == BIT:  # the release is debiased: it was divided by 1 - 2p
            distance *= 1.0 - 2.0 * flip_probability(cast("RandomizedBit", claim.query).epsilon)
        others = a.others.get(position, 0.0) + b.others.get(position, 0.0)
        return math.hypot(distance, bound * math.sqrt(others))


def _squared_norm(moved: np.ndarray, bounds: np.ndarray) -> float:
    if not moved.size or not moved.any():
        return 0.0
    return float(((moved / bounds[:, None]) ** 2).sum())


def _allowed(bound: float, claim: LedgerClaim, row: int, seen: Seen) -> float:
    """Return the norm that a difference of norm ``bound`` may have after both of its terms are rounded."""
    values = seen.values[row]
    std = float(claim.std[row]) if claim.family not in (NONE, BIT) else 0.0
    grid = 2.0 ** (math.floor(math.log2(std)) - 14) if std > 0 and math.isfinite(std) else 0.0
    grid += float(values.abs().max()) * 2.0**-23
    exact = bound * (1.0 + ROUNDING)
    return math.sqrt(exact**2 + rounding_spread(grid, len(values), exact))


def rounding_spread(grid: float, width: int, distance: float) -> float:
    """Return by how much rounding may increase the square of the norm of a difference of two vectors.

    Noise is added on a grid, and single precision is a grid. The rounding errors of the two terms differ by
    an unbiased number in [-g, g] in each coordinate. On average the square of the norm of the rounded
    difference is below ‖difference‖² + d g²/4. In all but one of 10^9 cases, the square of the norm of the
    errors is at most 3.3 √d g² larger than on average, and twice the product of the errors with the
    difference is at most 13 g ‖difference‖.

    Args:
        grid: Width g of the grid.
        width: Number d of coordinates.
        distance: ‖difference‖ before rounding.
    """
    return width * grid**2 / 4.0 + 3.3 * math.sqrt(width) * grid**2 + 13.0 * grid * distance


def scale_check(first: np.ndarray, second: np.ndarray, change: str, tolerance: float) -> Check:
    """Test that the noise of two keys is equal where only private data differ.

    Args:
        first: Difference between the releases under two keys, in units of the ledger's standard deviation.
        second: The same difference with other private data.
        change: Name of the private data that differ.
        tolerance: Difference that rounding explains.
    """
    if first.shape != second.shape:
        second = np.full(first.shape, math.nan)
    size = float(np.linalg.norm(first))
    ratio = float(first @ second) / size**2 if size else math.nan
    apart = float(np.linalg.norm(first - second)) / math.sqrt(max(1, first.size))
    passed = abs(ratio - 1.0) < tolerance and apart < tolerance
    return Check(
        "noise",
        f"the same with {change}",
        f"{ratio:.6f} times, apart by {apart:.1e} std",
        f"1, 0 (rounding {tolerance:.1g})",
        passed=passed,
        note=f"the noise itself depends on private data: {change} changes it",
    )
