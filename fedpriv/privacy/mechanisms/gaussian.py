"""Gaussian noise on a public grid, in proportion to the sensitivity.

    released = value + N(0, (z Δ √m / s)² I)

z is the noise multiplier and Δ the add/remove sensitivity. m is the number of clients that each add a share
to the same sum; one Gaussian with the distribution of their sum is drawn for all of them. s is the public
number that the value was divided by before its release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dp_accounting import dp_event

from fedpriv.privacy.core.names import CLIENT
from fedpriv.privacy.mechanisms.bounded import DOUBLED
from fedpriv.privacy.mechanisms.query import Noising, Query

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded


@dataclass(frozen=True)
class GaussianQuery(Query):
    """Answer with Gaussian noise of standard deviation noise multiplier × sensitivity.

    Attributes:
        name: Name of the answer in the ledger, such as ``gradient_sum``.
        noise_multiplier: z = noise std ÷ add/remove sensitivity. 0 means no noise, hence no privacy.
        replaced: Ratio of the distances by which replacing a unit and adding a unit move the answer; 2 for a
            clipped sum.
        by: Party that adds the noise, ``client`` or ``aggregator``.

    Example:
        >>> query = GaussianQuery("clip_statistic", noise_multiplier=10.0)
        >>> query.event()
        GaussianDpEvent(noise_multiplier=10.0)
        >>> GaussianQuery("clip_statistic", noise_multiplier=0.0).protects
        False
    """

    name: str
    noise_multiplier: float
    replaced: float = DOUBLED
    by: str = CLIENT

    @property
    def protects(self) -> bool:
        return self.noise_multiplier > 0

    def noised_by(self, by: str) -> GaussianQuery:
        return self if by == self.by else replace(self, by=by)

    def event(self) -> dp_event.DpEvent:
        if not self.protects:
            return dp_event.NonPrivateDpEvent()
        return dp_event.GaussianDpEvent(self.noise_multiplier)

    def release(self, answer: Bounded, noise: Noising) -> Tensor:
        from fedpriv.privacy.core.noise import Noise

        values = answer.values.view(len(answer.values), -1)
        multiplier = self.noise_multiplier if noise.multipliers is None else noise.multipliers
        sensitivity = answer.sensitivity.double()
        if answer.of_reports:  # one row, the sum of reports that may have different sensitivities
            total = sensitivity.square().sum().sqrt()
            std = (total * (multiplier / answer.divided_by)).view(1)
        else:
            std = sensitivity * (multiplier * math.sqrt(noise.shares) / answer.divided_by)
        noise_source = noise.drawn
        if noise_source is None:
            noise_source = Noise(noise.streams, values.shape[1])
        noise_source.add_to(values, std)
        if answer.of_reports:  # what each client adds to its own report
            return sensitivity * (std * answer.divided_by / total)
        return std * (answer.divided_by / math.sqrt(noise.shares))

    def describe(self) -> str:
        return f"{self.name}={self.noise_multiplier:.6g}"
