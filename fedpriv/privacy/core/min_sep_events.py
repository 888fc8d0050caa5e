"""The event of b-min-sep sampling under noise that is correlated over rounds.

It holds all that :mod:`fedpriv.privacy.accountants.monte_carlo_cost` needs: a line of a ledger can be
accounted for alone.
"""

# no "from __future__ import annotations": the fields' types are read by fedpriv.privacy.core.events
import math

import attr
from dp_accounting import dp_event


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BMinSepDpEvent(dp_event.DpEvent):
    """``rounds`` sums with noise of ``event`` (a Gaussian: noise ÷ clip norm), by a banded Toeplitz strategy.

    Attributes:
        separation: b: a client that took part rests for b - 1 rounds.
        rate: With which probability a rested client takes part in a round.
        warm_start: Whether clients begin as if there had been rounds before, else all of them rested.
        column: c_0, c_1, … of the strategy, at most b.
    """

    rounds: int
    separation: int
    rate: float
    warm_start: bool
    column: tuple
    event: dp_event.DpEvent

    def __attrs_post_init__(self) -> None:
        """Raise ValueError for what is no such event: ledgers may be anybody's."""
        fits = (
            1 <= self.separation <= self.rounds
            and 0.0 < self.rate <= 1.0
            and isinstance(self.warm_start, bool)
            and isinstance(self.column, tuple)
            and 1 <= len(self.column) <= self.separation
            and all(isinstance(c, float) and math.isfinite(c) for c in self.column)
            and any(self.column)
            and isinstance(self.event, dp_event.GaussianDpEvent)
        )
        if not fits:
            raise ValueError(f"not b-min-sep sampling: {self!r}")
