"""Contracts: what the object of each group must offer, and which parts do not go together.

What is missing, or does not fit, is told in one sentence before the run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.base import Attack
from fedpriv.attacks.triggers import Trigger
from fedpriv.common.attributes import PACKAGE
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.moved import first_name
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.federated import unreadable_data
from fedpriv.experiment.trackers import Tracker
from fedpriv.features import Features
from fedpriv.features.dataset import Featured
from fedpriv.models.base import ModelFactory
from fedpriv.privacy.accountants import Accountant, PublishedAccountant
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.noise_schedules import NoiseSchedule

if TYPE_CHECKING:
    from fedpriv.experiment.parts import Parts

NEEDS: dict[str, tuple[str, ...]] = {
    "dataset": ("name", "train_records", "input_shape", "classes", "load"),
    "partition": ("clients", "assign"),
    "model": ("build",),
}
BASES: dict[str, tuple[type, ...]] = {
    "features": (Features,),
    "clipper": (Clipper,),
    "noise_schedule": (NoiseSchedule,),
    "accountant": (Accountant, PublishedAccountant),
    "algorithm": (Algorithm,),
    "aggregation": (Aggregation,),
    "attack": (Attack,),
    "tracker": (Tracker,),
}
MAY_EXTEND: dict[str, type] = {
    "dataset": Dataset,
    "partition": Partition,
    "model": ModelFactory,
    "attack.trigger": Trigger,
}
"""Base classes of parts that may, but need not, extend a class of fedpriv."""
_NEAR = 0.8  # similarity of two names, as of ``aply`` and ``apply``


def refuse_incomplete(group: str, made: Any) -> None:
    """Raise ConfigError naming what the object of a group lacks."""
    kind, bases = type(made).__name__, BASES.get(group, (object,))
    if not isinstance(made, bases):
        raise ConfigError(f"{group} needs a class that extends {first_name(bases[0])}, got {kind}")
    try:
        missing = [name for name in NEEDS.get(group, ()) if not hasattr(made, name)]
    except OSError as error:  # a data set that counts its records in a file
        raise unreadable_data(cast(Dataset, made), error) from None
    if missing:
        raise ConfigError(f"{group} needs {', '.join(missing)}: {kind} has none")


def refuse_near_misses(group: str, part: object) -> None:
    """Raise ConfigError for a method of an own class that is named almost like one of fedpriv's class.

    It would never be called, and the inherited method would run in its place. Names that begin with an
    underscore are not looked at.
    """
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for kind in (*type(part).__mro__, MAY_EXTEND.get(group, object)):
        methods = {name for name, value in vars(kind).items() if hasattr(value, "__get__")}
        named[kind.__module__.startswith(PACKAGE)] |= {n for n in methods if not n.startswith("_")}
    for name in sorted(named[False] - named[True]):
        if near := difflib.get_close_matches(name, named[True], 1, _NEAR):
            raise ConfigError(
                f"{group}: nothing calls {type(part).__name__}.{name}; did you mean {near[0]}? Else name it "
                f"_{name}"
            )


def conflicts(parts: Parts) -> Iterator[ConfigError]:
    """Yield a ConfigError for each pair of parts that do not go together, the most important first.

    All classes of a part are asked, so that a class of the user's own adds to what its base class refuses.
    """
    dataset, attack = parts.dataset, parts.attack
    asked_parts: list[tuple[str, Any]] = [
        ("model", parts.model),
        ("dataset", dataset.without_features()),
        ("algorithm", parts.algorithm),
        ("clipper", parts.clipper),
        ("features", dataset.features if isinstance(dataset, Featured) else None),
        ("noise_schedule", parts.noise_schedule),
        ("aggregation", parts.aggregation),
        ("attack", attack),
        ("attack.trigger", None if attack is None else attack.trigger),
        *((f"tracker.{name}", tracker) for name, tracker in parts.trackers.items()),
        ("", parts.settings),
        ("partition", parts.partition),
    ]
    # An accountant asks what is released, so it is not asked unless the other parts fit together. The
    # accountant of a theorem does not ask.
    position = 0 if isinstance(parts.accountant, PublishedAccountant) else len(asked_parts)
    asked_parts.insert(position, ("accountant", parts.accountant))
    refused = False
    for group, part in asked_parts:
        if refused and part is parts.accountant:
            return
        kinds = list(reversed(type(part).__mro__))
        if (base := MAY_EXTEND.get(group)) is not None and base not in kinds:
            kinds.insert(0, base)
        for kind in kinds:
            if "conflicts" in vars(kind):
                for error in _refused(group, part, vars(kind)["conflicts"], parts):
                    refused = True
                    yield error


def all_conflicts(parts: Parts) -> list[ConfigError]:
    """Return the conflicts of the parts, at most one for each key, the most important first."""
    found: dict[str, ConfigError] = {}
    try:
        for error in conflicts(parts):
            # Several refusals of one choice begin with the same key: the first is told.
            found.setdefault(re.split(r"[\s=]", str(error), maxsplit=1)[0], error)
    except Exception:  # a part may presume that the parts before it fit together
        if not found:
            raise
    return list(found.values())


def _refused(
    group: str, part: Any, method: Callable[[Any, Parts], Any], parts: Parts
) -> Iterator[ConfigError]:
    """Yield what one class of a part refuses. Errors about an argument become errors about its key."""
    try:
        yield from method(part, parts) or ()
    except ArgumentError as error:
        yield error.within(group)
    except ConfigError as error:
        yield error
