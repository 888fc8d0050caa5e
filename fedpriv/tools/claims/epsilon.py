"""ε of the releases of a row, by fedpriv's accountants and by the second derivation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.tools.claims import second


@dataclass(frozen=True)
class ReleaseKind:
    """Equal releases of a row.

    Attributes:
        steps: Number of releases.
        noise_multiplier: Standard deviation of the noise ÷ L2 sensitivity; None for pure DP.
        sample_rate: Chance of a unit to be in the Poisson sample; None without sampling.
        pure_epsilon: ε of one release with δ = 0; None for Gaussian noise.
    """

    steps: int = 1
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    pure_epsilon: float | None = None

    def __post_init__(self) -> None:
        checks.whole("steps", self.steps, at_least=1)
        if (self.noise_multiplier is None) == (self.pure_epsilon is None):
            raise ValueError("releases need either noise_multiplier or pure_epsilon")
        if self.pure_epsilon is not None:
            checks.number("pure_epsilon", self.pure_epsilon, above=0)
        else:
            checks.number("noise_multiplier", self.noise_multiplier, above=0)
        if self.sample_rate is not None:
            checks.number("sample_rate", self.sample_rate, above=0, below=1)


def our_epsilon(releases: Sequence[ReleaseKind], delta: float) -> float:
    """Return ε by an accountant of fedpriv: GDP for Gaussians, PLD where units are sampled."""
    if releases[0].pure_epsilon is not None:
        return math.fsum(kind.steps * (kind.pure_epsilon or 0.0) for kind in releases)
    composition: dict[dp_event.DpEvent, int] = {}
    for kind in releases:
        event: dp_event.DpEvent = dp_event.GaussianDpEvent(kind.noise_multiplier)
        if kind.sample_rate is not None:
            event = dp_event.PoissonSampledDpEvent(kind.sample_rate, event)
        composition[event] = composition.get(event, 0) + kind.steps
    sampled = any(kind.sample_rate is not None for kind in releases)
    accountant = PldAccountant() if sampled else GdpAccountant()
    return float(accountant.epsilon_of(composition, delta, ADD_OR_REMOVE))


def second_epsilon(releases: Sequence[ReleaseKind], delta: float) -> tuple[float, float]:
    """Return a lower and an upper bound of ε that use no accountant.

    Gaussians without sampling add up to one of μ² = Σ steps/multiplier². Pure DP (at δ = 0) adds up: two
    inputs on which every bit of randomized response differs attain the sum.

    Raises:
        ValueError: Sampled releases are not all of one kind.
    """
    if releases[0].pure_epsilon is not None:
        total = sum(kind.steps * (kind.pure_epsilon or 0.0) for kind in releases)
        return total, total
    if all(kind.sample_rate is None for kind in releases):
        mu = math.sqrt(sum(kind.steps / (kind.noise_multiplier or 1.0) ** 2 for kind in releases))
        exact = second.gaussian_epsilon(mu, delta)
        return exact, exact
    if len(releases) > 1:
        raise ValueError("the second derivation takes one kind of sampled releases")
    kind = releases[0]
    assert kind.noise_multiplier is not None  # a sampled release has Gaussian noise
    assert kind.sample_rate is not None
    return second.poisson_epsilon(kind.noise_multiplier, kind.sample_rate, kind.steps, delta)
