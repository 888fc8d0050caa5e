"""Made-up records of a data set's shape: a mechanism is verified without its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream, torch_stream
from fedpriv.data.records import CLASSIFICATION, LoadedDataset, Records

_TEST_RECORDS = 256
_RECORDS_OF_A_USER = 64


class MadeUp:
    """As many records as the data set has, of normal numbers with uniform labels."""

    def __init__(self, dataset: Any):
        """Raises ConfigError for text, whose records have a vocabulary."""
        of_text = getattr(type(dataset), "vocabulary_size", None) is not None  # without its file
        if of_text or getattr(dataset, "task", CLASSIFICATION) != CLASSIFICATION:
            raise ConfigError(
                f"--synthetic makes up records of numbers, and {dataset.name} is text; leave it out"
            )
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def load(self) -> LoadedDataset:
        records = self._dataset.train_records
        users = numpy_stream(0, "verify_users").integers(
            max(1, records // _RECORDS_OF_A_USER), size=records
        )
        return LoadedDataset(
            self._records(records, 0), self._records(_TEST_RECORDS, 1), np.asarray(users)
        )

    def _records(self, count: int, which: int) -> Records:
        stream = torch_stream(which, "verify_records")
        inputs = torch.randn(count, *self._dataset.input_shape, generator=stream)
        return Records(inputs, torch.randint(self._dataset.classes, (count,), generator=stream))
