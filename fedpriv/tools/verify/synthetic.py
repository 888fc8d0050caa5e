"""Made-up records of a data set's shape, to verify a mechanism without the files of the data set."""

from __future__ import annotations

import numpy as np
import torch

from fedpriv.common.random_streams import numpy_stream, torch_stream
from fedpriv.data.base import Dataset, DatasetView
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, Records
from fedpriv.data.text_vocabulary import PAD, SPECIAL, Vocabulary

_TEST_RECORDS = 256
_RECORDS_OF_A_USER = 64
_TEXTS = 2048  # few, because networks of text are slow
_TEXTS_OF_A_USER = 16


class MadeUp(DatasetView):
    """A data set of made-up records.

    Records are normal numbers with uniform labels, as many as the data set has. Texts are at most 2,048
    sequences of uniform tokens, with uniform lengths from one to the longest.

    Attributes:
        train_records: Number of training records.
        validation_records: Number of validation records.
    """

    train_records: int
    validation_records: int

    def __init__(self, dataset: Dataset):
        super().__init__(dataset)
        self._of_text = dataset.vocabulary_size is not None
        self.train_records = dataset.train_records
        self.validation_records = dataset.validation_records
        if self._of_text:
            self.train_records = min(_TEXTS, self.train_records)
            self.validation_records = min(_TEST_RECORDS, self.validation_records)

    def load(self) -> LoadedDataset:
        """Return made-up records of made-up users."""
        each = _TEXTS_OF_A_USER if self._of_text else _RECORDS_OF_A_USER
        users = numpy_stream(0, "verify_users").integers(
            max(1, self.train_records // each), size=self.train_records
        )
        return LoadedDataset(
            self._records(self.train_records, 0),
            self._records(_TEST_RECORDS, 1),
            np.asarray(users),
            self.vocabulary if self._of_text else None,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """A vocabulary of numbered tokens."""
        size = self.source.vocabulary_size or 0
        tokens = (f"token{i}" for i in range(size - len(SPECIAL)))
        return Vocabulary((*SPECIAL, *tokens), self.source.level)

    def _records(self, count: int, seed: int) -> Records:
        stream = torch_stream(seed, "verify_records")
        shape = self.source.input_shape
        if not self._of_text:
            inputs = torch.randn(count, *shape, generator=stream)
            return Records(inputs, torch.randint(self.source.classes, (count,), generator=stream))
        (length,) = shape
        assert self.source.vocabulary_size is not None
        most = self.source.vocabulary_size
        tokens = torch.randint(1, most, (count, length + 1), generator=stream)
        lengths = torch.randint(1, length + 1, (count, 1), generator=stream)
        # Texts of random lengths, of one token at least.
        absent = torch.arange(length) >= lengths
        inputs = tokens[:, :-1].masked_fill(absent, PAD)
        # The target at each place is the next token.
        if self.source.task != CLASSIFICATION:
            return Records(inputs, tokens[:, 1:].masked_fill(absent, PAD))
        return Records(inputs, torch.randint(self.source.classes, (count,), generator=stream))
