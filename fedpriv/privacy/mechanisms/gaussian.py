"""Gaussian noise: standard deviation = noise multiplier × sensitivity, on a public grid.

    released = value + N(0, (z Δ √m / s)² I)

z the noise multiplier, Δ the add/remove sensitivity, m the number of clients that each add a share to the
same sum (one Gaussian is drawn for all of them: the same distribution), and s the public number that the
value was divided by before it is released.
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
    """An answer with Gaussian noise: ``noise_multiplier`` is noise std ÷ add/remove sensitivity; 0: none."""

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
        drawn = noise.drawn
        if drawn is None:
            drawn = Noise(noise.streams, values.shape[1])
        drawn.add_to(values, std)
        if answer.of_reports:  # what each client adds to its own report
            return sensitivity * (std * answer.divided_by / total)
        return std * (answer.divided_by / math.sqrt(noise.shares))

    def describe(self) -> str:
        return f"{self.name}={self.noise_multiplier:.6g}"
