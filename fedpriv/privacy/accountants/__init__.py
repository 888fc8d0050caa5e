"""Accountants: the privacy cost (ε at δ) of a composition of events.

An accountant is a settings object with a pure ``epsilon_of(composition, delta)`` and a ``running(clients)``
total that is updated draw by draw and asked before every release. Begin with ``base``; ``rdp``,
``gaussian``, ``pld`` and ``prv`` are the options, ``composition`` the counts that ``pld`` and ``prv`` share.
The modules ``monte_carlo_*`` sample privacy losses, with a bound on δ that holds up to a stated probability.
"""

from fedpriv.privacy.accountants.base import Accountant, CannotAccount, RunningTotal
from fedpriv.privacy.accountants.gaussian import GdpAccountant, ZcdpAccountant
from fedpriv.privacy.accountants.pld import PldAccountant
from fedpriv.privacy.accountants.prv import PrvAccountant
from fedpriv.privacy.accountants.published import PublishedAccountant
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
