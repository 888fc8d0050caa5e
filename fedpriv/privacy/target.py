"""What a run may spend, and how far its noise can fall: what a Budget is made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from fedpriv.privacy.accountants import Accountant


@dataclass(frozen=True)
class Target:
    """What a run may spend, and how it is counted.

    Attributes:
        epsilon: The budget of each client; None: nothing is enforced.
        delta: δ that goes with it.
        view: Which releases are counted, ``sound`` or ``published``.
        accountant: How they are composed.
    """

    epsilon: float | None
    delta: float
    view: str
    accountant: Accountant


@dataclass(frozen=True)
class Adaptation:
    """How far σ can fall where it depends on what was released.

    Attributes:
        bound: What a schedule can never spend more than on a client (sound view), if there is such a bound.
        lowest_known: Whether a schedule says how low its noise can fall.
    """

    bound: Mapping[DpEvent, int] | None = None
    lowest_known: bool = True
