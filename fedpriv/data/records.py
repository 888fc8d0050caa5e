"""What a data set hands over: records as tensors, and the report whether its files are there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from fedpriv.data.text_vocabulary import Vocabulary

CLASSIFICATION, LANGUAGE_MODEL = (
    "classification",
    "language_model",
)  # what a data set asks of a model


@dataclass(frozen=True)
class Records:
    """Labelled records: ``inputs`` float32 [n, ...], ``targets`` int64 [n].

    Of text, ``inputs`` are token ids, int64 [n, L], 0 where there is no token. For a language model
    ``targets`` are the next tokens, int64 [n, L]; 0 means no target: never in a loss or a metric.
    ``source``: what the inputs were computed from, and how, where that says better which records these are
    than their numbers do, whose last digits differ from one machine to another.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    source: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: str | torch.device) -> Records:
        """The same records on ``device``, laid out contiguously."""
        return Records(
            self.inputs.to(device).contiguous(),
            self.targets.to(device).contiguous(),
            self.source,
        )

    def rows(self, indices: np.ndarray) -> tuple[ChosenRows, ChosenRows]:
        """Inputs and targets at ``indices`` (int64 [m]), to be read a slice at a time."""
        import torch

        chosen = torch.from_numpy(indices).to(self.targets.device, non_blocking=True)
        return ChosenRows(self.inputs, chosen), ChosenRows(self.targets, chosen)

    def subset(self, indices: np.ndarray) -> Records:
        """A copy of the records at ``indices`` (int64 [m])."""
        import torch

        chosen = torch.from_numpy(indices).to(self.targets.device, non_blocking=True)
        # copies whole records; indexing copies number by number and takes several times as long
        source = self.source
        if source is not None:
            source = (*source, hashlib.sha256(indices.tobytes()).hexdigest())
        return Records(
            self.inputs.index_select(0, chosen), self.targets.index_select(0, chosen), source
        )


class ReadRecords(Records):
    """Records that note which of them are read, in a list ``log`` where somebody has set one."""

    log: list[np.ndarray]

    @classmethod
    def of(cls, records: Records) -> ReadRecords:
        """Return the same records, which note what is read of them."""
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
    """Rows ``chosen`` [m] of a tensor, copied when a slice of them is asked for: a lot of all records need
    not be in memory twice."""

    rows: torch.Tensor
    chosen: torch.Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, place: slice) -> torch.Tensor:
        return self.rows.index_select(0, self.chosen[place])


@dataclass(frozen=True)
class LoadedDataset:
    """A data set in memory; ``client_ids`` (int64 [train records]) names who made each record,
    ``vocabulary`` what the token ids of a text mean."""

    train: Records
    test: Records
    client_ids: np.ndarray | None = None
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True)
class ReleasedStatistics:
    """The one release of clients by which features are normalized, before the first round.

    It is the noised sum, over their records, of a vector of the mean and the mean square of each of so many
    ``channels``, shortened to the L2 norm ``clip_norm``. ``noise_multiplier``: noise std ÷ clip norm.
    """

    noise_multiplier: float
    clip_norm: float
    channels: int


@dataclass(frozen=True)
class DataStatus:
    """One row of ``fedpriv data``: what a data set is and whether its files can be used.

    ``checksums`` is ``ok``, ``damaged``, ``not checked`` (files absent), ``packaged`` (the data come
    with a Python package) or ``own file`` (the user's: nobody published a checksum). ``note`` says
    what is wrong, or is empty. The counts are None where only the absent file could tell.
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
        """A run can load it."""
        return self.present and self.checksums in ("ok", "packaged", "own file")
