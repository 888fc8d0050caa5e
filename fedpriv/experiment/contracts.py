"""Contracts: what the object of each group must offer. One sentence before the run tells what is missing."""

from __future__ import annotations

import difflib
from typing import Any, cast

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.base import Attack
from fedpriv.attacks.triggers import Trigger
from fedpriv.common.attributes import PACKAGE, is_own
from fedpriv.common.errors import ConfigError
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.federated import unreadable_data
from fedpriv.experiment.trackers import Tracker
from fedpriv.features import Features
from fedpriv.models.base import ModelFactory
from fedpriv.privacy.accountants import Accountant, PublishedAccountant
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.noise_schedules import NoiseSchedule

NEEDS: dict[str, tuple[str, ...]] = {
    "dataset": ("name", "train_records", "input_shape", "classes"),
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
        wanted = f"{bases[0].__module__}.{bases[0].__qualname__}"
        raise ConfigError(f"{group} needs a class that extends {wanted}, got {kind}")
    try:
        missing = [name for name in NEEDS.get(group, ()) if not hasattr(made, name)]
        if group == "dataset" and getattr(type(made), "load", Dataset.load) is Dataset.load:
            missing += [name for name in ("read", "encode") if not hasattr(made, name)]
    except OSError as error:  # a data set that counts its records in a file
        raise unreadable_data(cast(Dataset, made), error) from None
    if missing:
        raise ConfigError(f"{group} needs {', '.join(missing)}: {kind} has none")


def refuse_near_misses(group: str, part: object) -> None:
    """Raise ConfigError for a method of an own class that is named almost like one of fedpriv's class.

    It would never be called, and the inherited method would run in its place: so is a hook that algorithms of
    the other level have. Names that begin with an underscore are not looked at. An attribute that hides a
    method of fedpriv's class is refused, too.
    """
    named: dict[bool, set[str]] = {True: set(), False: set()}
    kinds = (*type(part).__mro__, MAY_EXTEND.get(group, object))
    for kind in kinds:
        methods = {name for name, value in vars(kind).items() if hasattr(value, "__get__")}
        named[kind.__module__.startswith(PACKAGE)] |= {n for n in methods if not n.startswith("_")}
    for name in sorted(named[True]) if is_own(part) else ():
        hidden = [vars(kind)[name] for kind in kinds if callable(vars(kind).get(name))]
        if hidden and not callable(getattr(part, name, hidden[0])):
            raise ConfigError(
                f"{group}: {type(part).__name__} has an attribute {name}, which hides the method of that "
                f"name; name it _{name}"
            )
    if isinstance(part, NoiseSchedule) and not part.adaptive and "observe" in named[False]:
        raise ConfigError(
            f"noise_schedule: nothing calls {type(part).__name__}.observe; set adaptive = True"
        )
    for name in sorted(named[False] - named[True]):
        if group == "algorithm" and name in ("server_step", "uploads", "denominator"):
            raise ConfigError(
                f"algorithm: nothing calls {type(part).__name__}.{name}: server_step is of algorithms at "
                "record level, uploads and denominator of those at client level"
            )
        if near := difflib.get_close_matches(name, named[True], 1, _NEAR):
            raise ConfigError(
                f"{group}: nothing calls {type(part).__name__}.{name}; did you mean {near[0]}? Else name it "
                f"_{name}"
            )
