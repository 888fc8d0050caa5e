"""Composition of dp_accounting's privacy losses with a bound on the rounding error.

A loss that was composed here has the attribute ``rounding_error``, the most by which rounding in Fourier
transforms may move δ (:mod:`fedpriv.privacy.accountants.rounding`). Losses can also be composed in extended
precision, which the library itself does not offer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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

    if _probs(loss._pmf_remove).dtype == np.longdouble:
        composed = _with_pmfs(*(_self_composed(pmf, count) for pmf in pmfs(loss)))
    else:
        composed = loss.self_compose(count)
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

    The steps are those of the library's ``self_compose``, which takes double precision only.
    """
    from dp_accounting.pld import common
    from scipy import fft

    first, last = common.compute_self_convolve_bounds(pmf._probs.astype(float), count, _TRUNCATED)
    length = last - first + 1
    size = fft.next_fast_len(max(length, pmf.size))
    convolved = np.real(fft.ifft(fft.fft(pmf._probs, size) ** count))
    infinite = _TRUNCATED - math.expm1(count * math.log1p(-pmf._infinity_mass))
    lowest = pmf._lower_loss * count + first
    return _with_probs(pmf, lowest, np.roll(convolved, -first)[:length], infinite)


def _with_probs(
    pmf: PLDPmf, lowest: int, probs: np.ndarray, infinite: float | None = None
) -> PLDPmf:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    infinite = pmf._infinity_mass if infinite is None else infinite
    return DensePLDPmf(pmf._discretization, lowest, probs, infinite, pmf._pessimistic_estimate)


def _with_pmfs(removed: PLDPmf, added: PLDPmf) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return PrivacyLossDistribution(removed, added)


def _transformed(composed: PLDPmf) -> bool:
    """Return whether the library composed by an FFT. It composes losses of few values one by one."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    return isinstance(composed, DensePLDPmf)


def _probs(pmf: PLDPmf) -> np.ndarray:
    return np.asarray(pmf.to_dense_pmf()._probs)
