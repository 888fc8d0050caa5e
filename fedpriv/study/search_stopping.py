"""What random stopping covers, and what it costs (Papernot and Steinke 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.common.errors import ConfigError
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.rdp import deltas_from_rdp, epsilon_from_rdp, rdp_of_composition
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.privacy.random_stopping import NegativeBinomialTrials
from fedpriv.study.search_planned import PlannedTrial
from fedpriv.study.search_settings import Law

KEY = "hydra.sweeper.stopping"
_MOST_OFTEN = 0.99


@dataclass(frozen=True)
class SelectionBound:
    """ε of the best of a secret number of trials. ``events``: what each releases."""

    law: Law
    accountant: RdpAccountant
    events: Mapping[DpEvent, int]
    delta: float
    neighbours: str

    @property
    def trial(self) -> float:
        """ε of one trial alone."""
        return self.composed(1)

    @property
    def epsilon(self) -> float:
        return self._best[0]

    @property
    def order(self) -> float:
        """The order at which the RDP of the search becomes that ε."""
        return self._best[1]

    @cached_property
    def _best(self) -> tuple[float, float]:
        search, orders = self._rdp
        found = epsilon_from_rdp(search, orders, self.delta, self.accountant.conversion)
        return float(found[0]), float(found[1])

    @cached_property
    def _rdp(self) -> tuple[np.ndarray, np.ndarray]:
        """(that of the search, at these orders)."""
        orders = np.asarray(self.accountant.orders)
        rdp = rdp_of_composition(self.events, self.accountant.orders, self.neighbours)
        return self.law.rdp(rdp[np.argsort(orders)], np.sort(orders)), np.sort(orders)

    def trade_off(self) -> TradeOff:
        """How well an attack can do that sees the best trial alone."""
        return trade_off(deltas_from_rdp(*self._rdp, EPSILONS))

    def trade_off_composed(self, trials: int) -> TradeOff:
        """The same of one that sees so many trials."""
        together = {event: trials * count for event, count in self.events.items()}
        if not trials:
            return trade_off(np.zeros_like(EPSILONS))
        return trade_off(self.accountant.deltas_of(together, EPSILONS, self.neighbours))

    def composed(self, trials: int) -> float:
        """ε of so many trials whose outcomes are all shown."""
        together = {event: trials * count for event, count in self.events.items()}
        return self.accountant.epsilon_of(together, self.delta, self.neighbours)

    @property
    def most_often(self) -> int:
        """99 of 100 searches have at most so many trials."""
        return self.law.quantile(_MOST_OFTEN)

    def describe(self) -> str:
        """The bound, in words."""
        theorem = 2 if isinstance(self.law, NegativeBinomialTrials) else 6
        return (
            f"Papernot and Steinke 2022, theorem {theorem}, from {self.accountant.describe()} at order "
            f"{self.order:g}"
        )


def bound_of(law: Law, planned: list[PlannedTrial]) -> SelectionBound:
    """The bound of a search whose ends are ``planned``. Raises ConfigError for what no theorem covers."""
    first = planned[0]
    _refuse(first.parts)
    if any(other.events != first.events for other in planned[1:]):
        raise ConfigError(
            f"{KEY} needs searched keys that leave noise, sampling and rounds alone, so that every trial "
            "releases the same; search those keys with stopping=none"
        )
    accountant = first.parts.accountant
    if not isinstance(accountant, RdpAccountant):
        raise ConfigError(
            "accountant", accountant.name, "rdp", f"{KEY} is a bound on Rényi divergences"
        )
    for event in first.events:
        if reason := accountant.supports(event, first.neighbours):
            raise ConfigError(f"accountant: {reason}")
    delta = first.parts.settings.delta
    return SelectionBound(law, accountant, first.events, delta, first.neighbours)


def _refuse(parts: Parts) -> None:
    """Whatever shows a trial that lost, or is a simulation."""
    settings, algorithm = parts.settings, parts.algorithm
    if not algorithm.trust.secret_cohort:
        raise ConfigError(
            "algorithm",
            algorithm.name,
            "one with central trust, such as cdp_fedavg",
            f"with {algorithm.trust.name} trust the server sees what trials release that lose, and "
            f"{KEY} holds only while nobody does",
        )
    if parts.attack is not None:
        raise ConfigError(f"attack must be none with {KEY}: a simulated attack is not published")
    if parts.trackers:
        raise ConfigError(
            "tracker",
            ", ".join(parts.trackers),
            f"none with {KEY}",
            "it would show trials that lose",
        )
    for key, value in (
        ("audit", settings.audit or None),
        ("publish_test_metrics", settings.publish_test_metrics or None),
        ("runtime.run_dir", settings.runtime.run_dir),
        ("runtime.snapshot_interval", settings.runtime.snapshot_interval),
    ):
        if value is not None:
            raise ConfigError(key, value, f"null with {KEY}, of which only the best model is kept")
