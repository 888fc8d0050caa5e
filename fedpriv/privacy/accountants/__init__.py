"""Accountants: the privacy cost (ε at δ) of a composition of events.

An accountant is an object of settings. Its pure method ``epsilon_of(composition, delta, neighbours)``
accounts for a composition that is complete. Its method ``running(clients, neighbours)`` makes a total that is
updated draw by draw and is asked before every release.

Begin with ``base``. ``rdp``, ``gaussian`` (GDP and zCDP), ``pld`` and ``prv`` are the options; ``published``
stands for the accountant of a published theorem. ``composition`` counts the draws for ``pld`` and ``prv``.
"""

from fedpriv.privacy.accountants.base import (
    Accountant,
    CannotAccount,
    PublishedAccountant,
    RunningTotal,
)
from fedpriv.privacy.accountants.gaussian import GdpAccountant, ZcdpAccountant
from fedpriv.privacy.accountants.pld import PldAccountant
from fedpriv.privacy.accountants.prv import PrvAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant

__all__ = [
    "Accountant",
    "CannotAccount",
    "GdpAccountant",
    "PldAccountant",
    "PrvAccountant",
    "PublishedAccountant",
    "RdpAccountant",
    "RunningTotal",
    "ZcdpAccountant",
]
