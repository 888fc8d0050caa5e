"""The trade-off curve: the largest true positive rate that any attack can have at each false positive rate.

An attack decides whether a unit's data were among those used. Where (ε, δ(ε)) holds for every ε >= 0, in both
directions (with the unit against without, and without against with), it has at most

    TPR <= e^ε FPR + δ(ε)    and    1 - FPR <= e^ε (1 - TPR) + δ(ε)

(Kairouz, Oh, Viswanath 2015; Wasserman, Zhou 2010). The least of all these lines is the trade-off function of
the profile δ(ε) (Dong, Roth, Su 2022), of the worse direction; lines at some ε alone lie above it, so that a
profile on a grid is valid too. Of two data sets that are k units apart: the curve k times over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RATES = {"at_0.1_percent_fpr": 0.001, "at_1_percent_fpr": 0.01}
"""The false positive rates at which a run states the largest true positive rate."""

EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 500.0, 1000)])
"""Where profiles are found; a larger ε bounds nothing that can be seen."""

MOST_LINES = 1000  # of a profile that was stored
_TANGENTS = np.geomspace(1e-6, 0.5, 65)  # of what is stored: FPR where the curve is kept exactly
_DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class TradeOff:
    """Pairs (ε, δ) that hold together; without any, nothing is bounded."""

    epsilons: np.ndarray
    deltas: np.ndarray

    def tpr(self, fpr: np.ndarray | float, units: int = 1) -> np.ndarray:
        """The largest TPR at each FPR, of data sets that are ``units`` units apart."""
        bound = np.asarray(fpr, dtype=float)
        for _ in range(units):
            bound = self._once(bound)
        return bound

    def _once(self, fpr: np.ndarray) -> np.ndarray:
        if not self.bounds:
            return np.ones_like(fpr)
        lines = _lines(self.epsilons, self.deltas, fpr[..., None])
        return np.minimum(1.0, np.minimum(*lines).min(axis=-1))

    @property
    def bounds(self) -> bool:
        """Whether it says anything: some attack is impossible."""
        return bool(len(self.epsilons))

    def largest(self, units: int = 1) -> dict[str, float]:
        """The largest TPR at each of the ``RATES``."""
        return {name: float(self.tpr(fpr, units)) for name, fpr in RATES.items()}

    def plain(self) -> dict[str, list[float]]:
        """As values for JSON."""
        return {"epsilon": self.epsilons.tolist(), "delta": self.deltas.tolist()}


def trade_off_of(plain: object) -> TradeOff | None:
    """What :meth:`TradeOff.plain` wrote, perhaps somebody else; None for anything else."""
    if not isinstance(plain, dict):
        return None
    lists: list[Any] = [plain.get("epsilon"), plain.get("delta")]
    if not all(isinstance(one, list) and len(one) <= MOST_LINES for one in lists):
        return None
    ends = (EPSILONS[-1], 1.0)
    if not all(
        type(x) in (int, float) and 0 <= x <= end
        for one, end in zip(lists, ends, strict=True)
        for x in one
    ):
        return None
    if len(lists[0]) != len(lists[1]):
        return None
    return TradeOff(*(np.array(one, dtype=float) for one in lists))


def trade_off(deltas: np.ndarray) -> TradeOff:
    """The curve of δ at each of ``EPSILONS``: of its lines those that are the lowest somewhere."""
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))  # what holds at ε holds beyond
    whole = np.concatenate([_TANGENTS, list(RATES.values())])[:, None]
    low, high = _lines(EPSILONS, deltas, whole)
    kept = np.unique(np.minimum(low, high).argmin(axis=1))
    kept = kept[deltas[kept] < 1.0]
    return TradeOff(EPSILONS[kept], deltas[kept])


def _lines(
    epsilons: np.ndarray, deltas: np.ndarray, fpr: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The two bounds of the TPR at ``fpr`` [..., 1] by each pair (ε, δ)."""
    rise = np.exp(epsilons)
    return rise * fpr + deltas, 1.0 - (1.0 - fpr - deltas) / rise


def profile_of(epsilon_of: Callable[[float], float], epsilons: np.ndarray) -> np.ndarray:
    """δ at each of ``epsilons`` where only ε at one δ can be asked for: a few steps."""
    deltas = np.ones_like(epsilons)
    for delta in _DELTAS:
        deltas[epsilons >= epsilon_of(delta)] = delta
    return deltas
