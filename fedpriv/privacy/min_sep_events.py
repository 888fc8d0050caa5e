"""The event of b-min-sep sampling under noise that is correlated over rounds.

It holds all that :mod:`fedpriv.privacy.monte_carlo` needs: a line of a ledger can be accounted for alone.
"""

# no "from __future__ import annotations": the fields' types are read by fedpriv.privacy.events
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
