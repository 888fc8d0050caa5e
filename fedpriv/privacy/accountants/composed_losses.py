"""Composition of dp_accounting's privacy losses with a bound on the rounding error.

A loss that was composed here has the attribute ``rounding_error``, the most by which rounding in Fourier
transforms may move δ (:mod:`fedpriv.privacy.accountants.rounding`). Losses can also be composed in extended
precision, which the library itself does not offer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.accountants import rounding

if TYPE_CHECKING:  # importing it takes half a second
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_PLANS = 16  # number of plans that scipy caches for each type of number
_TRUNCATED = 1e-15  # the library's default: mass cut off a tail, which counts as an infinite loss


def pmfs(loss: PrivacyLossDistribution) -> tuple[PLDPmf, PLDPmf]:
    """Return the privacy losses of removing and of adding a record."""
    return loss._pmf_remove, loss._pmf_add  # the library has no public access to them


def rounding_error(loss: PrivacyLossDistribution) -> float:
    """Return the most by which rounding in the transforms that made the loss may move δ."""
    return getattr(loss, "rounding_error", 0.0)


def compose(
    first: PrivacyLossDistribution, second: PrivacyLossDistribution
) -> PrivacyLossDistribution:
    """Return the composition of two losses, with its rounding error."""
    composed = first.compose(second)
    composed.rounding_error = (
        rounding_error(first)
        + rounding_error(second)
        + max(
            rounding.convolution_error(*map(_probs, pair)) if _transformed(composed_pmf) else 0.0
            for *pair, composed_pmf in zip(pmfs(first), pmfs(second), pmfs(composed), strict=True)
        )
    )
    return composed


def self_compose(loss: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    """Return the composition of ``count`` draws of one loss, with its rounding error."""
    from scipy import fft

    removed, added = pmfs(loss)
    both = [_self_composed(pmf, count) for pmf in dict.fromkeys((removed, added))]
    composed = _with_pmfs(both[0], both[-1])
    composed.rounding_error = max(
        rounding.self_composition_error(
            _probs(single),
            _probs(composed_pmf),
            count,
            # The library's transform has at least this size; a slightly larger one errs slightly more.
            fft.next_fast_len(max(single.size, composed_pmf.size)),
        )
        if _transformed(composed_pmf)
        else 0.0
        for single, composed_pmf in zip(pmfs(loss), pmfs(composed), strict=True)
    )
    return composed


def extended(loss: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Return the loss with numbers of extended precision, where the machine has them."""
    dense = (pmf.to_dense_pmf() for pmf in pmfs(loss))
    return _with_pmfs(
        *(_with_probs(pmf, pmf._lower_loss, np.asarray(pmf._probs, np.longdouble)) for pmf in dense)
    )


def forget_transforms() -> None:
    """Make scipy drop its cached plans of long transforms.

    The transforms differ in length from round to round, and each plan takes megabytes. Scipy has no function
    that drops plans. Therefore plans of short transforms are made, which take the place of the long ones.
    """
    from scipy import fft

    for kind in (np.double, np.cdouble, np.longdouble, np.clongdouble):
        for length in range(2, 2 + _PLANS):
            fft.fft(np.zeros(length, kind))


def _self_composed(pmf: PLDPmf, count: int) -> PLDPmf:
    """Return the ``count``-fold composition of ``pmf`` in the precision of its numbers.

    The steps are those of the library's ``self_compose``, bit for bit. It takes double precision only, and
    computes the moments anew for each ``count``.
    """
    from dp_accounting.pld import pld_pmf
    from scipy import fft

    if isinstance(pmf, pld_pmf.SparsePLDPmf):
        values = pmf.size ** min(count, 10)  # 2 ** 10 is beyond what the library leaves sparse
        if count == 1 or values <= pld_pmf._MAX_PMF_SPARSE_SIZE:
            return pmf.self_compose(count, _TRUNCATED)
        pmf = _kept(pmf, "dense", pmf.to_dense_pmf)
    first, last = _bounds(pmf, count)
    length = last - first + 1
    size = fft.next_fast_len(max(length, pmf.size))
    convolved = np.real(fft.ifft(fft.fft(pmf._probs, size) ** count))
    infinite = _TRUNCATED - math.expm1(count * math.log1p(-pmf._infinity_mass))
    lowest = pmf._lower_loss * count + first
    return _with_probs(pmf, lowest, np.roll(convolved, -first)[:length], infinite)


def _bounds(pmf: PLDPmf, count: int) -> tuple[int, int]:
    """Return the first and last cell of the ``count``-fold composition, beyond which lies next to no mass.

    These are Chernoff bounds at the orders of the library's ``compute_self_convolve_bounds``.
    """
    first, last = 0, (pmf.size - 1) * count
    for order, moment in _kept(pmf, "log_moments", lambda: _log_moments(pmf)):
        bound = (count * moment + math.log(2 / _TRUNCATED)) / order
        if not math.isfinite(bound):
            continue
        if order > 0:
            last = min(last, math.ceil(bound))
        else:
            first = max(first, math.floor(bound))
    return first, last


def _log_moments(pmf: PLDPmf) -> list[tuple[float, float]]:
    """Return orders and the logarithms of the moment generating function of the cells at them."""
    from scipy.special import logsumexp

    probs, cells = np.asarray(pmf._probs, float), np.arange(pmf.size)
    orders = np.concatenate((np.arange(-20, 0), np.arange(1, 21))) / pmf.size
    return [(order, logsumexp(cells * order, b=probs)) for order in orders]


def _kept(pmf: PLDPmf, name: str, compute: Callable[[], Any]) -> Any:
    """Return what was computed of ``pmf`` before, which is an attribute of it from then on."""
    if name not in vars(pmf):
        setattr(pmf, name, compute())
    return getattr(pmf, name)


def _with_probs(
    pmf: PLDPmf, lowest: int, probs: np.ndarray, infinite: float | None = None
) -> PLDPmf:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    infinite = pmf._infinity_mass if infinite is None else infinite
    return DensePLDPmf(pmf._discretization, lowest, probs, infinite, pmf._pessimistic_estimate)


def _with_pmfs(removed: PLDPmf, added: PLDPmf) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return PrivacyLossDistribution(removed, None if added is removed else added)


def _transformed(composed: PLDPmf) -> bool:
    """Return whether the library composed by an FFT. It composes losses of few values one by one."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    return isinstance(composed, DensePLDPmf)


def _probs(pmf: PLDPmf) -> np.ndarray:
    return np.asarray(pmf.to_dense_pmf()._probs)
