"""Privacy events as text, and back without loss.

The text looks like ``Poisson(q=0.013, Gaussian(z=3.0))``. The text is a column of ``ledger.csv``, which old
run folders hold. dp_accounting's own ``to_named_tuple`` gives no text, and its inverse imports whatever
module the tuple names.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attr
from dp_accounting import dp_event

from fedpriv.privacy.core.discrete_events import DiscreteGaussianSharesDpEvent, SkellamSharesDpEvent

_FORMS = {
    dp_event.NonPrivateDpEvent: "NonPrivate",
    dp_event.GaussianDpEvent: "Gaussian(z={noise_multiplier})",
    dp_event.PoissonSampledDpEvent: "Poisson(q={sampling_probability}, {event})",
    dp_event.SampledWithoutReplacementDpEvent: (
        "WithoutReplacement(n={source_dataset_size}, L={sample_size}, {event})"
    ),
    dp_event.RandomizedResponseDpEvent: "RandomizedResponse(p={noise_parameter}, k={num_buckets})",
    DiscreteGaussianSharesDpEvent: (
        "DiscreteGaussianShares(l2={l2_sensitivity}, variance={variance}, shares={shares}, d={dimension})"
    ),
    SkellamSharesDpEvent: "SkellamShares(l2={l2_sensitivity}, variance={variance}, d={dimension})",
    dp_event.TruncatedSubsampledGaussianDpEvent: (
        "TruncatedPoisson(n={dataset_size}, q={sampling_probability}, max={truncated_batch_size}, "
        "Gaussian(z={noise_multiplier}))"
    ),
}

_WORDS = {
    dp_event.NonPrivateDpEvent: "releases without noise",
    dp_event.GaussianDpEvent: "Gaussians without sampling",
    dp_event.PoissonSampledDpEvent: "Poisson lots",
    dp_event.SampledWithoutReplacementDpEvent: "lots of fixed size without replacement",
    dp_event.TruncatedSubsampledGaussianDpEvent: "Poisson lots cut to a size",
    dp_event.RandomizedResponseDpEvent: "randomized responses",
    DiscreteGaussianSharesDpEvent: "sums with shares of discrete Gaussian noise",
    SkellamSharesDpEvent: "sums with shares of Skellam noise",
    dp_event.LaplaceDpEvent: "Laplace noise without sampling",
    dp_event.DiscreteLaplaceDpEvent: "discrete Laplace noise without sampling",
    dp_event.ZCDpEvent: "zCDP mechanisms",
}
_TOGETHER = " + "


def event_words(event: dp_event.DpEvent) -> str:
    """Return the kind of release that an event is, in words and in the plural."""
    if isinstance(event, dp_event.ComposedDpEvent):
        return " with ".join(dict.fromkeys(map(event_words, event.events)))
    return _WORDS.get(type(event), type(event).__name__)


def describe_event(event: dp_event.DpEvent) -> str:
    """Return the text of an event, with every number in full; parts of a composition are joined with " + ".

    Example:
        >>> from dp_accounting import dp_event
        >>> describe_event(dp_event.PoissonSampledDpEvent(0.013, dp_event.GaussianDpEvent(3.0)))
        'Poisson(q=0.013, Gaussian(z=3.0))'
    """
    if isinstance(event, dp_event.ComposedDpEvent):
        return _TOGETHER.join(map(describe_event, event.events))
    kind: Any = type(event)
    values = {name: write(getattr(event, name)) for name, (_, write, _) in _fields(kind).items()}
    return _form(kind).format(**values)


def parse_event(text: str) -> dp_event.DpEvent:
    """Return the event whose text :func:`describe_event` wrote.

    Raises:
        ValueError: The text is not that of an event.

    Example:
        >>> parse_event("Gaussian(z=3.0)")
        GaussianDpEvent(noise_multiplier=3.0)
    """
    text = text.strip()
    if _TOGETHER in text:
        return dp_event.ComposedDpEvent(tuple(map(parse_event, text.split(_TOGETHER))))
    kind: Any = _named().get(text.partition("(")[0])
    match = None if kind is None else _pattern(kind).fullmatch(text)
    if match is None:
        raise ValueError(f"not an event: {text}")
    fields = _fields(kind)
    try:
        values = {name: fields[name][2](value) for name, value in match.groupdict().items()}
    except SyntaxError as error:  # from literal_eval
        raise ValueError(f"not an event: {text}") from error
    if not 0 <= values.get("sampling_probability", 0.0) <= 1:
        raise ValueError(f"not a probability: {text}")
    return kind(**values)


def described_counts(counted: Mapping[dp_event.DpEvent, int]) -> list[tuple[str, int]]:
    """Return counted events as texts and numbers, for a checkpoint."""
    return [(describe_event(event), int(count)) for event, count in counted.items()]


def parse_counts(described: Iterable[tuple[str, int]]) -> dict[dp_event.DpEvent, int]:
    """Return the counted events that :func:`described_counts` was given, in the same order."""
    return {parse_event(text): count for text, count in described}


def _form(kind: Any) -> str:
    if kind in _FORMS:
        return _FORMS[kind]
    names = ", ".join(f"{name}={{{name}}}" for name in _fields(kind))
    return f"{kind.__name__}({names})"


@functools.cache
def _fields(
    kind: type[dp_event.DpEvent],
) -> dict[str, tuple[str, Callable[[Any], str], Callable[[str], Any]]]:
    """Return for each field of a kind of event the pattern of its text, its writer and its reader."""
    by_type: dict[Any, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
        float: ("[^,()=]+", lambda value: repr(float(value)), float),
        int: ("[^,()=]+", lambda value: repr(int(value)), int),
        dp_event.DpEvent: (".+", describe_event, parse_event),
    }
    any_literal = (".+", repr, ast.literal_eval)
    return {field.name: by_type.get(field.type, any_literal) for field in attr.fields(kind)}


@functools.cache
def _pattern(kind: Any) -> re.Pattern[str]:
    pattern = re.escape(_form(kind))
    for name, (text_pattern, _, _) in _fields(kind).items():
        pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>{text_pattern})")
    return re.compile(pattern)


@functools.cache
def _named() -> dict[str, type[dp_event.DpEvent]]:
    """Return the kinds of dp_accounting's events by the beginning of their text."""
    return {_form(kind).partition("(")[0]: kind for kind in dp_event.DpEvent.__subclasses__()}
