"""Data of a run: training records with the indices of each client, validation and test records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError, DataError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import counted, span
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.client_records import ClientRecords
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, Records
from fedpriv.data.roles import Units
from fedpriv.data.storage import unreadable

if TYPE_CHECKING:
    import torch

    from fedpriv.data.text_vocabulary import Vocabulary


@dataclass(frozen=True)
class FederatedData:
    """Records of a run and their assignment to clients.

    Attributes:
        train: Training records [n].
        clients: Sorted record indices (int64) of each client in ``train``. A list of arrays that is given
            becomes a :class:`ClientRecords`, which reads the same.
        validation: Public split held out of the training records; None if nothing reads it.
        test: Test records.
        classes: Number of labels, or of token ids for a language model.
        input_shape: Shape of one record.
        task: ``classification`` or ``language_model``.
        vocabulary: Meaning of the token ids of text, or None.
        vocabulary_size: Number of token ids; None if the records are not text.
        numbers: Position in the data set of each record in ``train`` [n]; None means that ``train`` holds all
            records in their order.
        declared_records: Declared number N of the clients' records, from which public sizes follow, or None.
        test_clients: Client whose own record each test record is, or -1, int64 [m]; None if none has any.
    """

    train: Records
    clients: ClientRecords
    validation: Records | None
    test: Records
    classes: int
    input_shape: tuple[int, ...]
    task: str = CLASSIFICATION
    vocabulary: Vocabulary | None = None
    vocabulary_size: int | None = None
    numbers: np.ndarray | None = None
    declared_records: int | None = None
    test_clients: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", ClientRecords.of(self.clients))

    @property
    def client_count(self) -> int:
        """Number of clients K."""
        return len(self.clients)

    @cached_property
    def records_per_client(self) -> np.ndarray:
        """Public number of records of each client, int64 [K]: n_k, or N/K where N is declared.

        ``clients.sizes`` has the real numbers, which are private where N is declared.
        """
        return public_sizes(self.clients.sizes, self.declared_records)

    def to(self, device: str | torch.device) -> FederatedData:
        """Return the same data with all records on ``device``."""
        validation = None if self.validation is None else self.validation.to(device)
        train, test = self.train.to(device), self.test.to(device)
        return replace(self, train=train, validation=validation, test=test)

    @property
    def of_clients(self) -> Records:
        """Records of all clients together, in the order of the training records."""
        held = np.sort(self.clients.indices)
        return self.train if len(held) == len(self.train) else self.train.subset(held)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all records and of their assignment to clients, in hexadecimal digits."""
        sha256 = hashlib.sha256()
        for records in (self.train, self.validation, self.test):
            if records is None:
                continue
            # Computed features differ in their last digits between machines, and then the run would be
            # another one.
            if records.source is not None:
                sha256.update(f"{' '.join(records.source)}\n".encode())
            else:
                records.add_values_to(sha256)
        self.clients.add_to(sha256)
        return sha256.hexdigest()

    @cached_property
    def labels_per_client(self) -> np.ndarray | None:
        """Number of records per client and label, int64 [K, classes]; None if targets are sequences."""
        if self.train.targets.ndim != 1:
            return None
        labels = self.train.targets.cpu().numpy()[self.clients.indices]
        cells = self.clients.owners * self.classes
        cells += labels
        counts = np.bincount(cells, minlength=self.client_count * self.classes)
        return counts.reshape(self.client_count, self.classes)


@dataclass(frozen=True)
class ClientSizes:
    """Client sizes, which are all that the privacy accounting needs of the data.

    Attributes:
        records_per_client: Public number of records of each client, int64 [K].
    """

    records_per_client: np.ndarray

    @property
    def client_count(self) -> int:
        """Number of clients K."""
        return len(self.records_per_client)


def size_words(sizes: np.ndarray) -> str:
    """Return the numbers of records of clients [K] in words."""
    each = span(int(sizes.min()), int(sizes.max()))
    return f"{sizes.sum()} training records, {each} for each of {counted(len(sizes), 'client')}"


def public_sizes(sizes: np.ndarray, declared_records: int | None) -> np.ndarray:
    """Return the public number of records of clients with these sizes [K]: N/K of a declared N, else n_k."""
    if declared_records is None:
        return sizes
    return np.full_like(sizes, max(1, round(declared_records / len(sizes))))


def federate(
    dataset: Dataset,
    partition: Partition,
    *,
    validation: bool,
    seed: int,
    device: str = "cpu",
    unit: str = "record",
) -> FederatedData:
    """Load a data set, hold out the validation split and assign the other records to clients.

    Args:
        dataset: Data set to load.
        partition: Rule that assigns the records to clients.
        validation: True to hold out validation records: those of a file of their own, or a part of the
            training records, never of the test records. If False, the partition assigns all training records.
        seed: Public seed that draws the validation split, and the coins of files of the user's own.
        device: Device of all tensors.
        unit: ``record`` or ``client``, whichever the algorithm protects.

    Returns:
        The federated data of a run.

    Raises:
        DataError: The data cannot be read, or differ from what the data set declares.
        ConfigError: The records cannot be split by these settings.
    """
    try:
        loaded = dataset.load()
    except OSError as error:  # from the code of a user's data set
        raise unreadable_data(dataset, error) from None
    _refuse_other_than_said(dataset, loaded)
    for part in (loaded.train, loaded.test):
        _refuse_out_of_range(dataset, part)
    train, held_out, train_indices = loaded.train, loaded.validation, None
    units = Units.of(loaded, seed, dataset.known)
    if not validation:
        held_out = None
    elif held_out is None:
        train_indices, validation_indices = _hold_out(dataset, partition, units, unit)
        held_out = train.subset(validation_indices)
        train, units = train.subset(train_indices), units.subset(train_indices)
    if not dataset.known and partition.stable:
        clients = partition.deal(units)
    else:
        clients = clients_of(partition, units.labels, units.client_ids)
    return FederatedData(
        train=train.to(device),
        clients=clients,
        validation=None if held_out is None else held_out.to(device),
        test=loaded.test.to(device),
        classes=dataset.classes,
        input_shape=dataset.input_shape,
        task=dataset.task,
        vocabulary=loaded.vocabulary,
        vocabulary_size=dataset.vocabulary_size,
        numbers=train_indices,
        declared_records=dataset.declared_records,
        test_clients=_test_clients(loaded, units, clients),
    )


def _test_clients(loaded: LoadedDataset, units: Units, clients: ClientRecords) -> np.ndarray | None:
    """Return the client of each test record [m], -1 for nobody; None where no client has a test record.

    A test record belongs to the client that holds the training records of its author.
    """
    if loaded.test_owners is None or units.client_ids is None:
        return None
    authors, holders = units.client_ids[clients.indices], clients.owners
    holder_of = np.full(len(units.names), -1)
    holder_of[authors] = holders
    if (holder_of[authors] != holders).any():  # several clients share the records of an author
        return None
    by_name = dict(zip(map(str, units.names), holder_of.tolist(), strict=True))
    owners = np.array([by_name.get(str(name), -1) for name in loaded.test_owners])
    return owners if (owners >= 0).any() else None


def _hold_out(
    dataset: Dataset, partition: Partition, units: Units, unit: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted indices of the records that stay in training, and those of the validation split.

    At client level a client is in the split with all of its records or with none: else records of a protected
    client would be read without noise.

    Raises:
        ConfigError: One of the two parts would be empty.
    """
    records = len(units.labels)
    share = dataset.validation_share or dataset.validation_records / records
    ids = units.client_ids
    if unit == "client" and ids is not None and (partition.by_user or is_own(partition)):
        in_split = units.coins_of_clients("validation")[ids] < share
    elif dataset.validation_share and not dataset.known:
        in_split = units.coins("validation") < share
    else:
        return split_records(records, dataset.validation_records, partition, units.seed)
    if in_split.all() or not in_split.any():
        key = "validation_share" if dataset.validation_share else "validation_records"
        allowed = "such that the split leaves a user, or record, on either side"
        raise ConfigError(f"dataset.{key}", getattr(dataset, key), allowed)
    return np.flatnonzero(~in_split), np.flatnonzero(in_split)


def smallest_client(data: FederatedData | ClientSizes) -> int:
    """Return the public number of records of the smallest client that has any.

    Raises:
        ConfigError: No client has a record.
    """
    sizes = data.records_per_client
    if not sizes.any():
        raise ConfigError("partition.clients", data.client_count, "so few that one has a record")
    return int(sizes[sizes > 0].min())


def unreadable_data(dataset: Dataset, error: OSError) -> DataError:
    """Return the error for a data set whose code could not read a file."""
    where = Path(error.filename or "its files")
    return DataError(f"dataset {dataset.name}: {unreadable(where, error)}")


def clients_of(
    partition: Partition, labels: np.ndarray, client_ids: np.ndarray | None
) -> ClientRecords:
    """Return the record indices that a partition assigns to each client.

    Args:
        partition: The rule.
        labels: Labels of the training records [n], or their sequences of targets [n, L].
        client_ids: Author of each record, int64 [n], or None.

    Raises:
        DataError: A client has no record, or a record does not belong to one client at most. If two clients
            held the same record, the epsilon of neither client would protect it.
        ConfigError: The data cannot be split by the settings of the partition.
    """
    assigned, records = partition.assign(labels, client_ids), len(labels)
    try:
        clients = ClientRecords.of(assigned)
    except TypeError as error:
        raise DataError(f"partition: assign must give arrays of record indices ({error})") from None
    if not len(clients) or not clients.sizes.all():
        raise DataError("partition: assign must give every client a record")
    indices = clients.indices
    if indices.min() < 0 or indices.max() >= records:
        raise DataError(f"partition: assign must give indices from 0 to {records - 1}")
    held = np.zeros(records, dtype=bool)
    held[indices] = True
    if np.count_nonzero(held) < len(indices):
        raise DataError("partition: assign must give each record to one client at most, once")
    return clients


def _refuse_other_than_said(dataset: Dataset, loaded: object) -> None:
    """Raise DataError if the loaded records differ from the attributes that the plan was made from."""
    if not isinstance(loaded, LoadedDataset):
        raise DataError(
            f"{dataset.name}: load must return a LoadedDataset of fedpriv.data.records, got a "
            f"{type(loaded).__name__}"
        )
    comparisons = (
        ("train_records", dataset.train_records, len(loaded.train)),
        ("input_shape", tuple(dataset.input_shape), tuple(loaded.train.inputs.shape[1:])),
    )
    for name, declared, loaded_value in comparisons:
        if declared != loaded_value:
            raise DataError(
                f"{dataset.name}: {name} is {declared}, but the loaded records have {loaded_value}"
            )


def _refuse_out_of_range(dataset: Dataset, records: Records) -> None:
    """Raise DataError for labels that are no classes, and for labels or token ids out of range.

    Without this check the run would fail only in the round that draws such a record.
    """
    targets = records.targets
    several = targets.dim() != 1 and dataset.vocabulary_size is None
    if "int" not in str(targets.dtype) or several:
        raise DataError(
            f"{dataset.name}: targets are {str(targets.dtype).removeprefix('torch.')} of shape "
            f"{list(targets.shape)}; fedpriv trains classifiers and language models, whose targets are whole "
            f"numbers: a class in 0 … {dataset.classes - 1} for each record (int64, [n])"
        )
    checked: list[tuple[str, torch.Tensor, int | None]] = [
        ("targets", records.targets, dataset.classes)
    ]
    if not records.inputs.is_floating_point():
        checked.append(("token ids", records.inputs, dataset.vocabulary_size))
    for description, values, limit in checked:
        if (
            limit is not None
            and values.numel()
            and not 0 <= int(values.min()) <= int(values.max()) < limit
        ):
            raise DataError(
                f"{dataset.name}: {description} must be in 0 … {limit - 1}, got {int(values.min())} … "
                f"{int(values.max())}"
            )


def split_records(
    records: int, wanted: int, partition: Partition, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the public validation split.

    Args:
        records: Number of training records n.
        wanted: Number of records to hold out.
        partition: Partition of the remaining records; each client must keep at least one.
        seed: Public seed of the draw.

    Returns:
        Sorted indices of the records that stay in training, and sorted indices of the validation split.

    Raises:
        ConfigError: Too few records remain for the clients.
    """
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
    """Return the same federated data with other training records of the same clients.

    Args:
        data: The data.
        train: The records, as many as before and in the same order.
    """
    sizes = data.records_per_client
    changed = replace(data, train=train)
    changed.__dict__["records_per_client"] = sizes
    return changed
