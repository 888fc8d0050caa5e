"""The base classes of data sets and partitions: what each must offer, and what it need not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, ReleasedStatistics
from fedpriv.data.text_tokens import WORD

if TYPE_CHECKING:
    import numpy as np

    from fedpriv.common.conflicts import Combination


class Dataset(ABC):
    """A data set, whose facts are known before it is loaded.

    A data set of a user's own must have ``name``, ``train_records``, ``input_shape``, ``classes`` and
    ``load``. It need not extend this class: what it lacks of the rest is added once it is made
    (:func:`fedpriv.common.base_classes.completed`).
    """

    @fact
    def name(self) -> str:
        """The name in tables and messages."""
        raise AttributeError("name")

    @fact
    def train_records(self) -> int:
        """Number of training records."""
        raise AttributeError("train_records")

    @fact
    def test_records(self) -> int:
        """Number of test records; 0: not known before they are loaded."""
        return 0

    @fact
    def validation_records(self) -> int:
        """Size of the public validation split; 0: there is none."""
        return 0

    @fact
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a record."""
        raise AttributeError("input_shape")

    @fact
    def classes(self) -> int:
        """Number of labels; for a language model the number of ids in its vocabulary."""
        raise AttributeError("classes")

    @fact
    def task(self) -> str:
        """``classification`` or ``language_model``."""
        return CLASSIFICATION

    @fact
    def vocabulary_size(self) -> int | None:
        """Number of token ids; None: the records are no text."""
        return None

    @fact
    def level(self) -> str:
        """A token of text: ``word`` or ``character``."""
        return WORD

    @fact
    def path(self) -> str | None:
        """The folder or file that the user named; None: the usual place."""
        return None

    @fact
    def to_be_downloaded(self) -> bool:
        """True where a run would fetch the files first. Raises DataError."""
        return False

    @fact
    def notes(self) -> tuple[str, ...]:
        """Sentences for the plan."""
        return ()

    @fact
    def caveats(self) -> tuple[str, ...]:
        """Sentences for the privacy statement."""
        return ()

    @fact
    def unprotected(self) -> Mapping[str, object]:
        """Keys of the data set, with their values, by which something of every client's data is known without
        noise before the first round."""
        return {}

    @fact
    def features_name(self) -> str | None:
        """The name of the features that stand in the place of images; None: there are none."""
        return None

    @fact
    def released_statistics(self) -> ReleasedStatistics | None:
        """The release of clients by which features are normalized; None: there is none."""
        return None

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse a schedule that reads a public split of no size, and a sound budget where something is known
        of clients without noise."""
        if parts.noise_schedule.reads_validation and not self.validation_records:
            yield ConfigError(
                "dataset needs validation_records: the size of the public split that this noise_schedule "
                f"reads ({type(self).__name__} has none)"
            )
        settings = parts.settings
        if parts.algorithm.private and settings.epsilon is not None and settings.sound:
            for key, value in self.unprotected.items():
                yield ConfigError(
                    f"dataset.{key}",
                    value,
                    "another with budget_view=sound and an epsilon",
                    "it is a release without noise, which no budget allows: take epsilon=null or "
                    "budget_view=published",
                )

    @abstractmethod
    def load(self) -> LoadedDataset:
        """Read all records. Raises DataError where that is not possible."""

    def prepare(self) -> None:
        """Make sure that the files are there. Raises DataError where they are not."""

    def verify(self) -> object:
        """Read the files and compare their checksums. Raises DataError for a damaged file."""

    def without_features(self) -> Dataset:
        """Return the data set of images where features stand in their place, else this one."""
        return self


class DatasetView(Dataset):
    """A data set with the facts of another one, its ``source``, but for those that a subclass has itself."""

    def __init__(self, source: Dataset):
        self.source = source

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        return self.source.conflicts(parts)

    def prepare(self) -> None:
        self.source.prepare()

    def verify(self) -> object:
        return self.source.verify()


def _of_source(name: str) -> fact:
    return fact(lambda view: getattr(view.source, name))


for _name, _value in vars(Dataset).items():
    if isinstance(_value, fact):
        setattr(DatasetView, _name, _of_source(_name))


class Partition(ABC):
    """A way to spread training records over clients."""

    @fact
    def clients(self) -> int | None:
        """Number of clients; None: as many as the data have users."""
        raise AttributeError("clients")

    @fact
    def records(self) -> int | None:
        """Number of records of every client, whatever the data set; None: that depends on the data."""
        return None

    @fact
    def by_count(self) -> bool:
        """Whether the sizes of clients follow from the number of records, whatever the labels."""
        return False

    @fact
    def seed(self) -> int | None:
        """Seed of the draw; None: that of the run."""
        return None

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse an algorithm that counts on other clients than there are."""
        algorithm = parts.algorithm
        try:
            if self.clients:
                algorithm.check_clients(self.clients)
        except ArgumentError as error:
            yield error.within("algorithm")
        for key, true in (("clients", self.clients), ("records", self.records)):
            assumed = algorithm.assumed.get(key)
            if None not in (true, assumed) and true != assumed:
                allowed, hint = f"{true}, which partition.{key} is", f"set partition.{key} alone"
                yield ConfigError(f"algorithm.{key}", assumed, allowed, hint)

    @abstractmethod
    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None) -> list[np.ndarray]:
        """Return the indices of each client's records: int64, sorted, disjoint, never empty.

        Args:
            labels: The labels of the training records [n], or their sequences of targets [n, L].
            client_ids: Who made each record, int64 [n]; None where the data set does not say.

        Raises:
            ConfigError: The data cannot be split as asked.
        """
