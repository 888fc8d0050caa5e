"""Privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022), by dp_accounting.

The tightest price here: the privacy loss of the whole composition is convolved numerically, with
errors rounded up. It holds for compositions fixed in advance; an adaptive σ takes a filter.

Convention: a Gaussian's multiplier z is noise ÷ sensitivity *under the relation of the ledger*. That
is dp_accounting's RDP convention too, but its PLD takes noise ÷ clip norm under replace-one, half of
that sensitivity: there z is doubled on the way in.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import attr
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant as library
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, identity

from fedpriv.common import checks
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.grid import on_grid
from fedpriv.privacy.rdp import ADD_OR_REMOVE, RELATION, REPLACE_ONE


class PldAccountant(CompositionAccountant):
    """``discretization``: width of the cells of the privacy loss; smaller is tighter and slower."""

    name = "pld"

    def __init__(self, discretization: float = 1e-4):
        self.discretization = checks.number(
            "discretization", discretization, at_least=1e-6, at_most=0.1
        )

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        truncated = isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent)
        known = library.PLDAccountant(RELATION[neighbours]).supports(event)
        if known and not (truncated and neighbours == REPLACE_ONE):
            return None
        return f"pld cannot price {type(event).__name__} under {neighbours}"

    def epsilon_of(
        self, composition: Mapping[dp_event.DpEvent, int], delta: float, neighbours: str
    ) -> float:
        counted = on_grid(composition)
        if not counted:
            return 0.0
        if any(isinstance(event, dp_event.NonPrivateDpEvent) for event in counted):
            return math.inf
        # in one order, so that the price does not depend on who came first; the largest multiplier
        # first, because noise that falls then adds to a prefix that was composed before
        ordered = sorted(counted.items(), key=_order)
        cell = self._cell(counted, delta)
        prefix = _composed(tuple(ordered[:-1]), neighbours, cell)
        total = prefix.compose(_repeated(*ordered[-1], neighbours, cell))
        return max(0.0, float(total.get_epsilon_for_delta(delta)))

    def _cell(self, composition: Mapping[dp_event.DpEvent, int], delta: float) -> float:
        """The cells in use: twice as wide for every doubling of ε beyond 16, where the privacy loss
        would need millions of them. Wider cells only ever raise the price.
        """
        similar: dict[dp_event.DpEvent, int] = {}
        for event, count in composition.items():
            similar[_similar(event)] = similar.get(_similar(event), 0) + count
        epsilon = _ESTIMATE.epsilon_of(similar, delta, ADD_OR_REMOVE)
        doublings = min(40, max(0, math.ceil(math.log2(max(epsilon, 1e-9) / _FINE_UP_TO))))
        return self.discretization * 2.0**doublings

    def describe(self) -> str:
        return f"PLD, cells of {self.discretization:g}"


_ESTIMATE = RdpAccountant("2..64")
_FINE_UP_TO = 16.0


def _similar(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """An event of about the same price that RDP knows: it decides about cells, not about ε."""
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        gaussian = dp_event.GaussianDpEvent(event.noise_multiplier)
        return dp_event.PoissonSampledDpEvent(event.sampling_probability, gaussian)
    return event


@functools.lru_cache(maxsize=24)
def _composed(
    items: tuple[tuple[dp_event.DpEvent, int], ...], neighbours: str, discretization: float
) -> PrivacyLossDistribution:
    """The composition of ``items``, built upon that of all but the last."""
    if not items:
        return identity(discretization)
    earlier = _composed(items[:-1], neighbours, discretization)
    return earlier.compose(_repeated(*items[-1], neighbours, discretization))


def _repeated(
    event: dp_event.DpEvent, count: int, neighbours: str, discretization: float
) -> PrivacyLossDistribution:
    if isinstance(event, dp_event.GaussianDpEvent):  # n Gaussians are one, exactly
        event = dp_event.GaussianDpEvent(event.noise_multiplier / math.sqrt(count))
        return _once(event, neighbours, discretization)
    return _once(event, neighbours, discretization).self_compose(count)


@functools.lru_cache(maxsize=32)
def _once(
    event: dp_event.DpEvent, neighbours: str, discretization: float
) -> PrivacyLossDistribution:
    accountant = library.PLDAccountant(RELATION[neighbours], discretization)
    accountant.compose(_library_event(event, neighbours))
    return accountant._pld  # the only place the library shows it


def _library_event(event: dp_event.DpEvent, neighbours: str) -> dp_event.DpEvent:
    """The event in dp_accounting's PLD convention."""
    if neighbours != REPLACE_ONE:
        return event
    if isinstance(event, dp_event.GaussianDpEvent):
        return dp_event.GaussianDpEvent(2.0 * event.noise_multiplier)
    inner = getattr(event, "event", None)
    return event if inner is None else attr.evolve(event, event=_library_event(inner, neighbours))


def _order(item: tuple[dp_event.DpEvent, int]) -> tuple[str, float, str]:
    event = item[0]
    inner = getattr(event, "event", event)
    return (type(event).__name__, -float(getattr(inner, "noise_multiplier", 0.0)), repr(event))
