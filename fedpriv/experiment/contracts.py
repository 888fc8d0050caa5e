"""Contracts: what the object of each group must offer, and which parts do not go together.

What is missing, or does not fit, is told in one sentence before the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.base import Attack
from fedpriv.attacks.triggers import Trigger
from fedpriv.common.attributes import is_own
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
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.noise_schedules import NoiseSchedule

if TYPE_CHECKING:
    from fedpriv.experiment.parts import Parts

NEEDS: dict[str, dict[str, str]] = {
    "dataset": {
        "name": "its name in tables and messages",
        "train_records": "how many training records there are",
        "input_shape": "the shape of one record, a tuple",
        "classes": "how many labels there are",
        "load": "a method that returns a LoadedDataset (train and test Records)",
    },
    "partition": {
        "clients": "how many clients there are; None where the data decide",
        "assign": "a method (labels, client_ids) -> a list of index arrays, one for each client",
    },
    "model": {
        "build": "a method (input_shape, classes) -> a torch module; the class of a torch module needs none"
    },
    "algorithm": {
        "name": "its name, as in algorithm.name",
        "private": "whether it claims privacy, True or False",
        "unit": 'what it protects, "record" or "client"',
    },
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


def refuse_incomplete(group: str, made: Any) -> None:
    """Raise ConfigError naming what the object of a group lacks."""
    kind = type(made).__name__
    bases = BASES.get(group)
    if bases is not None and not isinstance(made, bases):
        base = first_name(bases[0])
        raise ConfigError(f"{group} needs a class that extends {base}, got {kind}")
    for attribute, meaning in NEEDS.get(group, {}).items():
        try:
            present = hasattr(made, attribute)
        except OSError as error:  # a data set that counts its records in a file
            raise unreadable_data(made, error) from None
        if not present:
            raise ConfigError(f"{group} needs {attribute}: {meaning} ({kind} has none)")


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
        for error in method(part, parts) or ():
            if not isinstance(error, ConfigError):
                raise ConfigError(
                    f"{group}: {type(part).__name__}.conflicts must give ConfigError's, got {_shown(error)}"
                )
            yield error
    except ArgumentError as error:
        yield error.within(group)
    except ConfigError as error:
        yield error


def refuse_without_sampling(algorithm: Algorithm, records: Iterable[int]) -> None:
    """Raise ConfigError where an algorithm does not say how it samples from clients of so many records."""
    for count in records:
        sampling = algorithm.sampling_of(count)
        if not isinstance(sampling, Sampling):
            raise ConfigError(
                f"algorithm: {type(algorithm).__name__}.sampling_of({count}) must return a Sampling of "
                f"fedpriv.privacy.core.sampling, PoissonSampling(0.1) say, got {_shown(sampling)}"
            )


def refuse_bad_answers(parts: Parts) -> None:
    """Raise ConfigError where an own algorithm does not say how it samples, or what it releases."""
    algorithm, clients = parts.algorithm, parts.partition.clients
    if not is_own(algorithm):
        return
    refuse_without_sampling(algorithm, (parts.even_share, 1000))
    answers: list[tuple[str, object, type]] = [("mechanism", parts.mechanism, Mechanism)]
    if clients is not None:
        answers.append(("client_sampling", algorithm.client_sampling(clients), Sampling))
    for method, answer, kind in answers:
        if not isinstance(answer, kind):
            raise ConfigError(
                f"algorithm: {type(algorithm).__name__}.{method} must return a {kind.__name__} of "
                f"{kind.__module__}, got {_shown(answer)}"
            )


def _shown(answer: object) -> str:
    return "None; does it return anything?" if answer is None else f"a {type(answer).__name__}"
