"""Privacy loss distributions (Koskela, Jälkö, Honkela 2020; Doroshenko et al. 2022), by dp_accounting.

PLD gives the tightest ε here. The privacy loss of the whole composition is convolved numerically, with errors
rounded up, in cells that widen with ε. Where RDP knows the same events and is lower (very many draws), ε of
RDP is taken. PLD holds for compositions that are fixed in advance; an adaptive σ needs a filter. The loss of
lots without replacement, which dp_accounting lacks, is in
:mod:`~fedpriv.privacy.accountants.without_replacement`.

Rounding in the transforms may move δ by e (:mod:`~fedpriv.privacy.accountants.rounding`), so ε is taken at
δ - e. Where e is half of δ or more, RDP answers.

Convention: the noise multiplier z of a Gaussian is noise ÷ sensitivity *under the relation of the ledger*.
This is also dp_accounting's convention for RDP. Its PLD, however, takes noise ÷ clip norm under replace-one,
where the sensitivity is twice the clip norm. There z is doubled before the library sees it.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import attr
import numpy as np
from dp_accounting import dp_event

from fedpriv.common.fields import declared, field, number
from fedpriv.privacy.accountants.base import Composition
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.rounding import convolution_error, self_composition_error
from fedpriv.privacy.accountants.without_replacement import known_here, privacy_loss
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.grid import on_grid
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.rdp import RELATION

if TYPE_CHECKING:  # importing it takes half a second
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Items = tuple[tuple[dp_event.DpEvent, int], ...]
Loss = tuple["PrivacyLossDistribution", float]
"""A privacy loss, and the most by which rounding in the transforms that made it may move δ."""

_RDP = RdpAccountant()
_FINE = 16.0  # beyond this ε cells double in width with ε, else a loss would need millions of them
_FEW_KINDS = (
    24  # with more distinct events cells are wider: laying them out takes half a second each
)
_LARGE = 1e5  # a larger ε is taken from RDP, or is infinite where RDP has none
_TYPICAL_DELTA = 1e-6  # δ that decides about the cells of a whole profile
_ROUNDING = 1e-12  # more than the rounding error of the sums of a profile
_MANY_DRAWS = 2_000_000  # more draws take half a minute, and RDP is within a few per cent by then
_PLANS = 16  # number of plans of transforms that scipy caches for each type of number


@declared
class PldAccountant(CompositionAccountant):
    """Numerical composition of privacy loss distributions on a grid of the privacy loss.

        δ(ε) = E_{l ~ PLD} [ (1 - e^(ε-l))_+ ]

    Composition by FFT: Koskela, Jälkö, Honkela 2020. Discretisation that rounds up ("Connect the dots"):
    Doroshenko et al. 2022, arXiv 2207.04380.

    Attributes:
        discretization: Width of a cell of the privacy loss up to an ε of 16 and 24 distinct events; cells are
            wider beyond.

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
        cell = self._cell(bound, len(composition))
        epsilon = _epsilon(_ordered(composition), delta, neighbours, cell)
        return min(epsilon, bound) if holds else epsilon

    def note(self, composition: Composition, delta: float, neighbours: str) -> str:
        """Return in words why ε of a composition is RDP's, or what the grid of many σ costs; else nothing.

        Args:
            composition: The composition, whose events are supported.
            delta: δ.
            neighbours: The adjacency.
        """
        counted = on_grid(composition)
        bound, holds = self._rdp(counted, delta, neighbours)
        if not holds or not 0 < bound < math.inf:
            return ""
        if _not_composed(counted, bound):
            return "not computed: RDP's upper bound"
        cell = self._cell(bound, len(counted))
        epsilon = _epsilon(_ordered(counted), delta, neighbours, cell)
        if math.isinf(epsilon):
            return "rounding may move delta by half of it: RDP's epsilon"
        if bound <= epsilon:
            return "RDP's epsilon, which is lower"
        if len(counted) == len(composition):
            return ""
        loosened = bound / _RDP.epsilon_of(composition, delta, neighbours) - 1.0
        return f"noise multipliers rounded down to a grid of 1 %, about {loosened:.2%} of epsilon"

    def _cell(self, epsilon: float, kinds: int) -> float:
        """Return the width of the cells for compositions of about this ε and so many distinct events."""
        wider = 1.0 if kinds <= _FEW_KINDS or epsilon < 1.0 else 4.0
        return (
            wider
            * self.discretization
            * 2.0 ** max(0, math.ceil(math.log2(max(epsilon, 1e-9) / _FINE)))
        )

    def _deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        bound, holds = self._rdp(composition, _TYPICAL_DELTA, neighbours)
        by_rdp = self.quick_deltas(composition, epsilons, neighbours)
        if bound > _LARGE or (holds and sum(composition.values()) > _MANY_DRAWS):
            return by_rdp
        cell = self._cell(bound, len(composition))
        losses = [_composed(pair, neighbours, cell) for pair in _pairs(_ordered(composition))]
        _forget_transforms()
        deltas = [deltas_of_loss(loss, epsilons) + error for loss, error in losses]
        return np.minimum(by_rdp, np.max(deltas, axis=0))

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
    lot = event.event if isinstance(event, dp_event.PoissonSampledDpEvent) else event
    if isinstance(lot, dp_event.GaussianDpEvent) and neighbours != REPLACE_ONE:
        return True  # the case of nearly every run, answered without importing the library
    if known_here(event, neighbours):
        return True
    from dp_accounting.pld import pld_privacy_accountant as library

    truncated = isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent)
    known = library.PLDAccountant(RELATION[neighbours]).supports(event)
    return known and not (truncated and neighbours == REPLACE_ONE)


def _similar(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Return an event of about the same privacy cost that RDP knows.

    It decides about the width of cells and the start of a search, never about ε.
    """
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        gaussian = dp_event.GaussianDpEvent(event.noise_multiplier)
        return dp_event.PoissonSampledDpEvent(event.sampling_probability, gaussian)
    return event


@functools.lru_cache(maxsize=1024)  # the runs of a figure share their calibration
def _epsilon(items: Items, delta: float, neighbours: str, cell: float) -> float:
    """Return ε at δ less the rounding error of δ; infinite where that is half of δ or more."""
    worst = 0.0
    for pair in _pairs(items):  # the larger direction after composition
        loss, error = _composed(pair, neighbours, cell)
        certain = error < delta / 2.0
        epsilon = float(loss.get_epsilon_for_delta(delta - error)) if certain else math.inf
        worst = max(worst, epsilon)
    _forget_transforms()
    return worst


@functools.lru_cache(maxsize=4)
def _composed(items: Items, neighbours: str, cell: float) -> Loss:
    """Return the composition of ``items`` from left to right.

    The composition of all items but the last is remembered by itself. While a run goes on, the count of the
    last item grows from round to round, and the rest stays.
    """
    last, error = _repeated(*items[-1], neighbours, cell)
    if len(items) == 1:
        return last, error
    first, error_before = _composed(items[:-1], neighbours, cell)
    composed = first.compose(last)
    further = max(
        convolution_error(_probs(one), _probs(other)) if _transformed(both) else 0.0
        for one, other, both in zip(*map(_pmfs, (first, last, composed)), strict=True)
    )
    return composed, error_before + error + further


def deltas_of_loss(loss: PrivacyLossDistribution, epsilons: np.ndarray) -> np.ndarray:
    """Return δ at each of ``epsilons``, ascending, of the worse direction.

    The library's own function takes a step of Python for each of 100,000 losses.
    """
    return np.max([_deltas_of_pmf(pmf.to_dense_pmf(), epsilons) for pmf in _pmfs(loss)], axis=0)


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


def forget() -> None:
    """Empty all caches, so that a timing starts anew."""
    for cached in (_epsilon, _composed, _single):
        cached.cache_clear()


def _forget_transforms() -> None:
    """Make scipy drop its cached plans of long transforms.

    The transforms differ in length from round to round, and each plan takes megabytes. Scipy has no function
    that drops plans. Therefore plans of short transforms are made, which take the place of the long ones.
    """
    from scipy import fft

    for kind in (np.double, np.cdouble):
        for length in range(2, 2 + _PLANS):
            fft.fft(np.zeros(length, kind))


def _repeated(event: dp_event.DpEvent, count: int, neighbours: str, cell: float) -> Loss:
    """Return the loss of ``count`` draws."""
    if isinstance(event, dp_event.GaussianDpEvent):
        # n Gaussians are exactly one Gaussian of multiplier z/√n, which needs no convolution.
        event = dp_event.GaussianDpEvent(event.noise_multiplier / math.sqrt(count))
        return _once(event, neighbours, cell), 0.0
    from scipy import fft

    once = _single(event, neighbours, cell)
    composed = once.self_compose(count)
    error = max(
        self_composition_error(
            _probs(one),
            _probs(many),
            count,
            # The library's transform has at least this size; a slightly larger one errs slightly more.
            fft.next_fast_len(max(one.size, many.size)),
        )
        if _transformed(many)
        else 0.0
        for one, many in zip(_pmfs(once), _pmfs(composed), strict=True)
    )
    return composed, error


@functools.lru_cache(maxsize=8)
def _single(event: dp_event.DpEvent, neighbours: str, cell: float) -> PrivacyLossDistribution:
    return _once(event, neighbours, cell)


def _once(event: dp_event.DpEvent, neighbours: str, cell: float) -> PrivacyLossDistribution:
    if known_here(event, neighbours):
        return privacy_loss(event, cell)
    from dp_accounting.pld import pld_privacy_accountant as library

    accountant = library.PLDAccountant(RELATION[neighbours], cell)
    accountant.compose(_library_event(event, neighbours))
    return accountant._pld  # the library has no public access to it


def _pmfs(loss: PrivacyLossDistribution) -> tuple[PLDPmf, PLDPmf]:
    """Return the privacy losses of removing and of adding a record."""
    return loss._pmf_remove, loss._pmf_add  # the library has no public access to them


def _probs(pmf: PLDPmf) -> np.ndarray:
    return np.asarray(pmf.to_dense_pmf()._probs)


def _transformed(composed: PLDPmf) -> bool:
    """Return whether the library composed by an FFT. It composes losses of few values one by one."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    return isinstance(composed, DensePLDPmf)


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
