"""Copies of the released state between rounds, for audits: ``<run>/snapshots/round<NNNNNN>.pt``.

A snapshot holds what an observer of the run knows after a round: the global weights, and the bounds of the
clipper, which follow from released values; where ``averaging`` is asked for, the averaged weights too. It is
written whole or not at all and changes no result.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import FedprivError
from fedpriv.common.files import saying_where, write_tensors
from fedpriv.store.folder import SCHEMA_VERSION, RunFolder
from fedpriv.store.saved import saved_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.experiment.averaging import AveragedModel

_NAME = re.compile(r"round(\d{6,})\.pt")


@dataclass(frozen=True)
class Snapshot:
    """The released state after a round.

    Attributes:
        rounds: Number of rounds that had been run.
        weights: Global weights, frozen ones in their places.
        clipper: State of the clipper.
    """

    rounds: int
    weights: Tensor
    clipper: dict[str, Any]


class Snapshots:
    """The snapshots that one run writes.

    Args:
        folder: The run folder.
        interval: Number of rounds between two snapshots; None: none are written.
        dated: Files keep the time at which they were written, which tells how long the rounds took.
    """

    def __init__(self, folder: RunFolder, interval: int | None, dated: bool = True):
        self._folder, self._interval, self._dated = folder.snapshots, interval, dated

    def begin(self, rounds_done: int) -> None:
        """Remove what a killed process left of rounds after ``rounds_done``, which are run again.

        Args:
            rounds_done: Number of rounds before this process.
        """
        if not self._folder.is_dir():
            return
        for leftover in self._folder.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        for rounds, path in _files(self._folder):
            if rounds > rounds_done:
                path.unlink()

    def offer(
        self, rounds_done: int, context: RunContext, average: AveragedModel | None = None
    ) -> None:
        """Write a snapshot if one is due after so many rounds.

        Before the first round there is one too, unless files are undated.

        Args:
            rounds_done: Number of rounds so far.
            context: The context, whose global weights and clipper are saved.
            average: The averaged model, whose weights are saved beside them; None if nothing is averaged.

        Raises:
            WriteError: The file cannot be written.
        """
        if self._interval is None or rounds_done % self._interval:
            return
        if rounds_done == 0 and not self._dated:
            return  # initial weights follow from the seed, so they would confirm a guess of the seed
        with saying_where(self._folder):
            self._folder.mkdir(exist_ok=True)
        state = {
            "schema_version": SCHEMA_VERSION,
            "round": rounds_done,
            "weights": context.model.with_frozen(context.model.flat).cpu(),
            "clipper": context.clipper.state_dict(),
        }
        if average is not None:
            state["averaged"] = context.model.with_frozen(average.weights).cpu()
        path = self._folder / f"round{rounds_done:06d}.pt"
        write_tensors(path, state)
        if not self._dated:
            os.utime(path, (0, 0))


def rounds_of(folder: RunFolder) -> list[int]:
    """Return the numbers of rounds after which there are snapshots, ascending."""
    return [rounds for rounds, _ in _files(folder.snapshots)]


def load(folder: RunFolder, rounds: int) -> Snapshot:
    """Return the snapshot after so many rounds, on the CPU.

    Args:
        folder: The run folder.
        rounds: One of :func:`rounds_of`.

    Raises:
        KeyError: There is no snapshot after so many rounds.
        FedprivError: The snapshot is damaged.
    """
    path = dict(_files(folder.snapshots))[rounds]
    state: Any = saved_tensors(path, "cpu")
    try:
        return Snapshot(state["round"], state["weights"], state["clipper"])
    except (KeyError, TypeError, IndexError):
        raise FedprivError(f"{path} cannot be read: it is no snapshot") from None


def _files(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match)
