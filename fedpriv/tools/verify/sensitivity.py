"""The distance by which one unit moves what leaves, the noise held equal, over the whole vector.

Every way to be of the unit is run against the same public state, lots, cohorts and noise. Where neighbours
add or remove a unit, each way is compared with its absence; else each with each.
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
    """How one variation moved the releases: of the unit's own row the vector, of others' the square of its
    norm in units of their bound."""

    name: str
    own: dict[ReleasePosition, np.ndarray] = field(default_factory=dict)
    others: dict[ReleasePosition, float] = field(default_factory=dict)
    broke: str | None = None


class Displacements:
    """Collects the moves of variations of one unit."""

    def __init__(
        self, reference: Recording, said: Mapping[ReleasePosition, LedgerClaim], client: int
    ):
        self._reference, self._said, self._client = reference, said, client
        self.moves = [Moves("as it is")]
        self._times = 1.0  # 2 where two ways are compared, each of which is one more or less

    def begin(self, name: str) -> Moves:
        """Return the moves of the next variation, still empty."""
        self.moves.append(Moves(name))
        return self.moves[-1]

    def see(self, place: ReleasePosition, values: Tensor) -> None:
        said, seen = self._said.get(place), self._reference.seen.get(place)
        if said is None or seen is None or seen.values.shape != values.shape:
            return
        moved = (values.double() - seen.values.double()).cpu().numpy()
        row = self._row(place, len(moved))
        moves = self.moves[-1]
        if row is None:
            moves.others[place] = _of_others(moved, said.bound)
            return
        moves.own[place] = moved[row]
        moves.others[place] = _of_others(np.delete(moved, row, 0), np.delete(said.bound, row))

    def _row(self, place: ReleasePosition, rows: int) -> int | None:
        if rows == 1:
            return 0
        (found,) = np.flatnonzero(self._reference.cohorts[place.round_index] == self._client)[
            :1
        ].tolist() or [None]
        return found

    def checks(self, add_or_remove: bool) -> Iterator[Check]:
        """Yield a row for each way and name of a release."""
        absent = next((m for m in self.moves if m.name == ABSENT), None)
        partners = [absent] if add_or_remove and absent is not None else self.moves
        self._times = (
            2.0 if add_or_remove and absent is None and self._reference.rows_of_clients else 1.0
        )
        for moves in self.moves:
            if moves is absent:
                continue
            if moves.broke is not None:
                yield Check(
                    "sensitivity",
                    moves.name,
                    "the run stopped",
                    "goes on",
                    passed=False,
                    note=f"a unit that is {moves.name} ends the run, which no release tells: {moves.broke}",
                )
                continue
            for name in self._reference.names:
                yield from self._worst(moves, partners, name)

    def _worst(self, moves: Moves, partners: list[Moves], name: str) -> Iterator[Check]:
        worst, at = -1.0, 1.0
        where: tuple[ReleasePosition, str] | None = None
        for place, said in self._said.items():
            if place.name != name or not np.isfinite(said.bound).all():
                continue
            row = self._row(place, len(said.bound))
            bound = self._times * float(said.bound[0 if row is None else row])
            allowed = _allowed(bound, said, row or 0, self._reference.seen[place])
            for other in partners:
                if other is not moves and other.broke is None:
                    moved = self._moved(moves, other, place, bound, said)
                    if worst < 0 or moved / allowed > worst / at or math.isnan(moved):
                        worst, at, where = moved / bound, allowed / bound, (place, other.name)
        if where is None:
            return
        place, partner = where
        yield Check(
            "sensitivity",
            f"{name}: {moves.name}",
            f"{worst:.4f} of the ledger's",
            f"<= 1 (rounding {at - 1:.4f})",
            passed=worst <= at,  # not a number is no
            of=name,
            note=f"a unit that is {moves.name} instead of {partner} moves {place} by {worst:.4g} times what "
            "the ledger says one unit can",
        )

    def _moved(
        self, a: Moves, b: Moves, place: ReleasePosition, bound: float, said: LedgerClaim
    ) -> float:
        """Return the distance over the whole matrix, others' rows in units of their own bounds."""
        none = np.zeros(1)
        own = a.own.get(place, none) - b.own.get(place, none)
        mine = float(np.linalg.norm(own))
        if said.family == BIT:  # a count of ones, before its flips are averaged out
            mine *= 1.0 - 2.0 * flip_probability(cast("RandomizedBit", said.query).epsilon)
        rest = a.others.get(place, 0.0) + b.others.get(place, 0.0)
        return math.hypot(mine, bound * math.sqrt(rest))


def _of_others(moved: np.ndarray, bounds: np.ndarray) -> float:
    if not moved.size or not moved.any():
        return 0.0
    return float(((moved / bounds[:, None]) ** 2).sum())


def _allowed(bound: float, said: LedgerClaim, row: int, seen: Seen) -> float:
    """Return the norm that a difference of norm ``bound`` can have once both of its terms are rounded.

    Noise is added on a grid of its own, and single precision has one. Rounding errors differ by a number in
    [-g, g] each, unbiased: the square of their norm is below d g²/4 + ‖difference‖² on average and 3.3 √d g²
    further in one case of 10^9, and so is their product with the difference (6.5 g ‖difference‖).
    """
    values = seen.values[row]
    std = float(said.std[row]) if said.family not in (NONE, BIT) else 0.0
    grid = 2.0 ** (math.floor(math.log2(std)) - 14) if std > 0 and math.isfinite(std) else 0.0
    grid += float(values.abs().max()) * 2.0**-23
    exact, width = bound * (1.0 + ROUNDING), len(values)
    spread = width * grid**2 / 4.0 + 3.3 * math.sqrt(width) * grid**2 + 13.0 * grid * exact
    return math.sqrt(exact**2 + spread)


def scale_check(first: np.ndarray, second: np.ndarray, what: str, tolerance: float) -> Check:
    """Test that noise under the same two keys is equal where only private data differ. ``first``, ``second``:
    differences between two keys, in units of the ledger's standard deviation."""
    if first.shape != second.shape:
        second = np.full(first.shape, math.nan)
    size = float(np.linalg.norm(first))
    ratio = float(first @ second) / size**2 if size else math.nan
    apart = float(np.linalg.norm(first - second)) / math.sqrt(max(1, first.size))
    passed = abs(ratio - 1.0) < tolerance and apart < tolerance
    return Check(
        "noise",
        f"the same with {what}",
        f"{ratio:.6f} times, apart by {apart:.1e} std",
        f"1, 0 (rounding {tolerance:.1g})",
        passed=passed,
        note=f"the noise itself depends on private data: {what} changes it",
    )
