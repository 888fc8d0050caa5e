"""Rényi-DP accounting (Mironov 2017) and the Rényi privacy filter (Feldman & Zrnic 2021).

The divergences themselves and their conversion to (ε, δ) are in :mod:`fedpriv.privacy.core.rdp`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Self

import numpy as np
from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, one_of, own_check
from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants.base import (
    Accountant,
    Composition,
    Compositions,
    RunningTotal,
    alike,
)
from fedpriv.privacy.accountants.search import MANY_STEPS
from fedpriv.privacy.core.client_groups import ClientGroups, tensor
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.names import CONVERSIONS, RELATION_WORDS
from fedpriv.privacy.core.rdp import (
    WIDE_ORDERS,
    conversion_offset,
    deltas_from_rdp,
    epsilon_from_rdp,
    rdp_of_composition,
    rdp_of_event,
    supports,
)


def _parse_orders(name: str, orders: Any) -> tuple[float, ...]:
    allowed = "wide, a range such as 2..64, or a list of numbers > 1, up to 10000"
    if orders == "wide":
        return WIDE_ORDERS
    if isinstance(orders, str):
        first, separator, last = orders.partition("..")
        if not separator or not first.strip().isdigit() or not last.strip().isdigit():
            raise ArgumentError(name, orders, allowed)
        lowest, highest = int(first), int(last)
        if not 2 <= lowest <= highest <= 10_000:
            raise ArgumentError(name, orders, allowed)
        return tuple(float(a) for a in range(lowest, highest + 1))
    values = checks.sequence(name, orders, allowed)
    if not values:
        raise ArgumentError(name, orders, allowed)
    return tuple(sorted({checks.number(name, a, above=1, at_most=10_000) for a in values}))


def _filter_order(name: str, order: Any) -> float | None:
    if order == "auto":
        return None
    if isinstance(order, str):
        raise ArgumentError(name, order, "auto or a number > 1")
    return checks.number(name, order, above=1)


@declared
class RdpAccountant(Accountant):
    """Rényi differential privacy (Mironov 2017), with a privacy filter for runs whose σ adapts.

    RDP adds up order by order (Mironov 2017, proposition 1). With RDP ε_α at order α,

        ε(δ) = min_α ε_α + offset_α(δ)

    where ``conversion`` names the theorem behind the offset; see
    :func:`~fedpriv.privacy.core.rdp.conversion_offset`. The filter fixes one order in advance (Feldman &
    Zrnic 2021).

    Attributes:
        orders: Orders α of the Rényi divergence.
        conversion: ``improved`` or ``classical``.
        filter_order: Order of the filter; None for the order that allows most draws of the first event.

    Example:
        >>> from fedpriv.privacy.core.sampling import PoissonSampling
        >>> step = PoissonSampling(sample_rate=0.01).event(noise_multiplier=1.0)
        >>> round(RdpAccountant().epsilon_of({step: 1000}, 1e-5, "add_or_remove"), 3)
        2.101
        >>> RdpAccountant(orders="2..8").orders
        (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    """

    name = "rdp"
    has_filter = True

    orders: tuple[float, ...] = field(
        own_check(_parse_orders),
        default="wide",
        help="orders of the Rényi divergence: wide (1.1 to 1024), a range such as 2..64, or a list",
    )
    conversion: str = field(
        one_of(CONVERSIONS), default="improved", help="theorem that converts RDP to ε"
    )
    filter_order: float | None = field(
        own_check(_filter_order, "auto or a number > 1"),
        default="auto",
        help="order of the filter where σ adapts; auto: the best at the first σ for the whole budget",
    )

    def __attrs_post_init__(self) -> None:
        self._order_array = np.asarray(self.orders)

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        if supports(event, neighbours):
            return None
        return f"rdp cannot account for {event_words(event)} under {RELATION_WORDS[neighbours]}"

    def epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        return self._epsilon(self._rdp_of_composition(composition, neighbours), delta)

    def deltas_of(
        self, composition: Composition, epsilons: np.ndarray, neighbours: str
    ) -> np.ndarray:
        rdp = self._rdp_of_composition(composition, neighbours)
        return deltas_from_rdp(rdp, self._order_array, epsilons)

    def forecast(self, parts: Compositions, delta: float, neighbours: str) -> tuple[float, bool]:
        rdp = sum(
            (self._rdp_of_composition(part, neighbours) for part in parts),
            np.zeros(len(self.orders)),
        )
        return self._epsilon(rdp, delta), False

    def epsilons_after(self, parts: Compositions, delta: float, neighbours: str) -> list[float]:
        """Return ε after each part; the RDP of each part is computed once and added up."""
        totals = accumulate(self._rdp_of_composition(part, neighbours) for part in parts)
        return [self._epsilon(total, delta) for total in totals]

    def _epsilon(self, rdp: np.ndarray, delta: float) -> float:
        if not rdp.any():
            return 0.0
        return float(epsilon_from_rdp(rdp, self._order_array, delta, self.conversion)[0])

    def best_order_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return the order α behind :meth:`epsilon_of`.

        Args:
            composition: Number of draws of each event.
            delta: δ.
            neighbours: The neighbouring relation.
        """
        total = self._rdp_of_composition(composition, neighbours)
        return float(epsilon_from_rdp(total, self._order_array, delta, self.conversion)[1])

    def rdp(self, event: dp_event.DpEvent, neighbours: str) -> np.ndarray:
        """Return the RDP of one event at each order [len(orders)]."""
        return rdp_of_event(event, self.orders, neighbours)

    def _rdp_of_composition(self, composition: Composition, neighbours: str) -> np.ndarray:
        return rdp_of_composition(composition, self.orders, neighbours)

    def running(self, clients: int, neighbours: str) -> RdpTotal:
        return RdpTotal(self, clients, neighbours)

    def filter(
        self,
        clients: int,
        neighbours: str,
        first: dp_event.DpEvent,
        epsilon: float,
        delta: float,
    ) -> RdpTotal:
        # The order must not depend on private data. It follows from the first event, which is public.
        order = self.filter_order or self.best_order(first, epsilon, delta, neighbours)
        single = RdpAccountant(orders=(order,), conversion=self.conversion)
        return RdpTotal(single, clients, neighbours, is_filter=True)

    def best_order(
        self, event: dp_event.DpEvent, epsilon: float, delta: float, neighbours: str
    ) -> float:
        """Return the order that allows the most draws of ``event`` within the budget."""
        room = epsilon - conversion_offset(self._order_array, delta, self.conversion)
        rdp = self.rdp(event, neighbours)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steps = np.nan_to_num(
                room / rdp, nan=0.0, posinf=float(MANY_STEPS), neginf=-float(MANY_STEPS)
            )
        return float(self._order_array[int(np.argmax(steps))])

    def describe(self) -> str:
        first, last = self.orders[0], self.orders[-1]
        return (
            f"RDP, {len(self.orders)} orders from {first:g} to {last:g}, "
            f"{self.conversion} conversion"
        )


class RdpTotal(RunningTotal):
    """RDP summed for each client; with one order that was fixed in advance, a privacy filter.

    Clients that were charged the same share one row of sums, so a total is small for any number of clients.

    Theorems: additivity of RDP (Mironov 2017, proposition 1); the filter (Feldman & Zrnic 2021).

    Attributes:
        accountant: The accountant that computes the RDP of an event.
        orders: Orders α of the Rényi divergence.
        conversion: Theorem that converts RDP to ε.
        neighbours: The neighbouring relation.
        is_filter: Whether the total is a filter.
    """

    def __init__(
        self,
        accountant: RdpAccountant,
        clients: int,
        neighbours: str,
        is_filter: bool = False,
    ):
        self.accountant = accountant
        self.orders, self.conversion = accountant.orders, accountant.conversion
        self.neighbours = neighbours
        self.is_filter = is_filter
        self._order_array = np.asarray(self.orders)
        self._rdp = ClientGroups(clients, np.zeros((1, len(self.orders))))

    def add(self, event: dp_event.DpEvent, clients: np.ndarray, count: int = 1) -> None:
        if count:  # 0 draws of an event without noise cost nothing, but 0 · inf is nan
            step = count * self.accountant.rdp(event, self.neighbours)
            self._rdp.charge(event, clients, count, lambda spent: spent + step)

    def epsilon(self, delta: float) -> np.ndarray:
        return self._rdp.spread(self._epsilons(self._rdp.distinct, delta))

    def worst(self, delta: float) -> float:
        return float(self._epsilons(self._rdp.distinct, delta).max())

    def _epsilons(self, rdp: np.ndarray, delta: float) -> np.ndarray:
        """Return ε of each of some rows of sums [g, orders]."""
        epsilon = self._convert(rdp, delta)
        if not self.is_filter:  # nothing released costs nothing; a filter starts at its offset
            epsilon = np.where(rdp.any(axis=1), epsilon, 0.0)
        return epsilon

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        rdp = self._rdp.distinct
        if not rdp.any():
            return np.zeros_like(epsilons)
        return deltas_from_rdp(rdp.max(axis=0), self._order_array, epsilons)

    def deltas_within(self, epsilons: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
        room = epsilon - conversion_offset(self._order_array, delta, self.conversion)
        return deltas_from_rdp(room, self._order_array, epsilons)

    def share_of(self, epsilon: float, delta: float) -> float:
        """Return the spent share of the RDP that the budget allows.

        RDP adds up, and the run ends at the order whose room lasts longest.
        """
        room = epsilon - conversion_offset(self._order_array, delta, self.conversion)
        able = room > 0
        if not able.any():
            return 1.0
        return float(min(1.0, (self._rdp.distinct[:, able] / room[able]).min(axis=1).max()))

    def best_order(self, delta: float) -> float:
        """Return the order that gives the worst client's ε."""
        first = np.array([np.argmax(self.epsilon(delta))])  # of clients whose ε is the largest
        worst = self._rdp.distinct[self._rdp.index(first)]
        return float(epsilon_from_rdp(worst, self._order_array, delta, self.conversion)[1][0])

    def would_exceed(
        self,
        event: dp_event.DpEvent,
        count: int,
        epsilon: float,
        delta: float,
        clients: np.ndarray | None = None,
    ) -> np.ndarray:
        step = count * self.accountant.rdp(event, self.neighbours) if count else 0.0
        exceeds = ~(self._convert(self._rdp.distinct + step, delta) <= epsilon)  # nan exceeds
        return self._rdp.spread(exceeds, clients)

    def agrees_with(self, other: Self, delta: float) -> bool:
        return alike(*self._rdp.pairs(other._rdp))

    def filter_words(self) -> str:
        if not self.is_filter:
            return ""
        return (
            f"a Renyi filter of order {self.orders[0]:g}, fixed in advance, guards the budget (its "
            "value starts above 0)"
        )

    def _convert(self, rdp: np.ndarray, delta: float) -> np.ndarray:
        return epsilon_from_rdp(rdp, self._order_array, delta, self.conversion)[0]

    def state_dict(self) -> dict[str, object]:
        return {"rdp": self._rdp.state_dict(tensor)}

    def load_state_dict(self, state: StateDict) -> None:
        self._rdp.load_state_dict(state["rdp"], lambda rows: rows.cpu().numpy().copy())
