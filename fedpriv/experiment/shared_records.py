"""Records that the processes of one run share on a machine, instead of a copy in each of them.

Rank 0 reads the data set, writes its records into a file in memory (:mod:`fedpriv.workers.shared_memory`) and
reads them from there; so do its workers on the same machine. On each other machine the first worker does what
rank 0 does on its own. Where that cannot be, each process reads the data set itself. Whether records are
shared changes no bit.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any, cast

import torch.distributed as dist

from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.data.text_vocabulary import Vocabulary
from fedpriv.workers import shared_memory
from fedpriv.workers.packing import UnsendableError
from fedpriv.workers.places import Place
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
        return None if self._file is None else {**asdict(self._file), "host": socket.gethostname()}

    def close(self) -> None:
        """Close the file: no further process can open it."""
        if self._file is not None:
            shared_memory.close(self._file)
            self._file = None


def found_at(place: Mapping[str, Any] | None) -> Source | None:
    """Return what reads the records at a place; None where this machine has none there.

    Args:
        place: What :meth:`SharedRecords.place` returned in another process.
    """
    if place is None or place["host"] != socket.gethostname():
        return None
    file = SharedFile(place["pid"], place["descriptor"], place["inode"])
    try:
        data = cast(FederatedData, shared_memory.read(file, CLASSES))
    except OSError:  # the system lets nobody look there: the process reads the data set itself
        return None
    return lambda load: data


class Machine:
    """Workers that torchrun or Slurm has started on one machine, as one of them sees it.

    Args:
        store: The store through which the processes find each other.
        place: The place of this process.
    """

    def __init__(self, store: dist.Store, place: Place):
        self._store, self._place = store, place
        self._records = SharedRecords()

    def source(self, of_rank_0: Mapping[str, Any] | None, seconds: float) -> Source | None:
        """Return what has the data of the next run; None where this process reads the data set itself.

        Args:
            of_rank_0: Where rank 0 has the records; None: it does not share them.
            seconds: Time to wait until the first process of the machine has loaded the data.
        """
        here = socket.gethostname()
        self.close()
        if of_rank_0 is None or of_rank_0["host"] == here or self._place.local_size == 1:
            return found_at(of_rank_0)
        key = f"records {here} {of_rank_0['inode']}"  # rank 0 has another file in each run
        if self._place.local_rank == 0:
            return lambda load: self._load_for_all(load, key)
        try:
            self._store.wait([key], timedelta(seconds=seconds))
        except RuntimeError:
            return None
        return found_at(json.loads(self._store.get(key)))

    def _load_for_all(self, load: Load, key: str) -> FederatedData:
        try:
            return self._records.loaded(load)
        finally:  # also where the data cannot be read: nobody waits in vain
            self._store.set(key, json.dumps(self._records.place()))

    def close(self) -> None:
        """Close the file of the run that is over."""
        self._records.close()
