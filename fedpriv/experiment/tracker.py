"""What every tracker offers, and what it is told of a run."""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ConfigError

Parameter = str | int | float | bool


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told before the first round.

    Attributes:
        name: What the run is called, after its folder.
        folder: The run folder.
        fingerprint: Twelve hexadecimal digits that stand for ``parameters``.
        parameters: The resolved configuration, without secrets and what concerns the machine.
        rounds_done: Rounds before this process; more than 0 for a resumed run.
        kept: What the tracker returned when the run was begun; empty for a new one. It comes from the run
            folder, which may be somebody else's: check it.
    """

    name: str
    folder: Path
    fingerprint: str
    parameters: Mapping[str, Parameter]
    rounds_done: int
    kept: Mapping[str, str]

    def place(self, parent: str | None, inside: str) -> Path:
        """A folder of the run's own: ``inside`` the run folder, or in ``parent`` under the run's name (with a
        number, if others have it); the same one when it is resumed."""
        if parent is None:
            return self.folder / inside
        kept = self.kept.get("name", "")
        if re.fullmatch(re.escape(self.name) + r"(-\d+)?", kept):
            return Path(parent) / kept
        path, attempt = Path(parent) / self.name, 1
        while path.exists():
            attempt += 1
            path = Path(parent) / f"{self.name}-{attempt}"
        return path


class Tracker(ABC):
    """Shows a run elsewhere. An exception of a method leaves the tracker out for the rest of the run.

    ``package``: what must be installed, also the name of fedpriv's extra that brings it; None: nothing.
    ``notes_times``: whether it keeps the time of each round, which tells how long the round took.
    """

    package: str | None = None
    notes_times = True

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse runs that keep a secret which a tracker would give away."""
        names = ", ".join(parts.trackers)
        if parts.settings.publish:
            hint = "of such a run only public/ may be given away, once it has ended"
            yield ConfigError("tracker", names, "none with publish=true", hint)
        if self.notes_times and not parts.settings.runtime.diagnostics:
            yield ConfigError(
                "tracker",
                names,
                "none or csv with runtime.diagnostics=false",
                "others note when a round ended, and how long it took tells how many took part",
            )

    def refuse_unusable(self) -> None:
        """Raise ConfigError where it cannot work here; called before a run loads anything."""
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            raise ConfigError(
                f"tracker={self.package} needs the package {self.package}, which is not installed: "
                f"pip install 'fedpriv[{self.package}]'"
            )

    @abstractmethod
    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        """Begin, or go on with what was tracked of the run; returns what going on needs. Rounds after
        ``run.rounds_done`` that a killed process has tracked come again, with the same values."""

    @abstractmethod
    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        """The finite values of a round, by column of ``metrics.csv``."""

    def flush(self) -> None:
        """Let go of what is pending: called after evaluations and before checkpoints."""

    @abstractmethod
    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        """The run has ended, or was interrupted. ``files``: privacy statement and summary."""

    def close(self) -> None:
        """Called once at the end, also where there was no ``finish`` because something failed."""
