"""The interface of a tracker, and the facts of a run that it is given."""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.common.errors import ConfigError

Parameter = str | int | float | bool


@dataclass(frozen=True)
class TrackedRun:
    """The facts of a run that a tracker is given before the first round.

    Attributes:
        name: Name of the run, after its folder.
        folder: The run folder.
        fingerprint: Twelve hexadecimal digits that stand for ``parameters``.
        parameters: The resolved configuration, without secrets and without what concerns the machine.
        rounds_done: Number of rounds before this process; more than 0 for a resumed run.
        kept: What :meth:`Tracker.begin` returned when the run was begun; empty for a new run. It is read from
            the run folder, which may be somebody else's: check it.

    Example:
        >>> run = TrackedRun("run", Path("outputs/run"), "0" * 12, {"seed": 0}, rounds_done=0, kept={})
        >>> run.place(None, "tensorboard").as_posix()
        'outputs/run/tensorboard'
    """

    name: str
    folder: Path
    fingerprint: str
    parameters: Mapping[str, Parameter]
    rounds_done: int
    kept: Mapping[str, str]

    def place(self, parent: str | None, inside: str) -> Path:
        """Return a folder for what the tracker writes; the same folder again when the run is resumed.

        The folder is not made. For the latter, :meth:`Tracker.begin` must return its name as ``{"name":
        ...}``.

        Args:
            parent: A folder in which each run has a folder of its own name, with a number if another run has
                that name; None for a folder inside the run folder.
            inside: Name of the folder inside the run folder.
        """
        if parent is None:
            return self.folder / inside
        earlier_name = self.kept.get("name", "")
        if re.fullmatch(re.escape(self.name) + r"(-\d+)?", earlier_name):
            return Path(parent) / earlier_name
        path, attempt = Path(parent) / self.name, 1
        while path.exists():
            attempt += 1
            path = Path(parent) / f"{self.name}-{attempt}"
        return path


class Tracker(ABC):
    """A place other than the run folder where a run is shown: a server, a dashboard.

    A tracker only looks on. If one of its methods raises, the tracker is left out for the rest of the run,
    and the run goes on.

    Attributes:
        package: Package that must be installed, also the name of fedpriv's extra that brings it; None if no
            package is needed.

    Example:
        >>> from fedpriv.experiment.trackers import Tracker
        >>> class LastLoss(Tracker):
        ...     def begin(self, run):
        ...         self.name = run.name
        ...         return {}
        ...     def log(self, round_number, values):
        ...         self.loss = values.get("test_loss")
        ...     def finish(self, summary, files, stop_reason):
        ...         print(self.name, self.loss, stop_reason)
    """

    package: str | None = None

    def refuse_unusable(self) -> None:
        """Check that the tracker can work here; called before a run loads anything.

        The default looks for :attr:`package`.

        Raises:
            ConfigError: The package of the tracker is not installed.
        """
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            raise ConfigError(
                f"tracker={self.package} needs the package {self.package}, which is not installed: "
                f"in the clone of fedpriv, pip install '.[{self.package}]'"
            )

    @abstractmethod
    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        """Begin to track a run, or go on with what was tracked of a resumed run.

        Rounds after ``run.rounds_done`` that a killed process has tracked come again, with the same values.

        Args:
            run: The facts of the run.

        Returns:
            What going on needs. A resumed run passes it to the tracker as ``run.kept``.
        """

    @abstractmethod
    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        """Take the values of a round.

        Args:
            round_number: 1, 2, …
            values: The finite values by column of ``metrics.csv``. Columns that were not computed in this
                round, such as ``test_accuracy`` between evaluations, are absent.
        """

    def flush(self) -> None:
        """Write or send what is pending; called after evaluations and before checkpoints.

        The default does nothing, which serves a tracker that holds nothing back.
        """

    @abstractmethod
    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        """Take the summary: the run has ended, or was interrupted.

        Not called for a run that failed.

        Args:
            summary: The row of ``summary.json``, without entries that are None and without digests.
            files: Paths of the privacy statement (text, then JSON) and of the summary.
            stop_reason: Reason why the run ended; ``interrupted`` if it is to go on.
        """

    def close(self) -> None:
        """Free what the tracker holds; called once at the end, even if something failed before ``finish``.

        The default does nothing.
        """
