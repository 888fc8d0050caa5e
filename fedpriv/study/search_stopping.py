"""Privacy cost of a search by random stopping (Papernot and Steinke 2022), and what the bound covers."""

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


@dataclass(frozen=True)
class SelectionBound:
    """ε of releasing the best of a secret number of trials.

    The RDP of the search follows from the RDP of one trial by theorem 2 (negative binomial law) or theorem 6
    (Poisson law) of Papernot and Steinke 2022; :mod:`fedpriv.privacy.random_stopping` has the formulas.

    Attributes:
        law: Law of the number of trials.
        accountant: Computes the RDP of one trial and converts the RDP of the search to ε.
        events: Events that each trial releases, and how often.
        delta: δ of the whole search.
        neighbours: Adjacency under which the events are counted.
    """

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
        """ε of the whole search."""
        return self._epsilon_and_order[0]

    @property
    def order(self) -> float:
        """Rényi order at which the RDP of the search is converted to ε."""
        return self._epsilon_and_order[1]

    @cached_property
    def _epsilon_and_order(self) -> tuple[float, float]:
        rdp, orders = self._rdp
        result = epsilon_from_rdp(rdp, orders, self.delta, self.accountant.conversion)
        return float(result[0]), float(result[1])

    @cached_property
    def _rdp(self) -> tuple[np.ndarray, np.ndarray]:
        """RDP of the search [n], and the ascending orders [n]."""
        orders = np.asarray(self.accountant.orders)
        rdp = rdp_of_composition(self.events, self.accountant.orders, self.neighbours)
        return self.law.rdp(rdp[np.argsort(orders)], np.sort(orders)), np.sort(orders)

    def trade_off(self) -> TradeOff:
        """Return the trade-off curve of an attack that sees the best trial alone."""
        return trade_off(deltas_from_rdp(*self._rdp, EPSILONS))

    def trade_off_composed(self, trials: int) -> TradeOff:
        """Return the trade-off curve of an attack that sees the outcomes of ``trials`` trials."""
        together = {event: trials * count for event, count in self.events.items()}
        if not trials:
            return trade_off(np.zeros_like(EPSILONS))
        return trade_off(self.accountant.deltas_of(together, EPSILONS, self.neighbours))

    def composed(self, trials: int) -> float:
        """Return ε of ``trials`` trials, one or more, whose outcomes are all shown."""
        together = {event: trials * count for event, count in self.events.items()}
        return self.accountant.epsilon_of(together, self.delta, self.neighbours)

    @property
    def most_often(self) -> int:
        """Number of trials that 99 of 100 searches do not exceed."""
        return self.law.quantile(0.99)

    def describe(self) -> str:
        """Describe the bound in a line: theorem, accountant and order."""
        theorem = 2 if isinstance(self.law, NegativeBinomialTrials) else 6
        return (
            f"Papernot and Steinke 2022, theorem {theorem}, from {self.accountant.describe()} at order "
            f"{self.order:g}"
        )


def bound_of(law: Law, planned: list[PlannedTrial]) -> SelectionBound:
    """Return the bound of a search.

    Args:
        law: Law of the number of trials.
        planned: Trials at the ends of the searched keys.

    Raises:
        ConfigError: The theorems do not cover the search: trials release different things, losing trials
            would be shown, or the accountant does not compute RDP.
    """
    first = planned[0]
    _refuse_shown_trials(first.parts)
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


def _refuse_shown_trials(parts: Parts) -> None:
    """Raise ConfigError for settings that would show a losing trial, and for simulated attacks."""
    settings, algorithm = parts.settings, parts.algorithm
    if not algorithm.trust.secret_cohort:
        raise ConfigError(
            "algorithm",
            algorithm.name,
            "one with central trust, such as cdp_fedavg",
            f"with {algorithm.trust.name} trust the server sees the releases of trials that lose, and "
            f"{KEY} holds only if nobody sees these",
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
