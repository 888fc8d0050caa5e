"""Parameters of a Budget: what a run may spend, and how far its noise can fall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from fedpriv.privacy.accountants import Accountant


@dataclass(frozen=True)
class Target:
    """Budget of each client, and how it is accounted for.

    Attributes:
        epsilon: ε of each client; None means that nothing is enforced.
        delta: δ.
        view: Releases that are counted, ``sound`` or ``published``.
        accountant: Accountant that composes them.
    """

    epsilon: float | None
    delta: float
    view: str
    accountant: Accountant


@dataclass(frozen=True)
class Adaptation:
    """Limits of an adaptive schedule, whose σ depends on released values.

    Attributes:
        bound: A composition that no run of the schedule exceeds for any client in the sound view, or None.
        lowest_known: Whether the schedule says how low its noise can fall.
    """

    bound: Mapping[DpEvent, int] | None = None
    lowest_known: bool = True
