"""Integer noise on a statistic that lies on a grid, for an adaptive clip norm beside a secure sum.

A centred bit b - ½ is half of ±1. Twice the sum of all bits is an integer, and one unit more or less moves it
by 1, so nothing is rounded. This count travels in a secure sum of its own, whose modulus has room for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dp_accounting import dp_event

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.core.discrete_events import DiscreteGaussianSharesDpEvent, SkellamSharesDpEvent
from fedpriv.privacy.core.integer_noise import discrete_gaussian, skellam
from fedpriv.privacy.mechanisms import skellam as skellam_shares
from fedpriv.privacy.mechanisms.discrete import IntegerQuery
from fedpriv.privacy.mechanisms.query import Noising

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded

_OFF = 1e-6  # tolerated distance from an integer, for floating point


@dataclass(frozen=True)
class DiscreteCount(IntegerQuery):
    """Statistic on a grid, with integer shares of noise.

    Attributes:
        name: Name of the answer in the ledger.
        noise_multiplier: Standard deviation of ``honest`` shares together ÷ the grid step.
        family: Distribution of the shares, ``discrete_gaussian`` or ``skellam``.
        steps: Factor that turns the statistic into an integer, which one unit moves by 1.
        honest: h, number of shares that protect for certain.
    """

    name: str
    noise_multiplier: float
    family: str
    steps: float
    honest: int = field()  # no default, unlike that of other queries

    @property
    def variance(self) -> float:
        """Variance of one share, in squared grid steps."""
        return self.noise_multiplier**2 / self.honest

    def event(self) -> dp_event.DpEvent:
        if self.family == skellam_shares.FAMILY:
            return SkellamSharesDpEvent(1.0, self.noise_multiplier**2, 1)
        return DiscreteGaussianSharesDpEvent(1.0, self.variance, self.honest, 1)

    def release(self, answer: Bounded, noise: Noising) -> Tensor:
        count = float(answer.values) * self.steps
        if (
            abs(count - round(count)) > _OFF
            or abs(float(answer.sensitivity) * self.steps - 1.0) > _OFF
        ):
            raise ReleaseError(f"{self.name} is no whole number of steps that a unit moves by one")
        law = skellam if self.family == skellam_shares.FAMILY else discrete_gaussian
        table = law(self.variance)
        added = sum(int(table.draw(stream, 1)[0]) for stream in noise.streams)
        answer.values.fill_((round(count) + added) / self.steps)
        return answer.sensitivity.double() * (self.noise_multiplier / math.sqrt(self.honest))

    def describe_in_full(self) -> str:
        return f"{self.name} ({self.family.replace('_', ' ')}, noise multiplier {self.noise_multiplier:g})"
