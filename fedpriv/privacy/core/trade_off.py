"""The trade-off curve: the largest true positive rate of any attack at each false positive rate.

An attack decides whether a unit's data were among those used. Where (ε, δ(ε)) holds for every ε >= 0 and in
both directions (with the unit against without, and without against with), an attack has at most

    TPR <= e^ε FPR + δ(ε)    and    1 - FPR <= e^ε (1 - TPR) + δ(ε)

(Kairouz, Oh, Viswanath 2015; Wasserman, Zhou 2010). The least of all these lines is the trade-off function of
the profile δ(ε) of the worse direction (Dong, Roth, Su 2022). Lines at only some ε lie above the trade-off
function, so that a profile on a grid is valid too. For two data sets that are k units apart the curve is
applied k times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RATES = {"at_0.1_percent_fpr": 0.001, "at_1_percent_fpr": 0.01}
"""False positive rates at which a run states the largest true positive rate."""

EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 500.0, 1000)])
"""Values of ε at which profiles are computed; a larger ε bounds nothing that can be seen."""

MOST_LINES = 1000  # largest number of pairs of a stored profile
_TANGENTS = np.geomspace(1e-6, 0.5, 65)  # FPR at which a stored curve is exact
_DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class TradeOff:
    """Pairs (ε, δ) that hold together. Without any pair, nothing is bounded.

    Attributes:
        epsilons: ε [n].
        deltas: δ [n].

    Example:
        >>> curve = TradeOff(epsilons=np.array([1.0]), deltas=np.array([1e-5]))
        >>> round(curve.largest()["at_1_percent_fpr"], 5)
        0.02719
    """

    epsilons: np.ndarray
    deltas: np.ndarray

    def tpr(self, fpr: np.ndarray | float, units: int = 1) -> np.ndarray:
        """Return the largest TPR at each FPR.

        Args:
            fpr: False positive rates, of any shape.
            units: Number of units by which two data sets differ.

        Returns:
            The largest true positive rate of any attack, of the shape of ``fpr``.
        """
        bound = np.asarray(fpr, dtype=float)
        for _ in range(units):
            if not self.bounds:
                return np.ones_like(bound)
            lines = _lines(self.epsilons, self.deltas, bound[..., None])
            bound = np.minimum(1.0, np.minimum(*lines).min(axis=-1))
        return bound

    @property
    def bounds(self) -> bool:
        """True if there is any pair: some attack is impossible."""
        return bool(len(self.epsilons))

    def largest(self, units: int = 1) -> dict[str, float]:
        """Return the largest TPR at each of the ``RATES``."""
        return {name: float(self.tpr(fpr, units)) for name, fpr in RATES.items()}

    def plain(self) -> dict[str, list[float]]:
        """Return the pairs as values for JSON."""
        return {"epsilon": self.epsilons.tolist(), "delta": self.deltas.tolist()}


def trade_off_of(plain: object) -> TradeOff | None:
    """Return the curve that :meth:`TradeOff.plain` wrote; None for anything else.

    The value may come from anybody.
    """
    if not isinstance(plain, dict):
        return None
    columns: list[Any] = [plain.get("epsilon"), plain.get("delta")]
    if not all(isinstance(column, list) and len(column) <= MOST_LINES for column in columns):
        return None
    in_range = (
        type(number) in (int, float) and 0 <= number <= largest
        for column, largest in zip(columns, (EPSILONS[-1], 1.0), strict=True)
        for number in column
    )
    if not all(in_range) or len(columns[0]) != len(columns[1]):
        return None
    return TradeOff(*(np.array(column, dtype=float) for column in columns))


def trade_off(deltas: np.ndarray) -> TradeOff:
    """Return the curve of a profile, reduced to the lines that are lowest at one of 67 fixed FPRs.

    At other FPRs the reduced curve lies on or above that of the whole profile, so that it stays a bound.

    Args:
        deltas: δ at each of ``EPSILONS``. A δ that rises again is replaced by the least one before it.
    """
    deltas = np.minimum.accumulate(
        np.clip(deltas, 0.0, 1.0)
    )  # δ that holds at ε holds at every larger ε
    rates = np.concatenate([_TANGENTS, list(RATES.values())])[:, None]
    low, high = _lines(EPSILONS, deltas, rates)
    lowest_lines = np.unique(np.minimum(low, high).argmin(axis=1))
    lowest_lines = lowest_lines[deltas[lowest_lines] < 1.0]
    return TradeOff(EPSILONS[lowest_lines], deltas[lowest_lines])


def _lines(
    epsilons: np.ndarray, deltas: np.ndarray, fpr: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the two bounds of the TPR at ``fpr`` [..., 1] by each pair (ε, δ)."""
    rise = np.exp(epsilons)
    return rise * fpr + deltas, 1.0 - (1.0 - fpr - deltas) / rise


def profile_of(epsilon_of: Callable[[float], float], epsilons: np.ndarray) -> np.ndarray:
    """Return δ at each of ``epsilons`` where only ε at one δ can be computed.

    The result is a step function with values 1e-2, 1e-3, …, 1e-8, and 1 below the ε of 1e-2.

    Args:
        epsilon_of: Function from δ to ε; it is called once for each of the seven values of δ.
        epsilons: Where δ is asked for [n].
    """
    deltas = np.ones_like(epsilons)
    for delta in _DELTAS:
        deltas[epsilons >= epsilon_of(delta)] = delta
    return deltas
