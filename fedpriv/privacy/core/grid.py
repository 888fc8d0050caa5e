"""Rounding of noise multipliers down, and of sample rates up, to a geometric grid.

The grid makes few distinct events of many. Less noise is never cheaper, and neither is a larger sample, so a
composition on the grid costs at least as much as the real one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attr
from dp_accounting import dp_event

STEP = 0.01  # a 1 % grid: at most about 1.3 % more ε
FEW = 200  # compositions of so few distinct events are accounted for as they are


def weaker_event(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Return the event with its noise multiplier rounded down to the grid.

    The multiplier is that of a Gaussian or Laplace mechanism, alone or on a sample. Any other
    event is returned as it is.
    """
    multiplier = getattr(event, "noise_multiplier", 0)
    if isinstance(event, _WITH_MULTIPLIER) and multiplier > 0:
        level = math.floor(math.log(multiplier) / math.log1p(STEP) + 1e-9)
        rounded = math.exp(level * math.log1p(STEP))
        return attr.evolve(event, noise_multiplier=min(rounded, multiplier))
    inner = getattr(event, "event", None)
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        inner, dp_event.GaussianDpEvent
    ):
        # The most frequent case: attr.evolve would be slower.
        return dp_event.PoissonSampledDpEvent(event.sampling_probability, weaker_event(inner))
    if inner is not None:
        return attr.evolve(event, event=weaker_event(inner))
    return event


_WITH_MULTIPLIER = (
    dp_event.GaussianDpEvent, dp_event.TruncatedSubsampledGaussianDpEvent, dp_event.LaplaceDpEvent,
)  # fmt: skip


def gridded(composition: Mapping[dp_event.DpEvent, int]) -> dict[dp_event.DpEvent, int]:
    """Return the composition with the noise multiplier of every event rounded down to the grid.

    Sample rates are rounded up too where there are more than 200 distinct ones. Events that have become equal
    are counted together, and events with a count of 0 are left out.
    """
    rates = {getattr(event, "sampling_probability", None) for event in composition}
    merged: dict[dp_event.DpEvent, int] = {}
    for event, count in composition.items():
        if not count:
            continue
        weaker = weaker_event(event)
        rate = getattr(weaker, "sampling_probability", None)
        if rate and len(rates) > FEW:
            level = math.ceil(math.log(rate) / math.log1p(STEP) - 1e-9)
            rounded = math.exp(level * math.log1p(STEP))
            weaker = attr.evolve(weaker, sampling_probability=min(1.0, max(rounded, rate)))
        merged[weaker] = merged.get(weaker, 0) + count
    return merged


def on_grid(composition: Mapping[dp_event.DpEvent, int]) -> dict[dp_event.DpEvent, int]:
    """Return the composition itself if it has few distinct events, else with all of them on the grid."""
    counted = {event: count for event, count in composition.items() if count}
    return counted if len(counted) <= FEW else gridded(counted)
