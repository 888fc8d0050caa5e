"""Events as text, ``Poisson(q=0.013, Gaussian(z=3.0))``, and back, exactly; and in words."""

from __future__ import annotations

import re

from dp_accounting import dp_event

_NUMBER = r"([^,()=]+)"
_PATTERNS = {
    "gaussian": re.compile(rf"Gaussian\(z={_NUMBER}\)"),
    "poisson": re.compile(rf"Poisson\(q={_NUMBER}, (.+)\)"),
    "fixed": re.compile(rf"WithoutReplacement\(n={_NUMBER}, L={_NUMBER}, (.+)\)"),
    "randomized": re.compile(rf"RandomizedResponse\(p={_NUMBER}, k={_NUMBER}\)"),
    "truncated": re.compile(
        rf"TruncatedPoisson\(n={_NUMBER}, q={_NUMBER}, max={_NUMBER}, Gaussian\(z={_NUMBER}\)\)"
    ),
}

_WORDS = {
    dp_event.NonPrivateDpEvent: "releases without noise",
    dp_event.GaussianDpEvent: "Gaussians without sampling",
    dp_event.PoissonSampledDpEvent: "Poisson lots",
    dp_event.SampledWithoutReplacementDpEvent: "lots of fixed size without replacement",
    dp_event.TruncatedSubsampledGaussianDpEvent: "Poisson lots cut to a size",
    dp_event.RandomizedResponseDpEvent: "randomized responses",
}


def event_words(event: dp_event.DpEvent) -> str:
    """What kind of release an event is, in the plural."""
    if isinstance(event, dp_event.ComposedDpEvent):
        return " with ".join(dict.fromkeys(map(event_words, event.events)))
    return _WORDS.get(type(event), type(event).__name__)


def describe_event(event: dp_event.DpEvent) -> str:
    """An event as one would write it, every number in full."""
    if isinstance(event, dp_event.NonPrivateDpEvent):
        return "NonPrivate"
    if isinstance(event, dp_event.GaussianDpEvent):
        return f"Gaussian(z={event.noise_multiplier!r})"
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return f"Poisson(q={event.sampling_probability!r}, {describe_event(event.event)})"
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
        return (
            f"WithoutReplacement(n={event.source_dataset_size}, L={event.sample_size}, "
            f"{describe_event(event.event)})"
        )
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        return (
            f"TruncatedPoisson(n={event.dataset_size}, q={event.sampling_probability!r}, "
            f"max={event.truncated_batch_size}, Gaussian(z={event.noise_multiplier!r}))"
        )
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return f"RandomizedResponse(p={event.noise_parameter!r}, k={event.num_buckets})"
    if isinstance(event, dp_event.ComposedDpEvent):
        return " + ".join(describe_event(part) for part in event.events)
    return str(event)


def parse_event(text: str) -> dp_event.DpEvent:
    """The event that :func:`describe_event` wrote. Raises ValueError for anything else."""
    text = text.strip()
    if " + " in text:
        return dp_event.ComposedDpEvent(tuple(map(parse_event, text.split(" + "))))
    if text == "NonPrivate":
        return dp_event.NonPrivateDpEvent()
    if match := _PATTERNS["gaussian"].fullmatch(text):
        return dp_event.GaussianDpEvent(float(match[1]))
    if match := _PATTERNS["poisson"].fullmatch(text):
        return dp_event.PoissonSampledDpEvent(float(match[1]), parse_event(match[2]))
    if match := _PATTERNS["fixed"].fullmatch(text):
        return dp_event.SampledWithoutReplacementDpEvent(
            int(match[1]), int(match[2]), parse_event(match[3])
        )
    if match := _PATTERNS["truncated"].fullmatch(text):
        return dp_event.TruncatedSubsampledGaussianDpEvent(
            int(match[1]), float(match[2]), int(match[3]), float(match[4])
        )
    if match := _PATTERNS["randomized"].fullmatch(text):
        return dp_event.RandomizedResponseDpEvent(float(match[1]), int(match[2]))
    raise ValueError(f"not an event: {text}")
