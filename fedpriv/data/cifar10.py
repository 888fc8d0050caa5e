"""CIFAR-10, read from ``cifar-10-batches-py`` or from archives of JPEG images (A. Krizhevsky, 2009).

The layout and the MD5 sums are those of ``torchvision.datasets.CIFAR10``. The batches are pickles, so only
bytes whose MD5 was just verified are unpickled.

An archive is an ``.npz`` with ``jpeg`` (uint8, all JPEG files end to end), ``offset`` (int [n+1]: image i
is ``jpeg[offset[i]:offset[i+1]]``), ``label`` (int [n]) and ``classes`` (ten names in the usual order).
An archive may be sorted by class. Its images are therefore shuffled, in an order that depends on no seed of
a run.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.errors import DataError
from fedpriv.common.fields import declared, field, one_of, same_as
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data import encoded
from fedpriv.data.records import DataStatus, LoadedDataset
from fedpriv.data.storage import DataFolder, StoredFile, absence, md5
from fedpriv.data.stored import StoredImages

FOLDER = "cifar-10-batches-py"
TORCHVISION, JPEG = "torchvision", "jpeg"
JPEG_FILES = (StoredFile("cifar10_jpeg/train.npz", None), StoredFile("cifar10_jpeg/test.npz", None))
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
LOSSY = (
    "The images are lossy JPEG copies of CIFAR-10 (dataset.source=jpeg): an accuracy on them is no "
    "CIFAR-10 accuracy."
)


@declared
class Cifar10(StoredImages):
    """CIFAR-10: 50,000 + 10,000 colour photographs in ten classes, 3x32x32.

    The ``source`` is ``torchvision`` (its batches) or ``jpeg`` (the archives ``cifar10_jpeg/train.npz`` and
    ``test.npz``). The JPEG images are lossy, so an accuracy on them is not an accuracy on CIFAR-10. Decoded
    images are kept in the cache. See ``StoredImages`` for the other keys.
    """

    name = "cifar10"
    train_records = 50_000
    test_records = 10_000
    input_shape = (3, 32, 32)
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)
    contents = f"{FOLDER} with its six batch files"
    sites = ("https://www.cs.toronto.edu/~kriz/",)
    archives: ClassVar = {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}
    files: ClassVar = (  # the test batch last
        StoredFile(f"{FOLDER}/data_batch_1", "c99cafc152244af753f735de768cd75f"),
        StoredFile(f"{FOLDER}/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        StoredFile(f"{FOLDER}/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        StoredFile(f"{FOLDER}/data_batch_4", "634d18415352ddfa80567beed471001a"),
        StoredFile(f"{FOLDER}/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        StoredFile(f"{FOLDER}/test_batch", "40351d587109b95175f43aff81a1287e"),
    )

    path: str | None = same_as(StoredImages, "path")
    source: str = field(
        one_of((TORCHVISION, JPEG)),
        default=TORCHVISION,
        help=(
            "torchvision: the original images; jpeg: lossy copies (package cifar10_jpeg), "
            "whose accuracy is no CIFAR-10 accuracy"
        ),
    )
    normalize: bool = same_as(StoredImages, "normalize")
    pixels: str | None = same_as(StoredImages, "pixels")
    validation_records: int = same_as(StoredImages, "validation_records")
    download_if_absent: bool = same_as(StoredImages, "download_if_absent")

    def __attrs_post_init__(self) -> None:
        self.caveats: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        if self.source == JPEG:
            contents = " and ".join(file.path for file in JPEG_FILES)
            vars(self).update(files=JPEG_FILES, contents=contents)
            self.caveats = self.notes = (LOSSY,)
            self.download_if_absent = False

    def present(self) -> DataStatus:
        """Look for the files as any stored data set does; the note warns of lossy images."""
        status = super().present()
        if self.source == JPEG and status.usable:
            return replace(status, note=LOSSY)
        if self.source == TORCHVISION and not status.present and self._archives_are_there():
            return replace(status, note=f"{status.note}; with dataset.source=jpeg: {LOSSY}")
        return status

    def _archives_are_there(self) -> bool:
        try:
            return absence(self.folder, JPEG_FILES) is None
        except DataError:
            return False

    def _not_here(self, folder: DataFolder, reason: str) -> str:
        if self.source == TORCHVISION:
            sentence = super()._not_here(folder, reason)
            lossy = ", or take the lossy copies that are there: dataset.source=jpeg"
            return sentence + lossy if self._archives_are_there() else sentence
        return (
            f"{self.name} as JPEG not found: {reason}; put {self.contents} there, or name another "
            "folder with dataset.path or FEDPRIV_DATA"
        )

    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        if self.source == JPEG:
            return self._parse_archives(contents, folder)
        batches = [pickle.loads(content, encoding="latin1") for content in contents]
        pixels = [batch["data"] for batch in batches]
        labels = [np.asarray(batch["labels"]) for batch in batches]
        return LoadedDataset(
            train=self._records(np.concatenate(pixels[:-1]), np.concatenate(labels[:-1])),
            test=self._records(pixels[-1], labels[-1]),
        )

    def _parse_archives(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        paths = [folder / file.path for file in self.files]
        made_from = tuple(map(md5, contents))

        def decode() -> dict[str, np.ndarray]:
            sys.stderr.write(f"decoding {paths[0].parent} (once: the images are kept)\n")
            arrays = {}
            for part, content, path in zip(("train", "test"), contents, paths, strict=True):
                arrays[f"{part}_pixels"], arrays[f"{part}_labels"] = decode_archive(content, path)
            return arrays

        arrays, records = encoded.kept("cifar10_jpeg", made_from, decode), {}
        expected_records = {"train": self.train_records, "test": self.test_records}
        for (part, count), path in zip(expected_records.items(), paths, strict=True):
            labels = arrays[f"{part}_labels"]
            if len(labels) != count:
                raise DataError(f"{path} must hold {count:,} images, got {len(labels):,}")
            order = numpy_stream(0, f"cifar10_jpeg_{part}").permutation(count)
            records[part] = self._records(arrays[f"{part}_pixels"][order], labels[order])
        return LoadedDataset(records["train"], records["test"])


def decode_archive(content: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Decode the JPEG images of an archive.

    Args:
        content: Bytes of the ``.npz``.
        path: File, for messages.

    Returns:
        Pixels uint8 [n, 3, 32, 32] and labels int64 [n], in the order of the archive.

    Raises:
        DataError: The archive or one of its images is invalid; the error names the file and the image.
    """
    from PIL import Image

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            jpeg, offset, labels, classes = (
                archive[key] for key in ("jpeg", "offset", "label", "classes")
            )
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no archive of JPEG images ({error})") from None
    if fault := _archive_fault(jpeg, offset, labels, classes):
        raise DataError(f"{path} is no archive of JPEG images of CIFAR-10: {fault}")
    pixels = np.empty((len(labels), 32, 32, 3), dtype=np.uint8)
    for i in range(len(labels)):
        try:
            with Image.open(io.BytesIO(jpeg[offset[i] : offset[i + 1]].tobytes())) as image:
                pixels[i] = np.asarray(image.convert("RGB"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}, image {i}: no JPEG of 32x32 pixels ({error})") from None
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels.astype(np.int64)


def _archive_fault(
    jpeg: np.ndarray, offset: np.ndarray, labels: np.ndarray, classes: np.ndarray
) -> str:
    """Return the fault of an archive's arrays; an empty text if there is none."""
    if jpeg.dtype != np.uint8 or jpeg.ndim != 1:
        return "jpeg must be a row of bytes"
    if tuple(classes.tolist()) != CLASSES:
        return "classes must be " + ", ".join(CLASSES)
    whole = np.issubdtype(labels.dtype, np.integer) and np.issubdtype(offset.dtype, np.integer)
    if not whole or labels.ndim != 1 or offset.shape != (len(labels) + 1,):
        return "label must hold n whole numbers and offset n + 1"
    if len(labels) and not (labels.min() >= 0 and labels.max() < len(CLASSES)):
        return "labels must be 0 to 9"
    if offset[0] != 0 or offset[-1] > len(jpeg) or (np.diff(offset) <= 0).any():
        return "offset must rise from 0 to the length of jpeg"
    return ""
