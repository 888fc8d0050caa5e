"""Rényi divergences of the events fedpriv releases, and their conversion to (ε, δ).

For a Poisson-subsampled Gaussian of rate q and noise multiplier σ, at an integer order α
(Mironov, Talwar, Zhang 2019, "Rényi differential privacy of the sampled Gaussian mechanism")

    ε_α = 1/(α-1) · log A_α,   A_α = Σ_{i=0}^{α} C(α,i) (1-q)^{α-i} q^i exp((i²-i) / (2σ²))

Integer orders are ours because a run with an adaptive σ has thousands of distinct multipliers and
the libraries take milliseconds for each; everything else is dp_accounting's.
"""

from __future__ import annotations

import functools
import logging

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant as library
from scipy import special

ADD_OR_REMOVE = "add_or_remove"
REPLACE_ONE = "replace_one"
RELATION = {
    ADD_OR_REMOVE: privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE,
    REPLACE_ONE: privacy_accountant.NeighboringRelation.REPLACE_ONE,
}

_NO_NOISE = 1e-100  # a smaller multiplier cannot be squared in floating point and protects nothing
WIDE_ORDERS: tuple[float, ...] = tuple(
    sorted({*map(float, library.DEFAULT_RDP_ORDERS), *map(float, range(64, 129))})
)
"""dp_accounting's orders, 1.1 … 1024, with its gap between 63 and 128 filled."""


@functools.lru_cache(maxsize=8)
def _integer_table(orders: tuple[float, ...], sample_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """(log of the terms of A_α without the σ factor [orders, i], (i² - i)/2 [i])."""
    alpha = np.asarray(orders)[:, None]
    i = np.arange(max(orders) + 1)[None, :]
    inside = i <= alpha
    rest = np.where(inside, alpha - i, 0.0)
    log_terms = (
        special.gammaln(alpha + 1)
        - special.gammaln(i + 1)
        - special.gammaln(rest + 1)
        + rest * np.log1p(-sample_rate)
        + i * np.log(sample_rate)
    )
    return np.where(inside, log_terms, -np.inf), ((i * i - i) / 2.0)[0]


def sampled_gaussian_rdp(
    sample_rate: float, noise_multiplier: float, orders: tuple[float, ...]
) -> np.ndarray:
    """RDP of one Poisson-sampled Gaussian at each order [len(orders)]."""
    if sample_rate == 0.0:
        return np.zeros(len(orders))
    if sample_rate == 1.0:
        return np.asarray(orders) / (2.0 * noise_multiplier**2)
    rdp = np.empty(len(orders))
    is_integer = np.array([float(a).is_integer() and a >= 2 for a in orders], dtype=bool)
    whole = tuple(a for a, flag in zip(orders, is_integer, strict=True) if flag)
    rest = [a for a, flag in zip(orders, is_integer, strict=True) if not flag]
    if whole:
        log_terms, exponent = _integer_table(whole, sample_rate)
        log_a = special.logsumexp(log_terms + exponent / noise_multiplier**2, axis=1)
        # A_α ≥ 1; rounding may leave a log of -1e-17
        rdp[is_integer] = np.maximum(log_a, 0.0) / (np.asarray(whole) - 1.0)
    if rest:
        event = dp_event.PoissonSampledDpEvent(
            sample_rate, dp_event.GaussianDpEvent(noise_multiplier)
        )
        rdp[~is_integer] = _library_rdp(event, rest, ADD_OR_REMOVE)
    return rdp


def _library_rdp(event: dp_event.DpEvent, orders: list[float], neighbours: str) -> np.ndarray:
    accountant = library.RdpAccountant(orders, RELATION[neighbours])
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(
        logging.ERROR
    )  # it warns of every order whose series does not converge: inf here
    try:
        accountant.compose(event)
    finally:
        logger.setLevel(level)
    return np.asarray(accountant._rdp, dtype=float)  # the only place the library shows the vector


@functools.lru_cache(maxsize=16384)
def rdp_of_event(
    event: dp_event.DpEvent, orders: tuple[float, ...], neighbours: str = ADD_OR_REMOVE
) -> np.ndarray:
    """RDP of one event at each order [len(orders)], read-only; ``inf`` for one without noise.

    Raises ``dp_accounting.UnsupportedEventError`` for an event that ``neighbours`` cannot price.
    """
    rdp = _rdp_of_event(event, orders, neighbours)
    rdp.setflags(write=False)  # the cache hands the same array to everyone
    return rdp


def _rdp_of_event(
    event: dp_event.DpEvent, orders: tuple[float, ...], neighbours: str
) -> np.ndarray:
    innermost = event
    while hasattr(innermost, "event"):
        innermost = innermost.event
    if isinstance(innermost, dp_event.NonPrivateDpEvent) or (
        isinstance(innermost, dp_event.GaussianDpEvent) and innermost.noise_multiplier < _NO_NOISE
    ):
        return np.full(len(orders), np.inf)
    if isinstance(event, dp_event.NoOpDpEvent):
        return np.zeros(len(orders))
    if isinstance(event, dp_event.GaussianDpEvent):
        return np.asarray(orders) / (2.0 * event.noise_multiplier**2)
    if (
        isinstance(event, dp_event.PoissonSampledDpEvent)
        and isinstance(event.event, dp_event.GaussianDpEvent)
        and neighbours == ADD_OR_REMOVE
    ):
        return sampled_gaussian_rdp(
            event.sampling_probability, event.event.noise_multiplier, orders
        )
    return _library_rdp(event, list(orders), neighbours)


def supports(event: dp_event.DpEvent, neighbours: str) -> bool:
    """Whether :func:`rdp_of_event` can price the event under this neighbouring relation."""
    return library.RdpAccountant([2.0], RELATION[neighbours]).supports(event)


def conversion_offset(orders: np.ndarray, delta: float, conversion: str) -> np.ndarray:
    """What is added to RDP at each order to get ε at δ.

    ``classical`` (Mironov 2017): log(1/δ)/(α-1).
    ``improved`` (Canonne, Kamath, Steinke 2020): log(1 - 1/α) - (log δ + log α)/(α-1).
    """
    orders = np.asarray(orders, dtype=float)
    if conversion == "classical":
        return np.log(1.0 / delta) / (orders - 1.0)
    return np.log1p(-1.0 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1.0)


def epsilon_from_rdp(
    rdp: np.ndarray, orders: np.ndarray, delta: float, conversion: str
) -> tuple[np.ndarray, np.ndarray]:
    """(ε, best order) over the last axis of ``rdp`` [..., len(orders)]; ε is never negative."""
    candidates = rdp + conversion_offset(orders, delta, conversion)
    best = np.argmin(candidates, axis=-1)
    epsilon = np.take_along_axis(candidates, best[..., None], axis=-1)[..., 0]
    return np.maximum(epsilon, 0.0), np.asarray(orders)[best]
