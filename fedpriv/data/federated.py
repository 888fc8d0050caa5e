"""The data of a run: training records with one index per client, validation and test records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import ConfigError, DataError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, Records
from fedpriv.data.storage import unreadable

if TYPE_CHECKING:
    import torch

    from fedpriv.data.text_vocabulary import Vocabulary


@dataclass(frozen=True)
class FederatedData:
    """``clients[k]`` holds the sorted indices (int64) of client k's records in ``train``.

    ``validation`` is a public split held out of the training records, None if nothing reads it.
    ``task``: classification or language_model; ``vocabulary``: of text, what its token ids mean;
    ``numbers`` [n]: which record of the data set each of ``train`` is (None: as they are counted).
    """

    train: Records
    clients: list[np.ndarray]
    validation: Records | None
    test: Records
    classes: int
    input_shape: tuple[int, ...]
    task: str = CLASSIFICATION
    vocabulary: Vocabulary | None = None
    numbers: np.ndarray | None = None

    @property
    def client_count(self) -> int:
        """K."""
        return len(self.clients)

    @cached_property
    def records_per_client(self) -> np.ndarray:
        """n_k, int64 [K]."""
        return np.array([len(indices) for indices in self.clients], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all records and of whose they are, in hexadecimal digits."""
        found = hashlib.sha256()
        for records in (self.train, self.validation, self.test):
            if records is None:
                continue
            if records.source is not None:
                found.update(f"{' '.join(records.source)}\n".encode())
            else:
                for values in (records.inputs, records.targets):
                    found.update(f"{values.dtype} {tuple(values.shape)}\n".encode())
                    found.update(np.ascontiguousarray(values.cpu().numpy()).data)
        for indices in self.clients:
            found.update(f"{len(indices)}\n".encode())
            found.update(np.ascontiguousarray(indices, dtype=np.int64).data)
        return found.hexdigest()

    @cached_property
    def labels_per_client(self) -> np.ndarray | None:
        """How many records of each label each client has, int64 [K, classes]; None where a record has
        a sequence of targets."""
        if self.train.targets.ndim != 1:
            return None
        targets = self.train.targets.cpu().numpy()
        counts = [np.bincount(targets[own], minlength=self.classes) for own in self.clients]
        return np.stack(counts)


@dataclass(frozen=True)
class ClientSizes:
    """As much of the federated data as prices depend on."""

    records_per_client: np.ndarray

    @property
    def client_count(self) -> int:
        return len(self.records_per_client)


def federate(
    dataset: Dataset, partition: Partition, *, validation: bool, seed: int, device: str = "cpu"
) -> FederatedData:
    """Load ``dataset``, hold out the validation split, partition the rest, move all to ``device``.

    The split has ``dataset.validation_records`` records drawn from the training records by ``seed``
    (never from the test records), and only if ``validation`` is True; without it the partition has
    every training record to give out. Raises DataError or ConfigError before anything is trained.
    """
    loaded = _loaded(dataset)
    _refuse_other_than_said(dataset, loaded)
    for part in (loaded.train, loaded.test):
        _refuse_out_of_range(dataset, part)
    train, client_ids, held_out, kept = loaded.train, loaded.client_ids, None, None
    if validation:
        kept, drawn = split_records(len(train), dataset.validation_records, partition, seed)
        held_out = train.subset(drawn).to(device)
        train = train.subset(kept)
        client_ids = None if client_ids is None else client_ids[kept]
    clients = partition.assign(train.targets.numpy(), client_ids)
    _refuse_shared_records(clients, len(train))
    return FederatedData(
        train=train.to(device),
        clients=clients,
        validation=held_out,
        test=loaded.test.to(device),
        classes=dataset.classes,
        input_shape=dataset.input_shape,
        task=dataset.task,
        vocabulary=loaded.vocabulary,
        numbers=kept,
    )


def _loaded(dataset: Dataset) -> LoadedDataset:
    """Load the data set. Raises DataError where a file of a user's data set cannot be read."""
    try:
        return dataset.load()
    except OSError as error:
        raise unreadable_data(dataset, error) from None


def unreadable_data(dataset: Dataset, error: OSError) -> DataError:
    """The error for a data set whose code met a file that it could not read."""
    where = Path(error.filename or "its files")
    return DataError(f"dataset {dataset.name}: {unreadable(where, error)}")


def _refuse_shared_records(clients: list[np.ndarray], records: int) -> None:
    """A record at two clients would be protected by neither's epsilon."""
    if not len(clients) or any(not len(own) for own in clients):
        raise DataError("partition: assign must give every client a record")
    dealt = np.concatenate(clients)
    if dealt.min() < 0 or dealt.max() >= records:
        raise DataError(f"partition: assign must give indices from 0 to {records - 1}")
    if len(np.unique(dealt)) < len(dealt):
        raise DataError("partition: assign must give each record to one client at most, once")


def _refuse_other_than_said(dataset: Dataset, loaded: object) -> None:
    """The plan was made of what the data set says before it is loaded."""
    if not isinstance(loaded, LoadedDataset):
        raise DataError(
            f"{dataset.name}: load must return a LoadedDataset of fedpriv.data.records, got a "
            f"{type(loaded).__name__}"
        )
    facts = (
        ("train_records", dataset.train_records, len(loaded.train)),
        ("input_shape", tuple(dataset.input_shape), tuple(loaded.train.inputs.shape[1:])),
    )
    for name, said, found in facts:
        if said != found:
            raise DataError(f"{dataset.name}: {name} is {said}, and what was loaded has {found}")


def _refuse_out_of_range(dataset: Dataset, records: Records) -> None:
    """Labels and token ids that no model has would end a run in the round that draws their record."""
    checked: list[tuple[str, torch.Tensor, int | None]] = [
        ("targets", records.targets, dataset.classes)
    ]
    if not records.inputs.is_floating_point():
        checked.append(("token ids", records.inputs, dataset.vocabulary_size))
    for what, values, limit in checked:
        if (
            limit is not None
            and values.numel()
            and not 0 <= int(values.min()) <= int(values.max()) < limit
        ):
            raise DataError(
                f"{dataset.name}: {what} must be in 0 … {limit - 1}, got {int(values.min())} … "
                f"{int(values.max())}"
            )


def split_records(
    records: int, wanted: int, partition: Partition, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted indices that stay in training, and those held out. Raises ConfigError."""
    most = records - (partition.clients or 1)
    if most < 1:
        allowed = f"<= {max(1, records - wanted)}, so that each client has a training record"
        raise ConfigError("partition.clients", partition.clients, allowed)
    if wanted > most:
        allowed = f"<= {most}, so that each client keeps a training record"
        raise ConfigError("dataset.validation_records", wanted, allowed)
    order = numpy_stream(seed, "validation_split").permutation(records)
    return np.sort(order[wanted:]), np.sort(order[:wanted])


def with_train(data: FederatedData, train: Records) -> FederatedData:
    """Return the same federated data with other training records, of the same clients."""
    sizes = data.records_per_client
    made = replace(data, train=train)
    made.__dict__["records_per_client"] = sizes
    return made
