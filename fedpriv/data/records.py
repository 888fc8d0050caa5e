"""Records as tensors, the loaded data set, and the row of ``fedpriv data`` about its files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from fedpriv.data.text_vocabulary import Vocabulary

# Tasks of a model on a data set.
CLASSIFICATION, LANGUAGE_MODEL = "classification", "language_model"


@dataclass(frozen=True)
class Records:
    """Labelled records.

    Attributes:
        inputs: float32 [n, ...]; for text, token ids, int64 [n, L], with 0 as padding. Ids and labels may
            also be kept in a byte each (uint8): they are widened to int64 where records are chosen.
        targets: Labels, int64 [n]; for a language model the next tokens, int64 [n, L]. A target 0 of a
            language model means that there is no next token; it counts in no loss and in no metric.
        source: Origin of the inputs and how they were computed, or None. It identifies computed inputs
            better than their values, because the last digits differ between machines.

    Example:
        >>> import torch
        >>> records = Records(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        >>> records.subset(np.array([1, 2])).targets
        tensor([1, 1])
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    source: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: str | torch.device) -> Records:
        """Return the same records on ``device``, in contiguous memory."""
        return Records(
            self.inputs.to(device).contiguous(),
            self.targets.to(device).contiguous(),
            self.source,
        )

    def widened(self) -> Records:
        """Return the same records with ids and labels as int64, also where they are kept in bytes."""
        return Records(_widened(self.inputs), _widened(self.targets), self.source)

    def add_values_to(self, digest: hashlib._Hash) -> None:
        """Update a digest with type, shape and values of inputs and targets."""
        for values in (self.inputs, self.targets):
            digest.update(f"{values.dtype} {tuple(values.shape)}\n".encode())
            digest.update(np.ascontiguousarray(values.cpu().numpy()).data)

    def rows(self, indices: np.ndarray) -> tuple[ChosenRows, ChosenRows]:
        """Return inputs and targets at ``indices`` (int64 [m]), which are copied one slice at a time.

        Nothing is copied until a slice of the result is read.
        """
        import torch

        chosen = torch.from_numpy(indices).to(self.targets.device, non_blocking=True)
        return ChosenRows(self.inputs, chosen), ChosenRows(self.targets, chosen)

    def subset(self, indices: np.ndarray) -> Records:
        """Return a copy of the records at ``indices`` (int64 [m])."""
        import torch

        chosen = torch.from_numpy(indices).to(self.targets.device, non_blocking=True)
        source = self.source
        if source is not None:
            source = (*source, hashlib.sha256(indices.tobytes()).hexdigest())
        return Records(rows_of(self.inputs, chosen), rows_of(self.targets, chosen), source)


class ReadRecords(Records):
    """Records that log which of them are read.

    Attributes:
        log: List that collects the indices of each access, if a caller has set one.
    """

    log: list[np.ndarray]

    @classmethod
    def of(cls, records: Records) -> ReadRecords:
        """Return the same records with a log of accesses."""
        return cls(records.inputs, records.targets, records.source)

    def subset(self, indices: np.ndarray) -> Records:
        self._note(indices)
        return Records(self.inputs, self.targets, self.source).subset(indices)

    def rows(self, indices: np.ndarray) -> tuple[ChosenRows, ChosenRows]:
        self._note(indices)
        return super().rows(indices)

    def _note(self, indices: np.ndarray) -> None:
        log = getattr(self, "log", None)
        if log is not None:
            log.append(np.asarray(indices).copy())


@dataclass(frozen=True)
class ChosenRows:
    """Selected rows of a tensor, copied only when a slice of them is read.

    A lot that contains all records is thus never in memory twice.

    Attributes:
        rows: The whole tensor [n, ...].
        chosen: Indices of the selected rows [m].
    """

    rows: torch.Tensor
    chosen: torch.Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, place: slice) -> torch.Tensor:
        return rows_of(self.rows, self.chosen[place])


def rows_of(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return a copy of the rows at ``chosen`` (int64 [m]); ids and labels kept in bytes become int64.

    The function copies whole rows; indexing copies number by number and takes several times as long.
    """
    return _widened(values.index_select(0, chosen))


def _widened(values: torch.Tensor) -> torch.Tensor:
    import torch

    return values.long() if values.dtype == torch.uint8 else values


@dataclass(frozen=True)
class LoadedDataset:
    """A data set in memory.

    Attributes:
        train: Training records.
        test: Test records.
        client_ids: Author of each training record, int64 [n], or None.
        vocabulary: Meaning of the token ids of a text data set, or None.
        client_names: Name of each author by id; None: the ids themselves.
        keys: Key of the unit of each training record; None: its author, or what it holds.
        validation: Public validation records from a file of their own, or None.
        test_owners: Name of the author of each test record [m], as in ``client_names``, or None.

    Example:
        >>> import torch
        >>> records = Records(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        >>> loaded = LoadedDataset(train=records, test=records, client_ids=np.array([7, 7, 9]))
        >>> len(loaded.train)
        3
    """

    train: Records
    test: Records
    client_ids: np.ndarray | None = None
    vocabulary: Vocabulary | None = None
    client_names: Sequence[object] | None = None
    keys: Sequence[bytes] | None = None
    validation: Records | None = None
    test_owners: Sequence[object] | None = None


@dataclass(frozen=True)
class ReleasedStatistics:
    """Release of the clients' feature statistics, made once before the first round.

    Each record contributes a vector of the mean and the mean square of each channel, clipped to the L2 norm
    ``clip_norm``. The release is the noisy sum of these vectors.

    Attributes:
        noise_multiplier: Standard deviation of the noise, divided by ``clip_norm``.
        clip_norm: L2 norm to which each record's vector is clipped.
        channels: Number of channels C of the features; the vector has 2 C entries.
    """

    noise_multiplier: float
    clip_norm: float
    channels: int


@dataclass(frozen=True)
class DataStatus:
    """Row of ``fedpriv data``: a data set and the state of its files.

    Attributes:
        name: Name of the data set.
        train_records: Number of training records; None if only the absent file could tell.
        test_records: Number of test records; None if only the absent file could tell.
        where: Folder, file or package that holds the data.
        present: True if the files exist.
        checksums: ``ok``, ``damaged``, ``not checked`` (the files are absent), ``packaged`` (the data come
            with a Python package), ``own file`` (a file of the user's without a published checksum) or
            ``synthetic`` (drawn from a seed).
        note: Description of the problem, or empty.
    """

    name: str
    train_records: int | None
    test_records: int | None
    where: str
    present: bool
    checksums: str
    note: str = ""

    @property
    def usable(self) -> bool:
        """True if a run can load the data set."""
        return self.present and self.checksums in ("ok", "packaged", "own file", "synthetic")
