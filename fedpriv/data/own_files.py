"""Base class of data sets whose files the user brings, because fedpriv cannot download them.

Until the files are there, a plan assumes their sizes.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from fedpriv.common.errors import ConfigError, DataError
from fedpriv.common.fields import declared, field, or_null, text, whole
from fedpriv.data.base import Dataset
from fedpriv.data.records import DataStatus
from fedpriv.data.storage import DataFolder, data_folder, missing_folder


@declared
class OwnFiles(Dataset):
    """A data set whose files the user brings.

    If ``path`` is None, the folder is the environment variable FEDPRIV_DATA or else the cache.

    Attributes:
        contents: Description of the files that belong into a data folder, for messages.
        assumed_records: Numbers of training and test records that a plan assumes without the files.
    """

    name: ClassVar[str]
    contents: ClassVar[str]
    assumed_records: ClassVar[tuple[int, int]]

    path: str | None = field(
        or_null(text),
        help="folder that holds {part.contents}; null: FEDPRIV_DATA, then ~/.cache/fedpriv",
    )
    validation_records: int = field(
        whole(at_least=1),
        help="records held out of the training records as a public split, if a part of the run reads it",
    )

    @property
    def folder(self) -> DataFolder:
        """Folder in which this data set is searched."""
        return data_folder(self.path)

    @property
    def train_records(self) -> int:
        """Number of training records; the assumed number if the files are absent."""
        return self._counts[0]

    @property
    def test_records(self) -> int:
        """Number of test records; the assumed number if the files are absent."""
        return self._counts[1]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the data for the plan."""
        reason = self._absence()
        assumed = f"{self.assumed_records[0]:,} training records assumed"
        return () if reason is None else (f"{reason}: {assumed}",)

    def prepare(self) -> None:
        """Make sure that the files are there.

        Raises:
            DataError: A file is missing.
        """
        if reason := self._absence():
            raise DataError(
                f"{self.name} not found: {reason}; put {self.contents} there, {self._remedy()}"
            )

    def present(self) -> DataStatus:
        """Look for the files and read them. No error is raised."""
        note, present, checksums = "", False, "not checked"
        counts: tuple[int | None, int | None] = (None, None)
        where = self.folder.path
        try:
            note = self._absence() or ""
            present = not note
            if present:
                checksums, where = "damaged", self._where
                counts = self._sizes
                checksums = "ok" if self._published else "own file"
        except (DataError, ConfigError) as error:
            note = str(error)
        return DataStatus(self.name, *counts, str(where), present, checksums, note)

    def download(self, destination: str | Path) -> None:
        """Raise DataError, because fedpriv cannot download these files."""
        raise DataError(
            f"{self.name} cannot be downloaded by fedpriv; put {self.contents} into a folder and name it "
            "with dataset.path or FEDPRIV_DATA"
        )

    @property
    def _counts(self) -> tuple[int, int]:
        return self._sizes if self._absence() is None else self.assumed_records

    @property
    @abstractmethod
    def _sizes(self) -> tuple[int, int]:
        """Numbers of training and test records in the files.

        Raises:
            DataError: A file cannot be read.
            ConfigError: The settings do not fit the files.
        """

    def _absence(self) -> str | None:
        """Return the reason (a clause) why the files are absent; None if they exist. May raise DataError."""
        return missing_folder(self.folder) or self._missing()

    @abstractmethod
    def _missing(self) -> str | None:
        """Return a clause that names what the folder lacks; None if it has all files."""

    def _remedy(self) -> str:
        """Return the remedy for absent files, for the error message."""
        return "or name another folder with dataset.path or FEDPRIV_DATA"

    @property
    def _where(self) -> Path:
        """Path that the status row shows: the folder, or the single file."""
        return self.folder.path

    @property
    def _published(self) -> bool:
        """True if the files are byte for byte the published ones."""
        return False
