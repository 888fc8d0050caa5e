"""Synthetic data of any number of users, drawn from a public seed: no record belongs to a person.

They serve to measure time, memory and accuracy at numbers of clients that no data set here has.
A plan, a privacy statement and ``fedpriv data`` say that the data are synthetic.

Users are drawn in blocks of ``BLOCK``, each quantity of a block from a stream of its own. So the records of a
user depend on the seed and the number of the user, and a federation of more users contains a smaller one.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, or_null, random_seed, unchecked, whole
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import counted
from fedpriv.data.base import Dataset
from fedpriv.data.records import (
    LANGUAGE_MODEL,
    DataStatus,
    LoadedDataset,
    Records,
)
from fedpriv.data.text_tokens import WORD
from fedpriv.data.text_vocabulary import SPECIAL, Vocabulary

BLOCK = 1024  # users that are drawn together
TRAIN, TEST = "train", "test"
NO_PERSON = (
    "The records are synthetic, drawn from the public dataset.seed: they belong to no person, and a "
    "guarantee about them protects nobody."
)
_VERSION = 1  # to be raised when the same settings give other records


@declared
class SyntheticDataset(Dataset):
    """Base class of the two synthetic data sets: users, their numbers of records, and the blocks.

    Each user has ``records_per_user`` records, or a number drawn uniformly from there to
    ``most_records_per_user``. Each test record is from another user, none of whom trains.
    """

    users: int = field(
        whole(at_least=1, at_most=1_000_000),
        default=1000,
        kw_only=True,
        help="number of users; each is a client with partition=natural",
    )
    records_per_user: int = field(
        whole(at_least=1), default=10, kw_only=True, help="number of records of a user"
    )
    most_records_per_user: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        kw_only=True,
        help="users have from records_per_user to so many records, uniformly; null: all have as many",
    )
    test_records: int = field(
        whole(at_least=1, at_most=1_000_000),
        default=2000,
        kw_only=True,
        help="number of test records, each of another user who trains nothing",
    )
    seed: int = field(
        random_seed,
        default=0,
        kw_only=True,
        help="public seed of all records, whatever the run's seed",
    )
    validation_records: int = field(
        unchecked("whole number >= 1"),
        default=None,
        kw_only=True,
        help="records held out of the training records as a public split, if read; null: a tenth, up to 2000",
    )

    def __attrs_post_init__(self) -> None:
        most = self.most_records_per_user
        if most is not None and most < self.records_per_user:
            allowed = f"null or >= {self.records_per_user}, which is dataset.records_per_user"
            raise ArgumentError("most_records_per_user", most, allowed)
        if self.validation_records is None:
            self.validation_records = max(1, min(2000, self.train_records // 10))
        else:
            self.validation_records = checks.whole(
                "validation_records",
                self.validation_records,
                at_least=1,
                at_most=self.train_records - 1,
            )

    @cached_property
    def records_of_users(self) -> np.ndarray:
        """Number of records of each user, int64 [users]."""
        if self.most_records_per_user is None:
            return np.full(self.users, self.records_per_user, dtype=np.int64)
        range_of_sizes = (self.records_per_user, self.most_records_per_user + 1)
        return np.concatenate(
            [
                self._stream(TRAIN, "sizes", first).integers(*range_of_sizes, size=users)
                for first, users in _blocks(self.users)
            ]
        )

    @property
    def train_records(self) -> int:
        """Number of training records."""
        return int(self.records_of_users.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentence for the plan: the data are synthetic."""
        sizes = f"{self.records_per_user}"
        if self.most_records_per_user is not None:
            sizes += f" to {self.most_records_per_user}"
        return (
            f"synthetic, of no person: {counted(self.users, 'user')} of {sizes} records, drawn from "
            f"dataset.seed={self.seed}",
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentence for the privacy statement: nobody is protected."""
        return (NO_PERSON,)

    def load(self) -> LoadedDataset:
        """Draw all records, those of a user next to each other and users in their order."""
        test_sizes = np.ones(self.test_records, dtype=np.int64)
        return LoadedDataset(
            train=self._records(TRAIN, self.records_of_users),
            test=self._records(TEST, test_sizes),
            client_ids=np.repeat(np.arange(self.users), self.records_of_users),
            vocabulary=self._vocabulary_of_ids(),
        )

    def present(self) -> DataStatus:
        """Return the status: there are always records, as they are drawn."""
        return DataStatus(
            name=self.name,
            train_records=self.train_records,
            test_records=self.test_records,
            where="drawn from a seed",
            present=True,
            checksums="synthetic",
            note="any number of users (dataset.users) and of records; of no person",
        )

    def download(self, destination: str | Path) -> None:
        """Do nothing: the records are drawn."""

    def _vocabulary_of_ids(self) -> Vocabulary | None:
        return None

    def _records(self, part: str, sizes: np.ndarray) -> Records:
        """Draw the records of users with these numbers of records [users]."""
        import torch

        inputs, targets = self._empty(int(sizes.sum()))
        start = 0
        for first, users in _blocks(len(sizes)):
            sizes_of_block = sizes[first : first + users]
            end = start + int(sizes_of_block.sum())
            self._draw(part, first, sizes_of_block, inputs[start:end], targets[start:end])
            start = end
        # The last digits of a linear teacher's scores differ between machines; the settings do not.
        settings = [f"{name}={value}" for name, value in sorted(self._settings().items())]
        source = (self.name, str(_VERSION), part, *settings)
        records = Records(torch.from_numpy(inputs), torch.from_numpy(targets), source)
        # Test records are few and read as a whole, so they are not kept in bytes.
        return records.widened() if part == TEST else records

    def _settings(self) -> dict[str, object]:
        """Return every setting that changes the records."""
        names = (attribute.name for attribute in self.__attrs_attrs__)  # type: ignore[attr-defined]
        return {name: getattr(self, name) for name in names if name != "validation_records"}

    def _stream(self, part: str, quantity: str, first: int) -> np.random.Generator:
        return numpy_stream(self.seed, f"{self.name}_{part}_{quantity}", first)

    @abstractmethod
    def _empty(self, records: int) -> tuple[np.ndarray, np.ndarray]:
        """Return arrays for the inputs and the targets of so many records."""

    @abstractmethod
    def _draw(
        self, part: str, first: int, sizes: np.ndarray, inputs: np.ndarray, targets: np.ndarray
    ) -> None:
        """Draw the records of one block of users into ``inputs`` and ``targets``.

        Args:
            part: ``train`` or ``test``.
            first: Number of the block's first user.
            sizes: Number of records of each user of the block.
            inputs: The block's inputs, written to.
            targets: The block's targets, written to.
        """


@declared
class Synthetic(SyntheticDataset):
    """Records of ``features`` numbers, labelled by a linear teacher.

    Record x of user k has the label argmax(W x + b_k) and x ~ N(v_k, Σ), where Σ is diagonal with
    Σ_jj = j^-1.2. W is the teacher, with entries ~ N(0, 1). The entries of b_k are ~ N(0, ``label_skew``), so
    users prefer some labels; those of v_k are ~ N(0, ``feature_skew``), so users differ in their inputs.

    Source:
        Li et al. 2020 (FedProx), section 5.1: synthetic(α, β). There each user has a W of its own, which ten
        records cannot tell; here all users share it.

    Example:
        >>> loaded = Synthetic(users=3, records_per_user=2).load()
        >>> loaded.train.inputs.shape, loaded.client_ids.tolist()
        (torch.Size([6, 16]), [0, 0, 1, 1, 2, 2])
    """

    known = True
    name: ClassVar[str] = "synthetic"

    features: int = field(
        whole(at_least=1, at_most=100_000), default=16, help="numbers of a record", unit="d"
    )
    classes: int = field(whole(at_least=2, at_most=1000), default=10, help="number of labels")
    label_skew: float = field(
        number(at_least=0),
        default=0.5,
        unit="α",
        help="variance of a user's own bias for each label; 0: none",
    )
    feature_skew: float = field(
        number(at_least=0),
        default=0.5,
        unit="β",
        help="variance of the mean of a user's inputs; 0: all users have one distribution of inputs",
    )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (d,) of a record."""
        return (self.features,)

    @cached_property
    def _teacher(self) -> np.ndarray:
        weights = numpy_stream(self.seed, f"{self.name}_teacher")
        return weights.standard_normal((self.features, self.classes), dtype=np.float32)

    def _empty(self, records: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty((records, self.features), np.float32), np.empty(records, np.int64)

    def _draw(
        self, part: str, first: int, sizes: np.ndarray, inputs: np.ndarray, targets: np.ndarray
    ) -> None:
        def normals(quantity: str, columns: int, variance: float) -> np.ndarray:
            stream = self._stream(part, quantity, first)
            of_users = stream.standard_normal((len(sizes), columns), dtype=np.float32)
            return np.repeat(of_users * np.float32(variance**0.5), sizes, axis=0)

        self._stream(part, "inputs", first).standard_normal(dtype=np.float32, out=inputs)
        inputs *= np.arange(1, self.features + 1, dtype=np.float32) ** np.float32(-0.6)
        if self.feature_skew:
            inputs += normals("means", self.features, self.feature_skew)
        scores = inputs @ self._teacher
        if self.label_skew:
            scores += normals("biases", self.classes, self.label_skew)
        np.argmax(scores, axis=1, out=targets)


@declared
class SyntheticText(SyntheticDataset):
    """Sequences of ``length`` tokens with the next tokens as targets, from Markov chains.

    Each user writes in one of ``dialects`` chains over ``vocabulary_size - 2`` words. A word is followed by
    ``SUCCESSORS`` others with probabilities that fall as 1/rank, so a model that knows the dialect predicts
    the next word in about 37 of 100 cases, and one that guesses in 1 of 62.

    Example:
        >>> loaded = SyntheticText(users=2, records_per_user=1, length=3).load()
        >>> bool((loaded.train.inputs[:, 1:] == loaded.train.targets[:, :-1]).all())
        True
    """

    SUCCESSORS = 8

    known = True
    name: ClassVar[str] = "synthetic_text"
    task: ClassVar[str] = LANGUAGE_MODEL
    level: ClassVar[str] = WORD

    length: int = field(
        whole(at_least=1, at_most=10_000), default=10, unit="tokens", help="length of a record"
    )
    vocabulary_size: int = field(
        whole(at_least=4, at_most=256),
        default=64,
        help="number of token ids, which include 0 (padding) and 1 (unknown tokens)",
    )
    dialects: int = field(
        whole(at_least=1, at_most=256), default=4, help="number of chains, of which a user has one"
    )

    @property
    def classes(self) -> int:
        """Number of token ids that a language model chooses from."""
        return self.vocabulary_size

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (L,) of a record."""
        return (self.length,)

    def _vocabulary_of_ids(self) -> Vocabulary:
        words = (f"word{i}" for i in range(self.vocabulary_size - len(SPECIAL)))
        return Vocabulary((*SPECIAL, *words), WORD)

    @cached_property
    def _next(self) -> np.ndarray:
        """Next word of each dialect, word and random byte, uint8 [dialects, words, 256]."""
        words = self.vocabulary_size - len(SPECIAL)
        shares = 1.0 / np.arange(1, min(self.SUCCESSORS, words) + 1)
        ends = np.rint(np.cumsum(shares / shares.sum()) * 256).astype(int)
        rank_of_byte = np.searchsorted(ends, np.arange(256), side="right")
        order = numpy_stream(self.seed, f"{self.name}_chains").random((self.dialects, words, words))
        return np.argsort(order, axis=2).astype(np.uint8)[:, :, rank_of_byte]

    def _empty(self, records: int) -> tuple[np.ndarray, np.ndarray]:
        # One byte a token: lots are widened when they are drawn, see Records.
        shape = (records, self.length)
        return np.empty(shape, np.uint8), np.empty(shape, np.uint8)

    def _draw(
        self, part: str, first: int, sizes: np.ndarray, inputs: np.ndarray, targets: np.ndarray
    ) -> None:
        words = self.vocabulary_size - len(SPECIAL)
        of_users = self._stream(part, "dialects", first).integers(self.dialects, size=len(sizes))
        dialect = np.repeat(of_users, sizes)
        stream = self._stream(part, "words", first)
        # A row of random bytes for each record: the words of a record do not depend on later records.
        random_bytes = np.frombuffer(stream.bytes(len(inputs) * (self.length + 4)), np.uint8)
        random_bytes = random_bytes.reshape(len(inputs), self.length + 4)
        word = (random_bytes[:, :4].copy().view(np.uint32).ravel() % words).astype(np.uint8)
        inputs[:, 0] = word + len(SPECIAL)
        for position in range(self.length):
            word = self._next[dialect, word, random_bytes[:, position + 4]]
            targets[:, position] = word + len(SPECIAL)
        inputs[:, 1:] = targets[:, :-1]


def _blocks(users: int) -> list[tuple[int, int]]:
    """Return the first user and the number of users of each block."""
    return [(first, min(BLOCK, users - first)) for first in range(0, users, BLOCK)]
