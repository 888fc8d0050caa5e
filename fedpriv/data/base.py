"""Base classes of data sets and partitions: the attributes and methods that a run uses.

Most attributes have a default, so a class of the user's own defines only a few of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from fedpriv.common.attributes import PACKAGE
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, ReleasedStatistics
from fedpriv.data.text_tokens import WORD

if TYPE_CHECKING:
    import numpy as np

    from fedpriv.data.client_records import ClientRecords
    from fedpriv.data.roles import Units


class Dataset(ABC):  # noqa: B024 (users' classes are registered with it)
    """A data set. Its sizes and shapes are known before the records are loaded.

    A data set of the user's own must have ``name``, ``train_records``, ``input_shape``, ``classes``, and
    ``read`` and ``encode`` (:mod:`fedpriv.data.own_rows`), or a ``load`` that nothing tests. The class need
    not extend this one: missing attributes and methods are added to the object
    (:func:`fedpriv.common.base_classes.completed`). Their defaults stand for a classification of records that
    are no text, without a public split, without a release of its own, and without files to look for.

    Example:
        >>> import torch
        >>> from fedpriv.data.records import LoadedDataset, Records
        >>> class Coins(Dataset):
        ...     name, train_records, input_shape, classes = "coins", 4, (1,), 2
        ...     def load(self):
        ...         inputs, targets = torch.ones(4, 1), torch.tensor([0, 1, 0, 1])
        ...         return LoadedDataset(train=Records(inputs, targets), test=Records(inputs, targets))
        >>> Coins().task
        'classification'
        >>> len(Coins().load().train)
        4
    """

    @fact
    def name(self) -> str:
        """Name in tables and messages."""
        raise AttributeError("name")

    @fact
    def train_records(self) -> int:
        """Number of training records."""
        raise AttributeError("train_records")

    @fact
    def test_records(self) -> int:
        """Number of test records; 0 means that the number is unknown before the records are loaded."""
        return 0

    @fact
    def known(self) -> bool:
        """True if the files are published ones, which nobody adds a record to; the default is False.

        Their splits are the permutations of their protocols. Any other data are split by coins
        (:mod:`fedpriv.data.roles`).
        """
        return False

    @fact
    def split_seed(self) -> int:
        """Public seed of the coins, of data that are not ``known``; 0 by default."""
        return 0

    @fact
    def declared_records(self) -> int | None:
        """Declared number of training records, from which lot sizes and weights follow; None: as found."""
        return None

    @fact
    def names_records(self) -> bool:
        """True if the key of a record stays where the record is replaced: it names a person or an id."""
        return False

    @fact
    def test_of_clients(self) -> bool:
        """True if test records are records of the very users who train; the default is False."""
        return False

    @fact
    def validation_records(self) -> int:
        """Number of records in the public validation split; 0 means that there is no such split."""
        return 0

    @fact
    def validation_path(self) -> str | None:
        """File of the public validation records; None, the default: they are training records."""
        return None

    @fact
    def validation_share(self) -> float:
        """Share of the records, or users, that is public validation, by coins; 0: ``validation_records``."""
        return 0.0

    @fact
    def records_of_users(self) -> np.ndarray | None:
        """Number of training records of each user, int64 [users]; None, the default: the records tell."""
        return None

    @fact
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record, without the batch dimension."""
        raise AttributeError("input_shape")

    @fact
    def classes(self) -> int:
        """Number of labels; for a language model, the number of ids in its vocabulary."""
        raise AttributeError("classes")

    @fact
    def class_names(self) -> Sequence[object]:
        """Names of the classes in their order; their numbers by default."""
        return range(self.classes)

    @fact
    def encoding(self) -> str:
        """Description of how a record becomes an input of the model, for its readers alone."""
        return f"as {type(self).__module__}.{type(self).__qualname__} encodes records"

    @fact
    def task(self) -> str:
        """Task of the model: ``classification``, which is the default, or ``language_model``."""
        return CLASSIFICATION

    @fact
    def vocabulary_size(self) -> int | None:
        """Number of token ids; None if the records are not text."""
        return None

    @fact
    def level(self) -> str:
        """Unit of a token of text: ``word`` or ``character``."""
        return WORD

    @fact
    def path(self) -> str | None:
        """Folder or file that the user named; None for the default folder."""
        return None

    @fact
    def to_be_downloaded(self) -> bool:
        """True if a run would download the files first; the default is False.

        Raises:
            DataError: The data folder cannot be read.
        """
        return False

    @fact
    def ranges(self) -> object:
        """Public ends of the numbers of a row, ``[low, high]`` or a mapping by name; none by default."""
        return {}

    @fact
    def notes(self) -> tuple[str, ...]:
        """Sentences about the data for the plan."""
        return ()

    @fact
    def caveats(self) -> tuple[str, ...]:
        """Sentences about the data for the privacy statement."""
        return ()

    @fact
    def unprotected(self) -> Mapping[str, object]:
        """Config keys, with their values, that publish something about clients without noise.

        An example is a vocabulary that is built from the clients' texts. No epsilon covers such a release.
        """
        return {}

    @fact
    def features_name(self) -> str | None:
        """Name of the features that replace the images; None if there are none."""
        return None

    @fact
    def released_statistics(self) -> ReleasedStatistics | None:
        """Noisy release by the clients that normalizes the features; None if there is none."""
        return None

    def load(self) -> LoadedDataset:
        """Read all records. The default reads and tests rows, by ``read`` and ``encode``.

        Returns:
            The training and test records as tensors.

        Raises:
            DataError: A file is missing, unreadable or damaged.
        """
        from fedpriv.data.own_rows import load_rows

        return load_rows(self)

    def split_for(self, unit: str) -> None:
        """Split the records where ``unit`` (``record`` or ``client``) is protected. The default does nothing.

        Raises:
            DataError: A part of the split is empty.
        """

    def prepare(self) -> None:
        """Make sure that the files are there, by a download if that is allowed. The default does nothing.

        Raises:
            DataError: The files are not there.
        """

    def verify(self) -> object:
        """Read the files and compare their checksums. The default does nothing.

        Raises:
            DataError: A file is damaged.
        """

    def without_features(self) -> Dataset:
        """Return the image data set behind these features; a data set without features returns itself."""
        return self


def untested(dataset: Dataset) -> str | None:
    """Return the class of a data set of the user's own whose ``load`` nothing tests; None for any other."""
    kind = type(dataset.without_features())
    if kind.load is Dataset.load or kind.__module__.startswith(PACKAGE):
        return None
    return f"{kind.__module__}.{kind.__qualname__}"


class DatasetView(Dataset):
    """A data set that takes its attributes from another data set, unless a subclass defines them.

    Attributes:
        source: The other data set.
    """

    def __init__(self, source: Dataset):
        self.source = source

    def prepare(self) -> None:
        self.source.prepare()

    def verify(self) -> object:
        return self.source.verify()

    def split_for(self, unit: str) -> None:
        self.source.split_for(unit)


def _of_source(name: str) -> fact:
    return fact(lambda view: getattr(view.source, name))


for _name, _value in vars(Dataset).items():
    if isinstance(_value, fact):
        setattr(DatasetView, _name, _of_source(_name))


class Partition(ABC):
    """A rule that assigns the training records to clients.

    A partition of the user's own must have ``clients`` and ``assign``. The class need not extend this one.
    Unless it says otherwise, the sizes of its clients are taken to depend on the labels, so that the data are
    read to know them.

    Example:
        >>> class EvenAndOdd(Partition):
        ...     clients = 2
        ...     def assign(self, labels, client_ids):
        ...         return [np.arange(first, len(labels), 2) for first in (0, 1)]
        >>> import numpy as np
        >>> EvenAndOdd().assign(np.zeros(4), None)[1].tolist()
        [1, 3]
    """

    @fact
    def clients(self) -> int | None:
        """Number of clients; None for one client per user of the data set."""
        raise AttributeError("clients")

    @fact
    def records(self) -> int | None:
        """Fixed number of records of every client; None, the default, if it depends on the data."""
        return None

    @fact
    def by_count(self) -> bool:
        """True if the client sizes depend on the number of records alone; the default is False."""
        return False

    @fact
    def by_user(self) -> bool:
        """True if the client sizes depend on the numbers of records of users alone; the default is False."""
        return False

    @fact
    def stable(self) -> bool:
        """True if :meth:`deal` gives every record a client whatever other records there are."""
        return False

    @fact
    def seed(self) -> int | None:
        """Seed of the random assignment; None for the seed of the run."""
        return None

    def deal(self, units: Units) -> ClientRecords:
        """Assign records by the coins of their units. Clients may get no record.

        Args:
            units: The units of the training records.
        """
        raise ConfigError(f"partition: {type(self).__name__} is stable, and has no deal")

    def describe(self) -> str:
        """Return its name and its settings, but for the number of clients and the seed, for the plan."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()
        kind: type = type(self)
        fields = attrs.fields(kind) if attrs.has(kind) else ()
        keys = [one.name for one in fields if one.init and one.name not in ("clients", "seed")]
        settings = {key: getattr(self, key) for key in keys}
        shown = [f"{k}={v}" for k, v in settings.items() if isinstance(v, int | float | str)]
        return ", ".join([name, *shown])

    @abstractmethod
    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None) -> Sequence[np.ndarray]:
        """Assign records to clients.

        Args:
            labels: Labels of the training records [n], or their sequences of targets [n, L].
            client_ids: Author of each record, int64 [n]; None if the data set does not know the authors.

        Returns:
            The record indices of each client: int64, sorted, disjoint, never empty. Disjointness is what
            makes the privacy guarantee of one client independent of the other clients. A list of arrays, or
            for very many clients a :class:`fedpriv.data.client_records.ClientRecords`.

        Raises:
            ConfigError: The data cannot be split by these settings.
        """
