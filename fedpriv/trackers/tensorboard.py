"""TensorBoard event files, by PyTorch's writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedpriv.common import checks
from fedpriv.trackers.base import TrackedRun, Tracker

_COMPARED = ("test_accuracy", "test_loss", "epsilon", "epsilon_published", "epsilon_sound")
"""Metrics in the table of parameters (HPARAMS)."""


class TensorBoardTracker(Tracker):
    """Scalars, parameters (HPARAMS) and the statement as text.

    ``folder``: where runs have a folder each, for ``tensorboard --logdir``; null: ``tensorboard/`` in the run
    folder. A resumed run purges the rounds that come again, as TensorBoard does.
    """

    package = "tensorboard"

    def __init__(self, folder: str | None):
        self._parent = None if folder is None else checks.text("folder", folder)
        self._writer = None

    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder = run.place(self._parent, "tensorboard")
        self._round = run.rounds_done
        self._writer = SummaryWriter(str(folder), purge_step=self._round + 1 if run.kept else None)
        experiment, start, self._end = hparams(dict(run.parameters), dict.fromkeys(_COMPARED, 0.0))
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(start)
        return {"name": folder.name}

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        self._round = round_number
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_number)

    def flush(self) -> None:
        self._writer.flush()

    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        rows = "\n".join(f"| {name} | {value} |" for name, value in summary.items())
        self._writer.add_text("summary", f"| | |\n|---|---|\n{rows}", self._round)
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            as_it_is = "\n".join(f"    {line}" for line in lines)  # a block of code in Markdown
            self._writer.add_text(file.name, as_it_is, self._round)
        self._writer.file_writer.add_summary(self._end)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
