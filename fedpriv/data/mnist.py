"""MNIST and Fashion-MNIST, read from the unzipped idx files.

The folder layout is that of ``torchvision.datasets.MNIST(root, download=False)``:
``root/MNIST/raw/train-images-idx3-ubyte`` and so on. fedpriv parses the files itself for two reasons:
torchvision would prefer an unchecked ``processed/training.pt`` in the same folder, and the parsed bytes
must be the verified bytes.

MNIST: Y. LeCun, C. Cortes, C. Burges (1998). Fashion-MNIST: H. Xiao, K. Rasul, R. Vollgraf (2017).
Writer numbers: the QMNIST tables (C. Yadav, L. Bottou, 2019).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.errors import DataError
from fedpriv.data.records import LoadedDataset
from fedpriv.data.storage import StoredFile, unreadable
from fedpriv.data.stored import StoredImages

WRITERS = "train-writers.npy"


class _IdxImages(StoredImages):
    """28x28 grey images in four idx files."""

    train_records = 60_000
    test_records = 10_000
    input_shape = (1, 28, 28)

    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        train_images, train_labels, test_images, test_labels = map(parse_idx, contents)
        return LoadedDataset(
            train=self._records(train_images, train_labels),
            test=self._records(test_images, test_labels),
            client_ids=self._client_ids(folder),
        )

    def _client_ids(self, folder: Path) -> np.ndarray | None:
        return None


class Mnist(_IdxImages):
    """MNIST: 60,000 + 10,000 handwritten digits, 1x28x28.

    The optional file ``MNIST/train-writers.npy`` in the data folder has the writer of each training image, as
    one whole number per image. With this file the data set has client ids for the partition ``natural``.
    """

    name = "mnist"
    mean = (0.1307,)
    std = (0.3081,)
    contents = "MNIST/raw with its four unzipped idx files"
    sites = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    archives: ClassVar = {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    files: ClassVar = (
        StoredFile("MNIST/raw/train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
        StoredFile("MNIST/raw/train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
        StoredFile("MNIST/raw/t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
        StoredFile("MNIST/raw/t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
    )

    def _client_ids(self, folder: Path) -> np.ndarray | None:
        return read_client_ids(folder / "MNIST" / WRITERS, self.train_records)


class FashionMnist(_IdxImages):
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing, 1x28x28."""

    name = "fashion_mnist"
    mean = (0.2860,)
    std = (0.3530,)
    contents = "FashionMNIST/raw with its four unzipped idx files"
    sites = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
    archives: ClassVar = {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    files: ClassVar = (
        StoredFile("FashionMNIST/raw/train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        StoredFile("FashionMNIST/raw/train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9"),
        StoredFile("FashionMNIST/raw/t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a"),
        StoredFile("FashionMNIST/raw/t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965"),
    )


def parse_idx(content: bytes) -> np.ndarray:
    """Parse an idx file of unsigned bytes: magic ``00 00 08 d``, d sizes as big-endian int32, the values.

    The content is not checked: its checksum was. :func:`fedpriv.data.emnist.idx_of_shape` checks it.

    Args:
        content: Bytes of a sound idx file.
    """
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], dtype=">i4")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_client_ids(path: Path, records: int) -> np.ndarray | None:
    """Return the author of each training record, int64 [records], or None if the file does not exist.

    Raises:
        DataError: The file is not a one-dimensional integer array of that length.
    """
    if not path.exists():
        return None
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, error) from error
    if ids.shape != (records,) or not np.issubdtype(ids.dtype, np.integer):
        raise DataError(
            f"{path} must hold {records:,} whole numbers, one per training record, "
            f"got {ids.dtype} of shape {ids.shape}"
        )
    return ids.astype(np.int64)
