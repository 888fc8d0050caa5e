"""Rényi divergences of the events that fedpriv releases, and their conversion to (ε, δ).

For a Poisson-subsampled Gaussian of rate q and noise multiplier σ, at an order α (Mironov, Talwar, Zhang
2019, "Rényi differential privacy of the sampled Gaussian mechanism", section 3.3)

    ε_α = 1/(α-1) · log A_α,   A_α = E_{w ~ N(0,1)} [ (1 - q + q exp(w/σ - 1/(2σ²)))^α ]

fedpriv computes the sampled Gaussian itself (``sampled_gaussian``): a run with an adaptive σ has thousands of
distinct multipliers, and the libraries take milliseconds for each. Discrete noise is in ``discrete_events``.
The RDP of all other events is dp_accounting's.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant as library

from fedpriv.privacy.core.discrete_events import DISCRETE, discrete_together
from fedpriv.privacy.core.grid import on_grid
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT
from fedpriv.privacy.core.sampled_gaussian import MANY, log_a_by_quadrature, log_a_of_whole_orders

RELATION = {
    ADD_OR_REMOVE: privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE,
    REPLACE_ONE: privacy_accountant.NeighboringRelation.REPLACE_ONE,
    ZERO_OUT: privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE,
}

_NO_NOISE = 1e-100  # a smaller multiplier cannot be squared in floating point and protects nothing
WIDE_ORDERS: tuple[float, ...] = tuple(
    sorted({*map(float, library.DEFAULT_RDP_ORDERS), *map(float, range(64, 129))})
)
"""Orders of dp_accounting, 1.1 … 1024, with their gap between 63 and 128 filled."""


def sampled_gaussian_rdp(
    sample_rate: float, noise_multipliers: float | np.ndarray, orders: tuple[float, ...]
) -> np.ndarray:
    """Return the RDP of Poisson-sampled Gaussians at each order.

    Args:
        sample_rate: q.
        noise_multipliers: σ, one number or many [n].
        orders: α.

    Returns:
        ε_α [len(orders)] for one σ, or [n, len(orders)] for many.
    """
    multipliers = np.asarray(noise_multipliers, dtype=float)
    alpha = np.asarray(orders, dtype=float)
    without_sampling = alpha / (2.0 * multipliers[..., None] ** 2)
    if sample_rate == 0.0:
        return np.zeros_like(without_sampling)
    if sample_rate == 1.0:
        return without_sampling
    distinct, index = np.unique(multipliers, return_inverse=True)
    log_a = np.empty((len(distinct), len(alpha)))
    whole = (alpha == np.floor(alpha)) & (alpha >= 2)
    log_a[:, whole] = log_a_of_whole_orders(sample_rate, distinct, tuple(alpha[whole]))
    log_a[:, ~whole] = log_a_by_quadrature(sample_rate, distinct, alpha[~whole])
    # Sampling never raises the cost. A_α ≥ 1, but rounding may leave a logarithm of -1e-17.
    return np.minimum(np.maximum(log_a[index], 0.0) / (alpha - 1.0), without_sampling)


def _library_rdp(event: dp_event.DpEvent, orders: list[float], neighbours: str) -> np.ndarray:
    accountant = library.RdpAccountant(orders, RELATION[neighbours])
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(
        logging.ERROR
    )  # the library warns of every order whose series diverges, which gives inf
    try:
        accountant.compose(event)
    finally:
        logger.setLevel(level)
    return np.asarray(
        accountant._rdp, dtype=float
    )  # the library has no public access to the vector


def without_noise(event: dp_event.DpEvent) -> bool:
    """Return whether the event protects nothing: it has no noise, or too little for floating point."""
    while hasattr(event, "event"):
        event = event.event
    multiplier = getattr(event, "noise_multiplier", None)
    return isinstance(event, dp_event.NonPrivateDpEvent) or (
        multiplier is not None and multiplier < _NO_NOISE
    )


@functools.lru_cache(maxsize=16384)
def rdp_of_event(
    event: dp_event.DpEvent, orders: tuple[float, ...], neighbours: str = ADD_OR_REMOVE
) -> np.ndarray:
    """Return the RDP of one event at each order; ``inf`` without noise.

    Args:
        event: One draw; its noise multiplier is noise ÷ sensitivity under ``neighbours``.
        orders: α.
        neighbours: The neighbouring relation.

    Returns:
        ε_α [len(orders)], read-only because it is cached.

    Raises:
        dp_accounting.UnsupportedEventError: The event has no RDP under ``neighbours``.
    """
    if without_noise(event):
        rdp = np.full(len(orders), np.inf)
    elif isinstance(event, dp_event.NoOpDpEvent):
        rdp = np.zeros(len(orders))
    elif isinstance(event, DISCRETE):
        rdp = event.rdp(np.asarray(orders))
    elif discrete_together(event):
        rdp = np.sum([rdp_of_event(part, orders, neighbours) for part in event.events], axis=0)
    elif isinstance(event, dp_event.GaussianDpEvent):
        rdp = np.asarray(orders) / (2.0 * event.noise_multiplier**2)
    elif (
        isinstance(event, dp_event.PoissonSampledDpEvent)
        and isinstance(event.event, dp_event.GaussianDpEvent)
        and neighbours != REPLACE_ONE
    ):
        rdp = sampled_gaussian_rdp(event.sampling_probability, event.event.noise_multiplier, orders)
    else:
        rdp = _library_rdp(event, list(orders), neighbours)
    rdp.setflags(write=False)  # all callers share the cached array
    return rdp


def rdp_of_composition(
    composition: Mapping[dp_event.DpEvent, int], orders: tuple[float, ...], neighbours: str
) -> np.ndarray:
    """Return the RDP of a composition at each order [len(orders)] (Mironov 2017, proposition 1: RDP adds up).

    Few distinct events are remembered one by one. Thousands of Poisson-sampled Gaussians of one rate are
    accounted for together in a fraction of a second. Many events of another kind are rounded to a grid,
    upwards.
    """
    counted = {event: count for event, count in composition.items() if count}
    # The counts of Poisson-sampled Gaussians that are accounted for together: rate → multiplier → count.
    by_rate: dict[float, dict[float, int]] = {}
    if len(counted) >= MANY:
        others: dict[dp_event.DpEvent, int] = {}
        for event, count in counted.items():
            if (
                isinstance(event, dp_event.PoissonSampledDpEvent)
                and isinstance(event.event, dp_event.GaussianDpEvent)
                and neighbours != REPLACE_ONE
                and not without_noise(event)
            ):
                counts = by_rate.setdefault(event.sampling_probability, {})
                counts[event.event.noise_multiplier] = count
            else:
                others[event] = count
        counted = on_grid(others)
    total = np.zeros(len(orders))
    for sample_rate, counts in by_rate.items():
        rdp = sampled_gaussian_rdp(sample_rate, np.array(list(counts)), orders)
        total = total + np.array(list(counts.values()), dtype=float) @ rdp
    for event, count in counted.items():
        total = total + count * rdp_of_event(event, orders, neighbours)
    return total


@functools.lru_cache(maxsize=16384)
def supports(event: dp_event.DpEvent, neighbours: str) -> bool:
    """Return whether :func:`rdp_of_event` can account for the event under this neighbouring relation."""
    if isinstance(event, DISCRETE) or discrete_together(event):
        return neighbours != REPLACE_ONE
    return library.RdpAccountant([2.0], RELATION[neighbours]).supports(event)


def conversion_offset(orders: np.ndarray, delta: float, conversion: str) -> np.ndarray:
    """Return the number that is added to RDP at each order to get ε at δ.

    Args:
        orders: α [n].
        delta: δ.
        conversion: ``classical`` (Mironov 2017, proposition 3): log(1/δ)/(α-1). ``improved`` (Canonne,
            Kamath, Steinke 2020, proposition 12): log(1 - 1/α) - (log δ + log α)/(α-1).

    Returns:
        The offsets [n].
    """
    orders = np.asarray(orders, dtype=float)
    if conversion == "classical":
        return np.log(1.0 / delta) / (orders - 1.0)
    return np.log1p(-1.0 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1.0)


def epsilon_from_rdp(
    rdp: np.ndarray, orders: np.ndarray, delta: float, conversion: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return ε and the best order; ε is never negative.

        ε(δ) = min_α ε_α + offset_α(δ),    with the offset of :func:`conversion_offset`

    Args:
        rdp: ε_α along the last axis [..., len(orders)].
        orders: α.
        delta: δ.
        conversion: ``classical`` or ``improved``.

    Returns:
        ε [...] and the order α that gives it [...].
    """
    candidates = rdp + conversion_offset(orders, delta, conversion)
    best = np.argmin(candidates, axis=-1)
    epsilon = np.take_along_axis(candidates, best[..., None], axis=-1)[..., 0]
    return np.maximum(epsilon, 0.0), np.asarray(orders)[best]


def deltas_from_rdp(rdp: np.ndarray, orders: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Return δ at each of ``epsilons`` [n] for ``rdp`` [len(orders)], by the improved conversion.

    The formula is that of Canonne, Kamath, Steinke 2020, proposition 12, solved for δ:

        δ(ε) = min_α exp((α-1) (ε_α - ε + log(1 - 1/α)) - log α)
    """
    orders, rdp = np.asarray(orders, dtype=float), np.asarray(rdp, dtype=float)
    # This is conversion_offset, solved for log δ.
    inside = rdp[:, None] - epsilons + np.log1p(-1.0 / orders)[:, None]
    with np.errstate(over="ignore"):
        log_delta = (orders - 1.0)[:, None] * inside - np.log(orders)[:, None]
    return np.exp(np.minimum(log_delta, 0.0)).min(axis=0)
