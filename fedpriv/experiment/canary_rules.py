"""What an audit of ε by canaries does not go with."""

from __future__ import annotations

from fedpriv.algorithms.base import Algorithm
from fedpriv.common.errors import ConfigError
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.data.records import CLASSIFICATION
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.noise_schedules import NoNoise


def refuse_canaries(parts: Parts) -> None:
    """An audit of ε needs a guarantee to audit, and uploads or sums that an observer sees."""
    algorithm, audit = parts.algorithm, list(parts.settings.audit)
    if not algorithm.private or isinstance(parts.noise_schedule, NoNoise):
        raise ConfigError("audit", audit, "without epsilon for a run without privacy")
    if parts.attack is not None:
        raise ConfigError("audit", audit, "without epsilon in a run with an attack")
    refuse_canaries_in_sums(algorithm)
    refuse_canaries_in_statistics(parts)
    if algorithm.unit == "client" and algorithm.trust.sees_each_upload:
        raise ConfigError(
            "audit",
            audit,
            f"without epsilon with algorithm={algorithm.name}",
            "a run draws the noise of the sum of its uploads, and the server sees each of them: audit the "
            "finished run with fedpriv audit epsilon RUN, which looks at single uploads",
        )
    if parts.settings.canary == MISLABELLED:
        refuse_mislabelled(parts, "audit=epsilon:M:KIND, KIND")
    else:
        refuse_moved_canaries(algorithm, "audit=epsilon:M:KIND, KIND", parts.settings.canary)


def refuse_canaries_in_sums(algorithm: Algorithm) -> None:
    """Raise ConfigError where canaries would be further clients, or records of sums that nobody sees."""
    shares = algorithm.trust.noised_by_clients and not algorithm.trust.sees_each_upload
    if shares or (algorithm.unit == "record" and not algorithm.row_per_client):
        raise ConfigError(
            f"an audit of epsilon does not go with algorithm={algorithm.name} and algorithm.trust="
            f"{algorithm.trust.name}: its canaries are read off the upload of a client, or off a sum with "
            "further clients, and here is one sum of those announced"
        )


def refuse_canaries_in_statistics(parts: Parts) -> None:
    """Raise ConfigError where canaries would be among the records whose statistics are released."""
    if parts.released_statistics is not None:
        raise ConfigError(
            "an audit of epsilon does not go with features.normalization=released: its canaries are looked "
            "for in gradients, and not in what is released before the first round"
        )


def refuse_moved_canaries(algorithm: Algorithm, key: str, value: object) -> None:
    """Raise ConfigError where canaries are marked in a pixel, and copies of images move it."""
    if algorithm.augmentation is not None:
        hint = "the other canaries are found by a pixel, which flips and crops move"
        raise ConfigError(
            key, value, f"{MISLABELLED} with algorithm.augmentation_multiplicity", hint
        )


def refuse_mislabelled(parts: Parts, key: str) -> None:
    """A wrong label needs labels, and one more where two wrong ones are told apart."""
    dataset, allowed = parts.dataset, f"{DIRECTION} with dataset={parts.dataset.name}"
    if dataset.task != CLASSIFICATION:
        raise ConfigError(
            key, MISLABELLED, allowed, "its records have no label that could be wrong"
        )
    replaced = parts.costs().sampling.neighbours == REPLACE_ONE
    if dataset.classes < (3 if replaced else 2):
        why = f"{dataset.classes} labels leave no two wrong ones, which replace-one adjacency needs"
        raise ConfigError(key, MISLABELLED, allowed, why)
