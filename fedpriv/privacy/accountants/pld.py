"""Privacy loss distributions (Koskela, Jälkö, Honkela 2020; Doroshenko et al. 2022), by dp_accounting.

PLD gives the tightest ε here. The privacy loss of the whole composition is convolved numerically, with errors
rounded up, in cells that widen with ε. Where RDP knows the same events and is lower (very many draws), ε of
RDP is taken. PLD holds for compositions that are fixed in advance; an adaptive σ needs a filter.

Some losses are computed by fedpriv. The loss of lots without replacement is in
:mod:`~fedpriv.privacy.accountants.without_replacement`. Other losses that dp_accounting lacks are discretised
from privacy profiles (:mod:`~fedpriv.privacy.core.profile_events`).

Rounding in the transforms is bounded (:mod:`~fedpriv.privacy.accountants.rounding`). Where rounding may move
δ by more than a thousandth, ε is computed again in extended precision, at δ less the error that remains. ε of
RDP, which has no such error, is the limit.

Convention: the noise multiplier z of a Gaussian is noise ÷ sensitivity *under the relation of the ledger*.
This is also dp_accounting's convention for RDP. Its PLD, however, takes noise ÷ clip norm under replace-one,
where the sensitivity is twice the clip norm. There z is doubled before the library sees it.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import attr
import numpy as np
from dp_accounting import dp_event

from fedpriv.common.fields import declared, field, number
from fedpriv.privacy.accountants.base import CannotAccount, Composition
from fedpriv.privacy.accountants.composed_losses import (
    compose,
    extended,
    forget_transforms,
    pmfs,
    rounding_error,
    self_compose,
)
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.rounding import SHARE
from fedpriv.privacy.accountants.without_replacement import known_here, privacy_loss
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.grid import on_grid
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.profile_events import EpsilonDeltaEvent, Profile, sampled_profiles
from fedpriv.privacy.core.rdp import RELATION

if TYPE_CHECKING:  # importing it takes half a second
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Items = tuple[tuple[dp_event.DpEvent, int], ...]

_RDP = RdpAccountant()
_FINE = 16.0  # beyond this ε cells double in width with ε, else a loss would need millions of them
_LARGE = 1e5  # a larger ε is taken from RDP, or is infinite where RDP has none
_TYPICAL_DELTA = 1e-6  # δ that decides about the cells of a whole profile
_ROUNDING = 1e-12  # more than the rounding error of the sums of a profile
_MANY_DRAWS = 2_000_000  # more draws take half a minute, and RDP is within a few per cent by then


@declared
class PldAccountant(CompositionAccountant):
    """Numerical composition of privacy loss distributions on a grid of the privacy loss.

        δ(ε) = E_{l ~ PLD} [ (1 - e^(ε-l))_+ ]

    Composition by FFT: Koskela, Jälkö, Honkela 2020. Discretisation that rounds up ("Connect the dots"):
    Doroshenko et al. 2022, arXiv 2207.04380.

    Attributes:
        discretization: Width of a cell of the privacy loss up to an ε of 16; cells are wider beyond.

    Example:
        >>> from fedpriv.privacy.core.sampling import PoissonSampling
        >>> step = PoissonSampling(sample_rate=0.01).event(noise_multiplier=1.0)
        >>> round(PldAccountant().epsilon_of({step: 1000}, 1e-5, "add_or_remove"), 2)
        1.83
    """

    name = "pld"

    discretization: float = field(
        number(at_least=1e-6, at_most=0.1),
        default=1e-4,
        help="width of a cell of the discretised privacy loss; smaller is tighter and slower",
    )

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        if _knows(event, neighbours):
            return None
        return f"pld cannot account for {event_words(event)} under {RELATION_WORDS[neighbours]}"

    def _epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        # RDP is immediate. It replaces PLD where ε is huge or the draws are very many, and limits ε
        # elsewhere. Its size decides about the cells.
        bound, holds = self._rdp(composition, delta, neighbours)
        if holds and _not_composed(composition, bound):
            return bound
        if bound > _LARGE:
            return math.inf
        _refuse_many_draws(composition, neighbours)
        epsilon = _epsilon(_ordered(composition), delta, neighbours, self._cell(bound))
        return min(epsilon, bound) if holds else epsilon

    def is_rdps(self, composition: Composition, delta: float, neighbours: str) -> bool:
        """Return whether ε of a composition is RDP's upper bound, because PLD is not computed there.

        Args:
            composition: The composition, whose events have noise and are supported.
            delta: δ.
            neighbours: The adjacency.
        """
        counted = on_grid(composition)
        bound, holds = self._rdp(counted, delta, neighbours)
        return holds and math.isfinite(bound) and _not_composed(counted, bound)

    def _cell(self, epsilon: float) -> float:
        """Return the width of the cells for compositions of about this ε."""
        return self.discretization * 2.0 ** max(0, math.ceil(math.log2(max(epsilon, 1e-9) / _FINE)))

    def _deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        bound, holds = self._rdp(composition, _TYPICAL_DELTA, neighbours)
        by_rdp = self.quick_deltas(composition, epsilons, neighbours)
        if bound > _LARGE or (holds and sum(composition.values()) > _MANY_DRAWS):
            return by_rdp
        _refuse_many_draws(composition, neighbours)
        pairs = _pairs(_ordered(composition))
        losses = [_composed(pair, neighbours, self._cell(bound)) for pair in pairs]
        forget_transforms()
        return np.minimum(by_rdp, np.max([deltas_of_loss(p, epsilons) for p in losses], axis=0))

    def _rdp(self, composition: Composition, delta: float, neighbours: str) -> tuple[float, bool]:
        """Return ε by RDP, and whether it is an upper bound rather than a guess at the size of ε."""
        if not any(_RDP.supports(event, neighbours) for event in composition):
            return _RDP.epsilon_of(composition, delta, neighbours), True
        similar: dict[dp_event.DpEvent, int] = {}
        for event, count in composition.items():
            kind = _similar(event)
            if not _RDP.supports(kind, ADD_OR_REMOVE):  # other events are left out of the guess
                similar[kind] = similar.get(kind, 0) + count
        return _RDP.epsilon_of(similar, delta, ADD_OR_REMOVE), False

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        if any(_RDP.supports(event, neighbours) for event in composition):
            return math.inf
        return _RDP.epsilon_of(on_grid(composition), delta, neighbours)

    def _guess(self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str) -> int:
        if _RDP.supports(event, neighbours):
            event, neighbours = _similar(event), ADD_OR_REMOVE
        return max(1, _RDP.steps_allowed(event, epsilon, delta, neighbours))

    def describe(self) -> str:
        return f"PLD, cells of {self.discretization:g}"


def _not_composed(composition: Composition, rdp_bound: float) -> bool:
    """Return whether RDP's bound is taken as it is: ε is huge, or the draws are very many."""
    return rdp_bound > _LARGE or sum(composition.values()) > _MANY_DRAWS


@functools.lru_cache(maxsize=16384)
def _knows(event: dp_event.DpEvent, neighbours: str) -> bool:
    if known_here(event, neighbours):
        return True
    lot = event.event if isinstance(event, dp_event.PoissonSampledDpEvent) else event
    if isinstance(lot, dp_event.GaussianDpEvent) and neighbours != REPLACE_ONE:
        return True  # the case of nearly every run, answered without importing the library
    return _library_knows(event, neighbours) or sampled_profiles(event, neighbours) is not None


@functools.lru_cache(maxsize=16384)
def _library_knows(event: dp_event.DpEvent, neighbours: str) -> bool:
    from dp_accounting.pld import pld_privacy_accountant as library

    truncated = isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent)
    known = library.PLDAccountant(RELATION[neighbours]).supports(event)
    return known and not (truncated and neighbours == REPLACE_ONE)


def _refuse_many_draws(composition: Composition, neighbours: str) -> None:
    """Raise CannotAccount for so many draws from profiles that the transforms take minutes."""
    draws = sum(composition.values())
    if draws > _MANY_DRAWS and any(
        not _library_knows(event, neighbours) and sampled_profiles(event, neighbours) is not None
        for event in composition
    ):
        raise CannotAccount(
            f"pld cannot account for {draws:,} draws, more than {_MANY_DRAWS:,}, of which some have no RDP"
        )


def _similar(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Return an event of about the same privacy cost that RDP knows.

    It decides about the width of cells and the start of a search, never about ε.
    """
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        gaussian = dp_event.GaussianDpEvent(event.noise_multiplier)
        return dp_event.PoissonSampledDpEvent(event.sampling_probability, gaussian)
    for neighbours in (ADD_OR_REMOVE, REPLACE_ONE):
        if profiles := sampled_profiles(event, neighbours):
            return EpsilonDeltaEvent(profiles[0].largest, 0.0)
    return event


@functools.lru_cache(maxsize=1024)  # the runs of a figure share their calibration
def _epsilon(items: Items, delta: float, neighbours: str, cell: float) -> float:
    epsilon = max(_epsilon_of_pair(pair, delta, neighbours, cell) for pair in _pairs(items))
    forget_transforms()
    return epsilon


def _epsilon_of_pair(items: Items, delta: float, neighbours: str, cell: float) -> float:
    """Return ε for one order of the neighbours, where rounding moves δ by at most a thousandth."""
    loss = _composed(items, neighbours, cell)
    epsilon = max(0.0, float(loss.get_epsilon_for_delta(delta)))
    if rounding_error(loss) <= delta / SHARE or math.isinf(epsilon):
        return epsilon
    precise = functools.reduce(
        compose,
        (_repeated(event, count, neighbours, cell, precise=True) for event, count in items),
    )
    error = rounding_error(precise)
    largest = delta * (1.0 + 1.0 / SHARE)
    if float(precise.get_delta_for_epsilon(epsilon)) + error <= largest:
        return epsilon  # ε of double precision is confirmed and stays, bit for bit
    if error >= delta / 2.0:
        return math.inf
    return max(epsilon, float(precise.get_epsilon_for_delta(delta - error)))


def _composed(items: Items, neighbours: str, cell: float) -> PrivacyLossDistribution:
    """Return the composition of ``items`` from left to right; the latest ones are remembered.

    The composition of all items but the last is remembered by itself. While a run goes on, the count of the
    last item grows from round to round, and the rest stays.
    """
    from dp_accounting.pld.privacy_loss_distribution import identity

    prefix = items[:-1]

    def compose_prefix() -> PrivacyLossDistribution:
        """Compose the prefix, starting from the longest part of it that is known."""
        known = max(
            (
                len(first)
                for first, *settings in _PREFIXES.known
                if settings == [neighbours, cell] and prefix[: len(first)] == first
            ),
            default=0,
        )
        total = _PREFIXES.known.get((prefix[:known], neighbours, cell)) or identity(cell)
        for event, count in prefix[known:]:
            total = compose(total, _repeated(event, count, neighbours, cell))
        return total

    def compose_all() -> PrivacyLossDistribution:
        last = _repeated(*items[-1], neighbours, cell)
        return compose(_PREFIXES.get((prefix, neighbours, cell), compose_prefix), last)

    return _WHOLE.get((items, neighbours, cell), compose_all)


def deltas_of_loss(loss: PrivacyLossDistribution, epsilons: np.ndarray) -> np.ndarray:
    """Return δ at each of ``epsilons``, ascending, of the worse direction.

    The library's own function takes a step of Python for each of 100,000 losses.
    """
    return np.max([_deltas_of_pmf(pmf.to_dense_pmf(), epsilons) for pmf in pmfs(loss)], axis=0)


def _deltas_of_pmf(pmf: PLDPmf, epsilons: np.ndarray) -> np.ndarray:
    """Return δ(ε) = P(l = ∞) + Σ_{l>ε} p_l - e^ε Σ_{l>ε} p_l e^-l at each of ``epsilons``."""
    losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
    masses = np.asarray(pmf._probs, dtype=float)
    # Sums run from the largest loss down, because its mass is the smallest.
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    with np.errstate(over="ignore"):
        scaled_masses = masses * np.exp(-np.maximum(losses, 0.0))
    below = np.append(np.cumsum(scaled_masses[::-1])[::-1], 0.0)
    first = np.searchsorted(losses, epsilons, side="right")
    deltas = pmf._infinity_mass + above[first] - np.exp(epsilons) * below[first]
    return np.maximum(deltas, 0.0) + _ROUNDING


def _pairs(ordered: Items) -> list[Items]:
    """Return the composition as it is accounted for with either neighbour as the larger data set.

    dp_accounting takes ``dataset_size`` of a capped lot for the size of the larger of two neighbours. This is
    n beside a data set with one record less, and n + 1 beside a data set with one record more.
    """
    one_more = tuple(
        (attr.evolve(event, dataset_size=event.dataset_size + 1), count)
        if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent)
        else (event, count)
        for event, count in ordered
    )
    return [ordered] if ordered == one_more else [ordered, one_more]


_KEPT = 512  # largest number of losses in one cache


class _LossCache:
    """A cache of the latest privacy losses, limited in their count and in the numbers that they hold."""

    def __init__(self, numbers: int):
        self._most, self._numbers = numbers, 0
        self.known: OrderedDict[Any, PrivacyLossDistribution] = OrderedDict()

    def get(
        self, key: Hashable, compute: Callable[[], PrivacyLossDistribution]
    ) -> PrivacyLossDistribution:
        if key not in self.known:
            self.known[key] = compute()
            self._numbers += _size(self.known[key])
            while len(self.known) > (1 if self._numbers > self._most else _KEPT):
                self._numbers -= _size(self.known.popitem(last=False)[1])
        self.known.move_to_end(key)
        return self.known[key]

    def clear(self) -> None:
        self.known.clear()
        self._numbers = 0


def _size(loss: PrivacyLossDistribution) -> int:
    return loss._pmf_remove.size + loss._pmf_add.size


_PREFIXES, _SINGLE = _LossCache(8_000_000), _LossCache(8_000_000)  # 64 MB each
_WHOLE = _LossCache(2_000_000)


def forget() -> None:
    """Empty all caches, so that a timing starts anew."""
    _PREFIXES.clear()
    _SINGLE.clear()
    _WHOLE.clear()
    _epsilon.cache_clear()


def _repeated(
    event: dp_event.DpEvent,
    count: int,
    neighbours: str,
    discretization: float,
    precise: bool = False,
) -> PrivacyLossDistribution:
    """Return the loss of ``count`` draws, with ``rounding_error``; ``precise``: in extended precision."""
    if isinstance(event, dp_event.GaussianDpEvent):
        # n Gaussians are exactly one Gaussian of multiplier z/√n, which needs no convolution.
        event = dp_event.GaussianDpEvent(event.noise_multiplier / math.sqrt(count))
        once = _once(event, neighbours, discretization)
        return extended(once) if precise else once
    once = _SINGLE.get(
        (event, neighbours, discretization), lambda: _once(event, neighbours, discretization)
    )
    return self_compose(extended(once) if precise else once, count)


def _once(
    event: dp_event.DpEvent, neighbours: str, discretization: float
) -> PrivacyLossDistribution:
    if known_here(event, neighbours):
        return privacy_loss(event, discretization)
    if not _library_knows(event, neighbours) and (profiles := sampled_profiles(event, neighbours)):
        return _loss_of(profiles, discretization)
    from dp_accounting.pld import pld_privacy_accountant as library

    accountant = library.PLDAccountant(RELATION[neighbours], discretization)
    accountant.compose(_library_event(event, neighbours))
    return accountant._pld  # the library has no public access to it


def _loss_of(profiles: tuple[Profile, Profile], cell: float) -> PrivacyLossDistribution:
    """Return the loss of a pair of distributions with these profiles ("Connect the dots", algorithm 1)."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    removed_and_added = []
    for profile in profiles:
        first, last = math.floor(profile.smallest / cell), math.ceil(profile.largest / cell)
        deltas = np.clip(profile.deltas(np.arange(first, last + 1) * cell), 0.0, 1.0)
        removed_and_added.append(
            create_pmf_pessimistic_connect_dots_fixed_gap(cell, first, last, deltas)
        )
    return PrivacyLossDistribution(*removed_and_added)


def _library_event(event: dp_event.DpEvent, neighbours: str) -> dp_event.DpEvent:
    """Return the event in the convention of dp_accounting's PLD."""
    if neighbours != REPLACE_ONE:
        return event
    if isinstance(event, dp_event.GaussianDpEvent):
        return dp_event.GaussianDpEvent(2.0 * event.noise_multiplier)
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent(
            tuple(_library_event(part, neighbours) for part in event.events)
        )
    inner = getattr(event, "event", None)
    return event if inner is None else attr.evolve(event, event=_library_event(inner, neighbours))


def _ordered(composition: Composition) -> Items:
    """Return the items in one canonical order, so that ε does not depend on who released first.

    The largest multiplier comes first: noise that falls over rounds then extends a prefix that was composed
    before.
    """

    def order(item: tuple[dp_event.DpEvent, int]) -> tuple[str, float, str]:
        event = item[0]
        inner = getattr(event, "event", event)
        return (type(event).__name__, -float(getattr(inner, "noise_multiplier", 0.0)), repr(event))

    return tuple(sorted(composition.items(), key=order))
