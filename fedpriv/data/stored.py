"""What data sets kept as verified files in a data folder share, and what those of images share."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.errors import DataError
from fedpriv.common.fields import boolean, declared, field, or_null, same_as, text, whole
from fedpriv.data.base import Dataset
from fedpriv.data.records import DataStatus, LoadedDataset, Records
from fedpriv.data.storage import (
    CACHE,
    PATH_KEY,
    DataFolder,
    StoredFile,
    absence,
    data_folder,
    read_verified,
)

if TYPE_CHECKING:
    import numpy as np


@declared
class StoredFiles(Dataset):
    """A data set kept as files with known checksums.

    A ``path`` of null means the environment variable FEDPRIV_DATA and, without it, the cache
    (``~/.cache/fedpriv``). A folder that was named is never filled unasked.
    """

    name: ClassVar[str]
    train_records: ClassVar[int]
    test_records: ClassVar[int]
    input_shape: ClassVar[tuple[int, ...]]
    classes: ClassVar[int]
    files: ClassVar[tuple[StoredFile, ...]]
    sites: ClassVar[tuple[str, ...]]  # servers that all have the files, best first
    archives: ClassVar[dict[str, str]] = {}  # what the files are packed in there, and its MD5
    contents: ClassVar[str]  # what to put into a data folder, in words

    path: str | None = field(
        or_null(text),
        default=None,
        help="folder that holds {part.contents}; null: FEDPRIV_DATA, then ~/.cache/fedpriv",
    )
    validation_records: int = field(
        whole(at_least=1, at_most=lambda dataset: dataset._train_records - 1),
        default=2000,
        help="held out of the training records as a public split, if something reads it",
    )
    download_if_absent: bool = field(
        boolean,
        default=True,
        alias="download",
        help="fetch the files once into the cache, if it is searched and lacks them",
    )

    @property
    def _train_records(self) -> int:
        """How many there are with these settings, already while these are checked."""
        return self.train_records

    @property
    def folder(self) -> DataFolder:
        """The folder this data set is looked for in."""
        return data_folder(self.path)

    def prepare(self) -> None:
        """Make sure the files are there, by a download if that is allowed; DataError if they are not."""
        folder = self.folder
        if reason := absence(folder, self.files):
            if folder.origin != CACHE or not self.download_if_absent:
                raise DataError(self._not_here(folder, reason))
            self.download(folder.path)

    def load(self) -> LoadedDataset:
        """Read and verify every file; DataError, one sentence, if that is not possible."""
        self.prepare()
        return self._parse(self.verify(), self.folder.path)

    def verify(self) -> list[bytes]:
        """Return the bytes of every file. Raises DataError for a damaged one."""
        folder = self.folder.path
        return [read_verified(folder, file, self.name) for file in self.files]

    @property
    def to_be_downloaded(self) -> bool:
        """Whether a run would fetch the files first. Raises DataError."""
        folder = self.folder
        allowed = folder.origin == CACHE and self.download_if_absent
        return allowed and absence(folder, self.files) is not None

    def present(self) -> DataStatus:
        """Look for the files and verify their checksums; nothing is raised or downloaded."""
        folder, checksums, note, found = self.folder, "not checked", "", False
        try:
            note = absence(folder, self.files) or ""
            found = not note
            if found:
                checksums = "damaged"  # until every file has been read
                for file in self.files:
                    read_verified(folder.path, file, self.name)
                known = all(file.md5 is not None for file in self.files)
                checksums = "ok" if known else "own file"
        except DataError as error:
            note = str(error)
        return DataStatus(
            name=self.name,
            train_records=self.train_records,
            test_records=self.test_records,
            where=str(folder.path),
            present=found,
            checksums=checksums,
            note=note,
        )

    def download(self, destination: str | Path) -> None:
        """Fetch, verify and put every file below ``destination``, replacing damaged ones.

        Raises DataError within seconds where there is no network.
        """
        from fedpriv.data import downloads  # seldom needed, and takes a while

        files = self._published_files
        downloads.fetch(self.name, destination, files, self.contents, self.sites, self.archives)

    @property
    def _published_files(self) -> tuple[StoredFile, ...]:
        """What a download brings."""
        return self.files

    def _not_here(self, folder: DataFolder, reason: str) -> str:
        command = f"`fedpriv data download {self.name}`"
        if folder.origin == PATH_KEY:
            command += " and leave dataset.path out"
        return (
            f"{self.name} not found: {reason}; put {self.contents} there, name another folder "
            f"with dataset.path or FEDPRIV_DATA, or run {command}"
        )

    @abstractmethod
    def _parse(self, contents: list[bytes], folder: Path) -> LoadedDataset:
        """The verified bytes of ``files``, in that order, as tensors."""


@declared
class StoredImages(StoredFiles):
    """An image data set; pixels are scaled to [0, 1].

    ``mean`` and ``std`` of each channel are the constants everybody publishes, taken as public.
    """

    classes = 10
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]

    path: str | None = same_as(StoredFiles, "path")
    normalize: bool = field(
        boolean,
        default=False,
        help="true: subtract the published mean of each channel and divide by its std",
    )
    validation_records: int = same_as(StoredFiles, "validation_records")
    download_if_absent: bool = same_as(StoredFiles, "download_if_absent")

    def _records(self, pixels: np.ndarray, labels: np.ndarray) -> Records:
        """uint8 pixels [n, C·H·W or C, H, W] and labels [n] as float32 and int64 tensors."""
        import torch

        inputs = torch.tensor(pixels, dtype=torch.float32).div_(255)
        inputs = inputs.reshape(-1, *self.input_shape)
        if self.normalize:
            per_channel = (-1, *(1 for _ in self.input_shape[1:]))
            inputs.sub_(torch.tensor(self.mean).reshape(per_channel))
            inputs.div_(torch.tensor(self.std).reshape(per_channel))
        return Records(inputs, torch.tensor(labels, dtype=torch.int64))
