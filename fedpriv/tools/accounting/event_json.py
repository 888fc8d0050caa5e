"""Events of dp_accounting as JSON: an object for each, with its class and its fields by their own names.

    {"class_name": "SelfComposedDpEvent", "count": 1000, "event":
      {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event":
        {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}}}

dp_accounting's own way back from a description (``DpEvent.from_named_tuple``) imports whatever module it
names; here a few classes are known and nothing is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, did_you_mean
from fedpriv.privacy.calibration import MOST_NOISE
from fedpriv.privacy.core.names import REPLACE_ONE

_DEEPEST = 20  # events in events
MOST_STEPS = 10**9
MOST_EVENTS = 1_000_000

ValueCheck = Callable[[str, object], Any]


def _multiplier(name: str, value: object) -> float:
    return checks.number(name, value, above=0, at_most=MOST_NOISE)


def _share(name: str, value: object) -> float:
    return checks.number(name, value, above=0, at_most=1)


def _whole(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=1, at_most=MOST_STEPS)


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
    "PoissonSampledDpEvent": (dp_event.PoissonSampledDpEvent, {"sampling_probability": _share}),
    "SampledWithoutReplacementDpEvent": (
        dp_event.SampledWithoutReplacementDpEvent,
        {"source_dataset_size": _whole, "sample_size": _whole},
    ),
}
_TOGETHER = ("NoOpDpEvent", "SelfComposedDpEvent", "ComposedDpEvent")
CLASSES = (*_RELEASES, *_SAMPLED, *_TOGETHER)


class NotAnEvent(ValueError):
    """What is no event, in words that begin with where in the file it is."""


def releases_of(value: object, neighbours: str) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """(event, how often), in order. Raises NotAnEvent.

    dp_accounting's multiplier is noise std ÷ clip norm, of which replacing somebody's data moves two.
    """
    yield from _flat(value, 1, neighbours, "event", 0)


def _flat(
    value: object, count: int, neighbours: str, place: str, depth: int
) -> Iterator[tuple[dp_event.DpEvent, int]]:
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
        for i, own in enumerate(events):
            yield from _flat(own, count, neighbours, f"{place}.events[{i}]", depth + 1)
    else:
        yield _release(name, fields, neighbours, place, depth), count


def _release(
    name: str, fields: Mapping[str, Any], neighbours: str, place: str, depth: int
) -> dp_event.DpEvent:
    sampled = name in _SAMPLED
    kind, known = (_SAMPLED if sampled else _RELEASES)[name]
    _only(fields, (*known, "event") if sampled else tuple(known), place)
    values = {field: _read(check, field, fields[field], place) for field, check in known.items()}
    if sampled:
        values["event"] = _inner(fields["event"], neighbours, f"{place}.event", depth + 1)
        if values.get("sample_size", 0) > values.get("source_dataset_size", 0):
            raise NotAnEvent(f"{place}.sample_size must be at most source_dataset_size")
        if values.get("sampling_probability") == 1.0:  # everyone every time: no sampling
            return values["event"]
    elif name in ("GaussianDpEvent", "LaplaceDpEvent") and neighbours == REPLACE_ONE:
        values["noise_multiplier"] /= 2.0
    return kind(**values)


def _inner(value: object, neighbours: str, place: str, depth: int) -> dp_event.DpEvent:
    """What is released on one sample: one release, or Gaussians, which together are one."""
    found = list(_flat(value, 1, neighbours, place, depth))
    if len(found) == 1 and found[0][1] == 1 and _alone(found[0][0]):
        return found[0][0]
    if found and all(isinstance(event, dp_event.GaussianDpEvent) for event, _ in found):
        total = math.fsum(n * event.noise_multiplier**-2 for event, n in found)
        return dp_event.GaussianDpEvent(total**-0.5)
    raise NotAnEvent(
        f"{place} must be one GaussianDpEvent or LaplaceDpEvent, or Gaussians composed"
    )


def _alone(event: dp_event.DpEvent) -> bool:
    return isinstance(event, (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent))


def _named(value: object, place: str, depth: int) -> tuple[str, dict[str, Any]]:
    """(class, fields) of one event."""
    if depth > _DEEPEST:
        raise NotAnEvent(f"{place} is nested more than {_DEEPEST} events deep")
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        raise NotAnEvent(f"{place} must be an object with a class_name, such as GaussianDpEvent")
    name = value["class_name"]
    if name not in CLASSES:
        hint = did_you_mean(name, CLASSES, "; ")
        raise NotAnEvent(
            f"{place}.class_name must be one of {', '.join(CLASSES)}, got {name[:80]}{hint}"
        )
    return name, {k: v for k, v in value.items() if k not in ("class_name", "module_name")}


def _only(fields: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    """Refuse what is missing and what is unknown."""
    for name in known:
        if name not in fields:
            raise NotAnEvent(f"{place} has no {name}")
    for name in fields:
        if name not in known:
            raise NotAnEvent(f"{place} has an unknown field {name[:80]}")


def _read(check: ValueCheck, name: str, value: object, place: str) -> Any:
    try:
        return check(name, value)
    except ArgumentError as error:
        raise NotAnEvent(f"{place}.{error}") from None
