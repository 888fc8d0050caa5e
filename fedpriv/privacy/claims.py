"""What the published analyses charge, one function per work.

A claim turns a draw into the event that the work's own theorem prices, and fixes the theorem's
orders and conversion. ``epsilon_published`` is its value; ``budget_view=published`` enforces it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.privacy.mechanism import GRADIENT, Draw
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling


@dataclass(frozen=True)
class Claim:
    """A published privacy claim: its words, its view, and the RDP settings of its theorem."""

    source: str
    statement: str
    unit: str
    trust: str
    neighbours: str
    orders: tuple[float, ...]
    conversion: str

    def event(self, draw: Draw) -> dp_event.DpEvent:
        """The event the claim charges for one draw."""
        sampling = draw.sampling
        if isinstance(sampling, FixedSizeSampling):  # the theorem knows only q = L/n
            sampling = PoissonSampling(sampling.lot_size / sampling.records)
        return Draw(sampling, draw.queries).event_of(GRADIENT)


ADAP_DPFL = Claim(
    source="Fu, Chen, Han 2022, Adap DP-FL, theorem 1",
    statement=(
        "read with the logarithm that eqs. (10) and (15) leave out: RDP of the Poisson-"
        "sampled Gaussian of multiplier sigma_t, composed over the rounds as if sigma_t were fixed in "
        "advance; the clipping statistic of eq. (6) is not charged"
    ),
    unit="record",
    trust="local",
    neighbours="add_or_remove",
    orders=tuple(float(a) for a in range(2, 65)),
    conversion="classical",
)
