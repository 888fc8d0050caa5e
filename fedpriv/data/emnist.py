"""EMNIST, handwritten digits and letters, read from the unzipped idx files.

The folder layout is that of ``torchvision.datasets.EMNIST``: ``root/EMNIST/raw`` with
``emnist-<split>-train-images-idx3-ubyte`` and so on. The files hold the images transposed; the loaded images
are upright. Labels count from 0 in every split, also in ``letters``, whose file counts from 1. The images
have no writers; ``dataset=femnist`` has them.

Source: G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten
letters (2017).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.errors import DataError
from fedpriv.common.fields import declared, field, one_of, same_as
from fedpriv.data.mnist import parse_idx
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.data.storage import StoredFile
from fedpriv.data.stored import StoredImages

SPLITS = {  # training records, test records, classes
    "digits": (240_000, 40_000, 10),
    "letters": (124_800, 20_800, 26),
    "balanced": (112_800, 18_800, 47),
    "byclass": (697_932, 116_323, 62),
    "bymerge": (697_932, 116_323, 47),
    "mnist": (60_000, 10_000, 10),
}


def files_of(split: str) -> tuple[StoredFile, ...]:
    """Return the files of a split: training images and labels, then test images and labels."""
    return tuple(
        StoredFile(f"EMNIST/raw/emnist-{split}-{part}-{kind}-ubyte", None)
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


@declared
class Emnist(StoredImages):
    """EMNIST: 1x28x28 grey images of digits, letters or both.

    The splits are ``digits``; ``letters`` (26 classes, upper and lower case alike); ``balanced`` and
    ``bymerge`` (47 classes: letters whose cases look alike are one class); ``byclass`` (62 classes: digits,
    upper case, lower case); and ``mnist``. ``normalize`` uses the mean and standard deviation of byclass. One
    download has every split. See ``StoredImages`` for the other keys.
    """

    name = "emnist"
    input_shape = (1, 28, 28)
    mean = (0.1736,)
    std = (0.3317,)
    sites = ("https://biometrics.nist.gov/cs_links/EMNIST/",)
    contents = "EMNIST/raw with its four unzipped idx files"
    archives: ClassVar = {"gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e"}
    files: ClassVar = files_of("digits")

    path: str | None = same_as(StoredImages, "path")
    split: str = field(
        one_of(SPLITS), default="digits", help="classes of the split: digits, letters, or both"
    )
    normalize: bool = same_as(StoredImages, "normalize")
    pixels: str | None = same_as(StoredImages, "pixels")
    validation_records: int = same_as(StoredImages, "validation_records")
    download_if_absent: bool = same_as(StoredImages, "download_if_absent")

    def __attrs_post_init__(self) -> None:
        train_records, test_records, classes = SPLITS[self.split]
        # Instance attributes replace the class attributes, which hold for the split digits.
        vars(self).update(
            train_records=train_records,
            test_records=test_records,
            classes=classes,
            files=files_of(self.split),
            contents=f"EMNIST/raw with its four unzipped idx files emnist-{self.split}-*-ubyte",
        )

    @property
    def _train_records(self) -> int:
        return SPLITS[self.split][0]

    @property
    def _published_files(self) -> tuple[StoredFile, ...]:
        return tuple(file for split in SPLITS for file in files_of(split))

    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        paths = [folder / file.path for file in self.files]
        train, test = (
            self._part(contents[i : i + 2], paths[i : i + 2], count)
            for i, count in ((0, self.train_records), (2, self.test_records))
        )
        return LoadedDataset(train=train, test=test)

    def _part(self, contents: list[bytes], paths: list[Path], count: int) -> Records:
        images = idx_of_shape(contents[0], paths[0], (count, 28, 28))
        labels = idx_of_shape(contents[1], paths[1], (count,)).astype(np.int64)
        labels -= self.split == "letters"
        if labels.min() < 0 or labels.max() >= self.classes:
            first = int(self.split == "letters")
            raise DataError(f"{paths[1]}: labels must be {first} to {self.classes - 1 + first}")
        return self._records(np.ascontiguousarray(images.transpose(0, 2, 1)), labels)


def idx_of_shape(content: bytes, path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of an idx file of unsigned bytes.

    Args:
        content: Bytes of the file.
        path: File, for messages.
        shape: Expected shape of the values.

    Raises:
        DataError: The file has another format or shape.
    """
    header = 4 + 4 * len(shape)  # bytes before the values: the magic number and each size
    if content[:4] != bytes([0, 0, 8, len(shape)]) or len(content) < header:
        raise DataError(f"{path} is no idx file of unsigned bytes in {len(shape)} dimensions")
    file_shape = tuple(np.frombuffer(content[4:header], dtype=">i4").tolist())
    if file_shape != shape or len(content) != header + int(np.prod(shape, dtype=np.int64)):
        raise DataError(
            f"{path} must hold {shape} values, got {file_shape} in {len(content):,} bytes; replace it"
        )
    return parse_idx(content)
