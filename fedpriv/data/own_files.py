"""What data sets share that fedpriv mostly cannot download: planned by assumed sizes until they are there."""

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

    A ``path`` of null means the environment variable FEDPRIV_DATA and, without it, the cache.
    """

    name: ClassVar[str]
    contents: ClassVar[str]  # what to put into a data folder, in words
    assumed_records: ClassVar[tuple[int, int]]  # for a plan made without the files

    path: str | None = field(
        or_null(text),
        help="folder that holds {part.contents}; null: FEDPRIV_DATA, then ~/.cache/fedpriv",
    )
    validation_records: int = field(
        whole(at_least=1),
        help="held out of the training records as a public split, if something reads it",
    )

    @property
    def folder(self) -> DataFolder:
        """The folder this data set is looked for in."""
        return data_folder(self.path)

    @property
    def train_records(self) -> int:
        """How many there are to train on; ``assumed_records`` where the files are not here."""
        return self._counts[0]

    @property
    def test_records(self) -> int:
        """As ``train_records``."""
        return self._counts[1]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a plan says about the data."""
        reason = self._absence()
        assumed = f"{self.assumed_records[0]:,} training records assumed"
        return () if reason is None else (f"{reason}: {assumed}",)

    def prepare(self) -> None:
        """Make sure the files are there; DataError if they are not."""
        if reason := self._absence():
            raise DataError(
                f"{self.name} not found: {reason}; put {self.contents} there, {self._else()}"
            )

    def present(self) -> DataStatus:
        """Look for the files and read them; nothing is raised."""
        note, found, checksums = "", False, "not checked"
        counts: tuple[int | None, int | None] = (None, None)
        where = self.folder.path
        try:
            note = self._absence() or ""
            found = not note
            if found:
                checksums, where = "damaged", self._where
                counts = self._sizes
                checksums = "ok" if self._published else "own file"
        except (DataError, ConfigError) as error:
            note = str(error)
        return DataStatus(self.name, *counts, str(where), found, checksums, note)

    def download(self, destination: str | Path) -> None:
        """Raises DataError: there is nothing to fetch."""
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
        """How many training and test records the files hold. Raises DataError or ConfigError."""

    def _absence(self) -> str | None:
        """Why the files are not there (a clause); None if they are. Raises DataError."""
        return missing_folder(self.folder) or self._missing()

    @abstractmethod
    def _missing(self) -> str | None:
        """What the folder lacks (a clause)."""

    def _else(self) -> str:
        """What else to do about absent files."""
        return "or name another folder with dataset.path or FEDPRIV_DATA"

    @property
    def _where(self) -> Path:
        """What a report shows of files that are there: the folder, or the one file."""
        return self.folder.path

    @property
    def _published(self) -> bool:
        """Whether these are, byte for byte, the files somebody published."""
        return False
