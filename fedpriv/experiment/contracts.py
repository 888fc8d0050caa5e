"""What the object behind each group must offer, so that what is missing is one sentence before the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.backdoor import Backdoor
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.moved import first_name
from fedpriv.data.base import Dataset
from fedpriv.data.federated import unreadable_data
from fedpriv.experiment.trackers import Tracker
from fedpriv.features import Features
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
    "attack": (Backdoor,),
    "tracker": (Tracker,),
}


def refuse_incomplete(group: str, made: Any) -> None:
    """Raise ConfigError naming what the object of a group lacks."""
    kind = type(made).__name__
    bases = BASES.get(group)
    if bases is not None and not isinstance(made, bases):
        base = first_name(bases[0])
        raise ConfigError(f"{group} needs a class that extends {base}, got {kind}")
    for attribute, what in NEEDS.get(group, {}).items():
        try:
            present = hasattr(made, attribute)
        except OSError as error:  # a data set that counts its records in a file
            raise unreadable_data(made, error) from None
        if not present:
            raise ConfigError(f"{group} needs {attribute}: {what} ({kind} has none)")


def refuse_without_validation(dataset: Dataset, schedule: NoiseSchedule) -> None:
    """A schedule that reads a public split needs a data set that says how large it is."""
    if schedule.reads_validation and not dataset.validation_records:
        raise ConfigError(
            "dataset needs validation_records: the size of the public split that this noise_schedule reads "
            f"({type(dataset).__name__} has none)"
        )


def refuse_without_sampling(algorithm: Algorithm, records: Iterable[int]) -> None:
    """Raise ConfigError where an algorithm does not say how the records of so many are sampled."""
    for count in records:
        found = algorithm.sampling_of(count)
        if not isinstance(found, Sampling):
            raise ConfigError(
                f"algorithm: {type(algorithm).__name__}.sampling_of({count}) must return a Sampling of "
                f"fedpriv.privacy.core.sampling, PoissonSampling(0.1) say, got {_shown(found)}"
            )


def refuse_bad_answers(parts: Parts) -> None:
    """Raise ConfigError where an own algorithm does not answer how it samples, or what it releases."""
    algorithm, clients = parts.algorithm, parts.partition.clients
    if not is_own(algorithm):
        return
    refuse_without_sampling(algorithm, (parts.even_share, 1000))
    asked: list[tuple[str, object, type]] = [("mechanism", parts.mechanism, Mechanism)]
    if clients is not None:
        asked.append(("client_sampling", algorithm.client_sampling(clients), Sampling))
    for method, found, wanted in asked:
        if not isinstance(found, wanted):
            raise ConfigError(
                f"algorithm: {type(algorithm).__name__}.{method} must return a {wanted.__name__} of "
                f"{wanted.__module__}, got {_shown(found)}"
            )


def _shown(found: object) -> str:
    return "None; does it return anything?" if found is None else f"a {type(found).__name__}"
