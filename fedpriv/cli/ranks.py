"""The command in a process that torchrun or Slurm has started as one of several for a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedpriv.common.errors import ConfigError
from fedpriv.workers.places import SLURM, Place, place_of
from fedpriv.workers.processes import end_with_parent


@contextmanager
def one_of_several(arguments: Sequence[str]) -> Iterator[bool]:
    """Take the place of this process among those of one run; yields whether it has done all that it has to.

    A process above rank 0 parses and composes nothing: it serves rank 0 where the command is ``train``, and
    leaves any other command to rank 0. Rank 0 runs the command, and then lets the others end.

    Args:
        arguments: The words after ``fedpriv``.

    Raises:
        WorkerError: Rank 0 cannot be reached, or is gone.
    """
    place = _place(arguments)
    if place is None:
        yield False
    elif place.rank > 0:
        if _trains(arguments):
            from fedpriv.experiment.worker import serve_launcher

            serve_launcher(place)
        yield True
    else:
        if place.launcher != SLURM:  # Slurm sees to that by itself
            end_with_parent()
        try:
            yield False
        finally:
            if _trains(arguments):
                from fedpriv.experiment.spread import dismiss

                dismiss(place)


def _place(arguments: Sequence[str]) -> Place | None:
    """Return the place of this process; None if no launcher has started it as one of several."""
    by_slurm = any(word.lstrip("+") == f"runtime.workers={SLURM}" for word in arguments)
    try:
        return place_of(SLURM if by_slurm else 1)
    except ConfigError:
        return None  # the run will say so, beside all other mistakes


def _trains(arguments: Sequence[str]) -> bool:
    return tuple(arguments[:1]) == ("train",)
