"""CIFAR-10, read from ``cifar-10-batches-py`` (A. Krizhevsky, 2009).

The layout and the MD5 sums are those of ``torchvision.datasets.CIFAR10``. The batches are pickles:
only bytes whose MD5 was just verified are unpickled.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.data.records import LoadedDataset
from fedpriv.data.storage import StoredFile
from fedpriv.data.stored import StoredImages

FOLDER = "cifar-10-batches-py"


class Cifar10(StoredImages):
    """CIFAR-10: 50,000 + 10,000 colour photographs in ten classes, 3x32x32."""

    name = "cifar10"
    train_records = 50_000
    test_records = 10_000
    input_shape = (3, 32, 32)
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)
    contents = f"{FOLDER} with its six batch files"
    torchvision_class = "CIFAR10"
    files: ClassVar = (  # the test batch last
        StoredFile(f"{FOLDER}/data_batch_1", "c99cafc152244af753f735de768cd75f"),
        StoredFile(f"{FOLDER}/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        StoredFile(f"{FOLDER}/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        StoredFile(f"{FOLDER}/data_batch_4", "634d18415352ddfa80567beed471001a"),
        StoredFile(f"{FOLDER}/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        StoredFile(f"{FOLDER}/test_batch", "40351d587109b95175f43aff81a1287e"),
    )

    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        batches = [pickle.loads(content, encoding="latin1") for content in contents]
        pixels = [batch["data"] for batch in batches]
        labels = [np.asarray(batch["labels"]) for batch in batches]
        return LoadedDataset(
            train=self._records(np.concatenate(pixels[:-1]), np.concatenate(labels[:-1])),
            test=self._records(pixels[-1], labels[-1]),
        )
