"""The event of b-min-sep sampling under noise that is correlated over rounds.

The event holds everything that :mod:`fedpriv.privacy.accountants.monte_carlo_cost` needs, so that a line of a
ledger can be accounted for alone.
"""

# There is no "from __future__ import annotations" here, because core.events reads the types of the fields.
import math

import attr
from dp_accounting import dp_event


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BMinSepDpEvent(dp_event.DpEvent):
    """Sums of all rounds of a run under b-min-sep sampling, with noise of a banded Toeplitz strategy.

    Source of the sampling: Dong & Ganesh 2026 (arXiv 2602.09338).

    Attributes:
        rounds: n, the number of sums.
        separation: b; a client that took part rests for b - 1 rounds.
        rate: q, the probability that a rested client takes part in a round.
        warm_start: Whether clients begin as if there had been rounds before; else all of them are rested.
        column: c_0, c_1, … of the strategy, at most b entries.
        event: The Gaussian of one round; its noise multiplier is noise ÷ clip norm.

    Raises:
        ValueError: The values are not those of b-min-sep sampling. Ledgers may come from anybody.
    """

    rounds: int
    separation: int
    rate: float
    warm_start: bool
    column: tuple
    event: dp_event.DpEvent

    def __attrs_post_init__(self) -> None:
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
