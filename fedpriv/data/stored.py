"""Base classes of data sets that are kept as verified files in a data folder, and of stored images."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.errors import DataError
from fedpriv.common.fields import boolean, declared, field, one_of, or_null, same_as, text, whole
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

BYTES = "bytes"


@declared
class StoredFiles(Dataset):
    """A data set kept as files with known checksums.

    If ``path`` is None, the folder is the environment variable FEDPRIV_DATA or else the cache
    (``~/.cache/fedpriv``). Files are downloaded into the cache only: a folder that the user named is never
    filled unasked.

    Attributes:
        files: The files below the data folder.
        sites: Servers that have all files, best first.
        archives: Archives on these servers that contain the files, with their MD5 sums. Empty if the servers
            have the files themselves.
        contents: Description of the files that belong into a data folder, for messages.
    """

    known = True
    name: ClassVar[str]
    train_records: ClassVar[int]
    test_records: ClassVar[int]
    input_shape: ClassVar[tuple[int, ...]]
    classes: ClassVar[int]
    files: ClassVar[tuple[StoredFile, ...]]
    sites: ClassVar[tuple[str, ...]]
    archives: ClassVar[dict[str, str]] = {}
    contents: ClassVar[str]

    path: str | None = field(
        or_null(text),
        default=None,
        help="folder that holds {part.contents}; null: FEDPRIV_DATA, then ~/.cache/fedpriv",
    )
    validation_records: int = field(
        whole(at_least=1, at_most=lambda dataset: dataset._train_records - 1),
        default=2000,
        help="records held out of the training records as a public split, if a part of the run reads it",
    )
    download_if_absent: bool = field(
        boolean,
        default=True,
        alias="download",
        help="true: download missing files once into the cache, unless path or FEDPRIV_DATA names a folder",
    )

    @property
    def _train_records(self) -> int:
        """Number of training records with these settings, available while the settings are still checked."""
        return self.train_records

    @property
    def folder(self) -> DataFolder:
        """Folder in which this data set is searched."""
        return data_folder(self.path)

    def prepare(self) -> None:
        """Make sure that the files are there, by a download if that is allowed.

        Raises:
            DataError: The files are missing and may not be downloaded, or the download failed.
        """
        folder = self.folder
        if reason := absence(folder, self.files):
            if folder.origin != CACHE or not self.download_if_absent:
                raise DataError(self._not_here(folder, reason))
            self.download(folder.path)

    def load(self) -> LoadedDataset:
        """Read and verify every file.

        Raises:
            DataError: A file is missing, unreadable or damaged.
        """
        self.prepare()
        return self._parse(self.verify(), self.folder.path)

    def verify(self) -> list[bytes]:
        """Return the verified bytes of every file, in the order of ``files``.

        Raises:
            DataError: A file is unreadable or damaged.
        """
        folder = self.folder.path
        return [read_verified(folder, file, self.name) for file in self.files]

    @property
    def to_be_downloaded(self) -> bool:
        """True if a run would download the files first.

        Raises:
            DataError: The data folder cannot be read.
        """
        folder = self.folder
        allowed = folder.origin == CACHE and self.download_if_absent
        return allowed and absence(folder, self.files) is not None

    def present(self) -> DataStatus:
        """Look for the files and verify their checksums. Nothing is downloaded and no error is raised."""
        folder, checksums, note, present = self.folder, "not checked", "", False
        try:
            note = absence(folder, self.files) or ""
            present = not note
            if present:
                checksums = "damaged"  # replaced once every file has been read
                for file in self.files:
                    read_verified(folder.path, file, self.name)
                published = all(file.md5 is not None for file in self.files)
                checksums = "ok" if published else "own file"
        except DataError as error:
            note = str(error)
        return DataStatus(
            name=self.name,
            train_records=self.train_records,
            test_records=self.test_records,
            where=str(folder.path),
            present=present,
            checksums=checksums,
            note=note,
        )

    def download(self, destination: str | Path) -> None:
        """Download and verify every file and put it below ``destination``. Damaged files are replaced.

        Raises:
            DataError: A file could not be downloaded. Without a network the error comes within seconds.
        """
        from fedpriv.data import downloads  # imported late: seldom needed and slow

        files = self._published_files
        downloads.fetch(self.name, destination, files, self.contents, self.sites, self.archives)

    @property
    def _published_files(self) -> tuple[StoredFile, ...]:
        """Files that a download brings."""
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
        """Convert the verified bytes of ``files``, in their order, to tensors."""


@declared
class StoredImages(StoredFiles):
    """An image data set, with pixels in [0, 1] unless ``pixels`` is ``bytes``.

    Attributes:
        mean: Mean of each channel, as published for this data set; taken as public.
        std: Standard deviation of each channel, likewise.
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
    pixels: str | None = field(
        or_null(one_of(("unit", BYTES))),
        default=None,
        help="range of pixels, 0 to 1 (unit) or 0 to 255 (bytes), alike with normalize=true; null: unit",
    )
    validation_records: int = same_as(StoredFiles, "validation_records")
    download_if_absent: bool = same_as(StoredFiles, "download_if_absent")

    @property
    def encoding(self) -> str:
        """Description of how pixels become inputs."""
        public = f", minus {self.mean}, divided by {self.std} (by channel)"
        return f"pixels / 255{public * self.normalize}"

    def _records(self, pixels: np.ndarray, labels: np.ndarray) -> Records:
        """Convert pixels uint8 [n, C·H·W] or [n, C, H, W] and labels [n] to float32 and int64 tensors."""
        import torch

        inputs = torch.tensor(pixels, dtype=torch.float32)
        if self.pixels != BYTES or self.normalize:  # mean and std are those of pixels in [0, 1]
            inputs.div_(255)
        inputs = inputs.reshape(-1, *self.input_shape)
        if self.normalize:
            per_channel = (-1, *(1 for _ in self.input_shape[1:]))
            inputs.sub_(torch.tensor(self.mean).reshape(per_channel))
            inputs.div_(torch.tensor(self.std).reshape(per_channel))
        return Records(inputs, torch.tensor(labels, dtype=torch.int64))
