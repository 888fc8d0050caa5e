"""Records that the processes of one run share, instead of a copy in each of them.

Rank 0 reads the data set, writes its records into a file in memory (:mod:`fedpriv.workers.shared_memory`) and
reads them from there; so do its workers. Where that cannot be, each process reads the data set itself.
Whether records are shared changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.data.text_vocabulary import Vocabulary
from fedpriv.workers import shared_memory
from fedpriv.workers.packing import UnsendableError
from fedpriv.workers.shared_memory import SharedFile

CLASSES = {kind.__name__: kind for kind in (FederatedData, Records, ClientRecords, Vocabulary)}
"""Data classes in the file."""

Load = Callable[[], FederatedData]
Source = Callable[[Load], FederatedData]
"""Function that returns the federated data of a run, given the one that loads them."""


class SharedRecords:
    """The records of a run in a file in memory, in the process that loads them."""

    def __init__(self) -> None:
        self._file: SharedFile | None = None

    def loaded(self, load: Load) -> FederatedData:
        """Load the data, and return them from the file, so that what was loaded can be freed.

        Data with objects of the user's own, and data for which memory is missing, are returned as loaded.
        """
        data = load()
        with suppress(OSError, UnsendableError):
            self._file = shared_memory.write(data, CLASSES)
            return cast(FederatedData, shared_memory.read(self._file, CLASSES))
        return data

    def place(self) -> dict[str, Any] | None:
        """Return where other processes find the records; None where they are not shared."""
        return None if self._file is None else asdict(self._file)

    def close(self) -> None:
        """Close the file: no further process can open it."""
        if self._file is not None:
            shared_memory.close(self._file)
            self._file = None


def found_at(place: Mapping[str, Any] | None) -> Source | None:
    """Return what reads the records at a place; None where this process cannot.

    Args:
        place: What :meth:`SharedRecords.place` returned in another process.
    """
    if place is None:
        return None
    try:
        data = cast(FederatedData, shared_memory.read(SharedFile(**place), CLASSES))
    except OSError:  # the system lets nobody look there: the process reads the data set itself
        return None
    return lambda load: data
