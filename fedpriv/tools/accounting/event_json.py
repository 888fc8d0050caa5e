"""Events of dp_accounting as JSON: one object for each event, with its class and its fields.

    {"class_name": "SelfComposedDpEvent", "count": 1000, "event":
      {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event":
        {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}}}

dp_accounting's own ``DpEvent.from_named_tuple`` imports whatever module a description names. This module
knows a few classes and imports nothing, so a foreign file cannot run code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, did_you_mean
from fedpriv.privacy.calibration import MOST_NOISE
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.profile_events import (
    DiscreteGaussianEvent,
    EpsilonDeltaEvent,
    ExponentialMechanismEvent,
    PermuteAndFlipEvent,
)

_DEEPEST = 20  # nesting of events
_MOST_EPSILON = 1e6
MOST_STEPS = 10**9
MOST_EVENTS = 1_000_000

ValueCheck = Callable[[str, object], Any]


def _multiplier(name: str, value: object) -> float:
    return checks.number(name, value, above=0, at_most=MOST_NOISE)


def _scale(name: str, value: object) -> float:
    return checks.number(name, value, at_least=1e-12, at_most=1e12)


def _share(name: str, value: object) -> float:
    return checks.number(name, value, above=0, at_most=1)


def _rate(name: str, value: object) -> float:
    return checks.number(name, value, at_least=1e-100, at_most=1)


def _whole(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=1, at_most=MOST_STEPS)


def _epsilon(name: str, value: object) -> float:
    return checks.number(name, value, at_least=1e-9, at_most=_MOST_EPSILON)


def _epsilon_or_zero(name: str, value: object) -> float:
    return checks.number(name, value, at_least=0, at_most=_MOST_EPSILON)


def _delta(name: str, value: object) -> float:
    return checks.number(name, value, at_least=0, below=1)


def _dimension(name: str, value: object) -> int | None:
    return None if value is None else _whole(name, value)


_RELEASES: dict[str, tuple[type[dp_event.DpEvent], dict[str, ValueCheck]]] = {
    "NonPrivateDpEvent": (dp_event.NonPrivateDpEvent, {}),
    "GaussianDpEvent": (dp_event.GaussianDpEvent, {"noise_multiplier": _multiplier}),
    "LaplaceDpEvent": (dp_event.LaplaceDpEvent, {"noise_multiplier": _multiplier}),
    "DiscreteLaplaceDpEvent": (
        dp_event.DiscreteLaplaceDpEvent,
        {"noise_parameter": _multiplier, "sensitivity": _whole},
    ),
    "RandomizedResponseDpEvent": (
        dp_event.RandomizedResponseDpEvent,
        {"noise_parameter": _share, "num_buckets": _whole},
    ),
    "DiscreteGaussianDpEvent": (
        DiscreteGaussianEvent,
        {"sigma": _scale, "sensitivity": _scale, "dimension": _dimension},
    ),
    "EpsilonDeltaDpEvent": (EpsilonDeltaEvent, {"epsilon": _epsilon_or_zero, "delta": _delta}),
    "ExponentialMechanismDpEvent": (ExponentialMechanismEvent, {"epsilon": _epsilon}),
    "PermuteAndFlipDpEvent": (PermuteAndFlipEvent, {"epsilon": _epsilon}),
    "ZCDpEvent": (dp_event.ZCDpEvent, {"rho": _epsilon_or_zero, "xi": _epsilon_or_zero}),
    "TruncatedSubsampledGaussianDpEvent": (
        dp_event.TruncatedSubsampledGaussianDpEvent,
        {
            "dataset_size": _whole,
            "sampling_probability": _share,
            "truncated_batch_size": _whole,
            "noise_multiplier": _multiplier,
        },
    ),
}
_SAMPLED: dict[str, tuple[type[dp_event.DpEvent], dict[str, ValueCheck]]] = {
    "PoissonSampledDpEvent": (dp_event.PoissonSampledDpEvent, {"sampling_probability": _rate}),
    "SampledWithoutReplacementDpEvent": (
        dp_event.SampledWithoutReplacementDpEvent,
        {"source_dataset_size": _whole, "sample_size": _whole},
    ),
}
_ON_A_SAMPLE = tuple(
    kind
    for kind, _ in _RELEASES.values()
    if kind not in (dp_event.NonPrivateDpEvent, dp_event.TruncatedSubsampledGaussianDpEvent)
)
_TOGETHER = ("NoOpDpEvent", "SelfComposedDpEvent", "ComposedDpEvent")
CLASSES = (*_RELEASES, *_SAMPLED, *_TOGETHER)
_NOT_PRICED = {
    "UnsupportedDpEvent": "it says that its mechanism is not described",
    "SampledWithReplacementDpEvent": "a unit can be in a lot drawn with replacement several times",
    "SingleEpochTreeAggregationDpEvent": "it holds for zeroed-out units, not for the relations here",
    "RepeatAndSelectDpEvent": "fedpriv has no accountant for the best of a random number of runs",
    "MixtureOfGaussiansDpEvent": "fedpriv has no accountant for mixtures of sensitivities",
}


class NotAnEvent(ValueError):
    """An error in a description of events; its text begins with the position in the file."""


def releases_of(value: object, neighbours: str) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yield each release of an event with its count, in order.

    dp_accounting's noise multiplier is noise std ÷ clip norm. Replacing one unit's data moves a sum by up to
    two clip norms, so under replace-one the multiplier counts half.

    Args:
        value: The event as read from JSON.
        neighbours: The adjacency of the guarantee.

    Raises:
        NotAnEvent: The value is no event that this module knows.

    Example:
        >>> gaussian = {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}
        >>> both = {"class_name": "SelfComposedDpEvent", "count": 5, "event": gaussian}
        >>> list(releases_of(both, REPLACE_ONE))
        [(GaussianDpEvent(noise_multiplier=1.0), 5)]
    """
    yield from _flat(value, 1, neighbours, "event", 0)


def _flat(
    value: object, count: int, neighbours: str, place: str, depth: int
) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yield the releases of an event that happens ``count`` times; ``place`` is its position in the file."""
    name, fields = _named(value, place, depth)
    if name == "NoOpDpEvent":
        _only(fields, (), place)
    elif name == "SelfComposedDpEvent":
        _only(fields, ("event", "count"), place)
        times = count * _read(_whole, "count", fields["count"], place)
        if times > MOST_STEPS:
            raise NotAnEvent(f"{place}.count makes more than {MOST_STEPS:,} releases")
        yield from _flat(fields["event"], times, neighbours, f"{place}.event", depth + 1)
    elif name == "ComposedDpEvent":
        _only(fields, ("events",), place)
        events = fields["events"]
        if not isinstance(events, list):
            raise NotAnEvent(f"{place}.events must be a list")
        for i, event in enumerate(events):
            yield from _flat(event, count, neighbours, f"{place}.events[{i}]", depth + 1)
    else:
        yield _release(name, fields, neighbours, place, depth), count


def _release(
    name: str, fields: Mapping[str, Any], neighbours: str, place: str, depth: int
) -> dp_event.DpEvent:
    """Return one release, checked field by field."""
    sampled = name in _SAMPLED
    kind, known = (_SAMPLED if sampled else _RELEASES)[name]
    _only(fields, (*known, "event") if sampled else tuple(known), place)
    values = {field: _read(check, field, fields[field], place) for field, check in known.items()}
    if sampled:
        values["event"] = _inner(fields["event"], neighbours, f"{place}.event", depth + 1)
        if values.get("sample_size", 0) > values.get("source_dataset_size", 0):
            raise NotAnEvent(f"{place}.sample_size must be at most source_dataset_size")
        if values.get("sampling_probability") == 1.0:  # everyone takes part every time
            return values["event"]
    elif neighbours == REPLACE_ONE:
        # A release inside a sample is counted twice where it is read, in ``_inner``.
        if name in ("GaussianDpEvent", "LaplaceDpEvent"):
            values["noise_multiplier"] /= 2.0
        elif name == "DiscreteLaplaceDpEvent":
            values["sensitivity"] *= 2
    return kind(**values)


def _inner(value: object, neighbours: str, place: str, depth: int) -> dp_event.DpEvent:
    """Return the release on one sample.

    Several Gaussians on one sample are one Gaussian of noise multiplier z with 1/z² = Σ_i n_i/z_i², for n_i
    Gaussians of noise multiplier z_i.
    """
    # All of them answer on the same sample, so their noise counts together, and sampling counts once.
    releases = list(_flat(value, 1, neighbours, place, depth))
    if len(releases) == 1:
        event, count = releases[0]
        if count == 1 and isinstance(event, _ON_A_SAMPLE):
            return event
    if releases and all(isinstance(event, dp_event.GaussianDpEvent) for event, _ in releases):
        precision = math.fsum(n * event.noise_multiplier**-2 for event, n in releases)
        return dp_event.GaussianDpEvent(precision**-0.5)
    raise NotAnEvent(
        f"{place} must be one mechanism on one sample, or Gaussians composed; what sampling saves of other "
        "events is not known"
    )


def _named(value: object, place: str, depth: int) -> tuple[str, dict[str, Any]]:
    """Return the class and the fields of one event."""
    if depth > _DEEPEST:
        raise NotAnEvent(f"{place} is nested more than {_DEEPEST} events deep")
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        raise NotAnEvent(f"{place} must be an object with a class_name, such as GaussianDpEvent")
    name = value["class_name"]
    if name in _NOT_PRICED:
        raise NotAnEvent(f"{place} is a {name}, which is not priced: {_NOT_PRICED[name]}")
    if name not in CLASSES:
        hint = did_you_mean(name, CLASSES, "; ")
        raise NotAnEvent(
            f"{place}.class_name must be one of {', '.join(CLASSES)}, got {name[:80]}{hint}"
        )
    return name, {k: v for k, v in value.items() if k not in ("class_name", "module_name")}


def _only(fields: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    """Refuse fields that are missing and fields that are unknown."""
    for name in known:
        if name not in fields:
            raise NotAnEvent(f"{place} has no {name}; its fields are {', '.join(known)}")
    for name in fields:
        if name not in known:
            raise NotAnEvent(f"{place} has an unknown field {name[:80]}")


def _read(check: ValueCheck, name: str, value: object, place: str) -> Any:
    try:
        return check(name, value)
    except ArgumentError as error:
        raise NotAnEvent(f"{place}.{error}") from None


def sampling_of(event: dp_event.DpEvent) -> str:
    """Return how the lots of an event are drawn."""
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        return "poisson, cut to a size"
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
        return "without_replacement"
    return "poisson" if isinstance(event, dp_event.PoissonSampledDpEvent) else "none"


def mechanism_of(event: dp_event.DpEvent) -> str:
    """Return the mechanism of an event in words, without its sampling."""
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        event = dp_event.GaussianDpEvent(event.noise_multiplier)
    return event_words(getattr(event, "event", event)).removesuffix(" without sampling")
