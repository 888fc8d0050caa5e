"""The observer that passes a run on to its trackers. A tracker that fails is left out; the run goes on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from omegaconf import DictConfig

from fedpriv.common import config as configuration
from fedpriv.common.errors import show
from fedpriv.common.files import write_json
from fedpriv.experiment.instantiate import first_line
from fedpriv.experiment.loop import Round
from fedpriv.experiment.observers import Quiet
from fedpriv.experiment.running import Run
from fedpriv.experiment.trackers import TrackedRun, Tracker
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun

_LEFT_OUT = ("dataset.path",)  # it tells about the machine
_SECRET = re.compile(
    r"(^|_)(secret|password|token|credentials|(api|secret)_?key)($|_)", re.IGNORECASE
)
"""Names of keys of the user's own parts whose values are secret."""


class Tracking(Quiet):
    """An observer that gives every tracker the rows of ``metrics.csv``.

    Args:
        trackers: The trackers by name.
        run: The run.
        config: Its configuration.
        warn: Shows a line to the user.
    """

    name = "tracking"

    def __init__(
        self,
        trackers: Mapping[str, Tracker],
        run: Run,
        config: DictConfig,
        warn: Callable[[str], None],
    ):
        self._active, self._run, self._config, self._warn = dict(trackers), run, config, warn
        self._interval = run.loop.settings.runtime.checkpoint_interval

    def open(self) -> None:
        """Begin with every tracker, before the time of the run counts.

        What the trackers return is written to the run folder, for a resumed run. The user is told of trackers
        that the run had before and has no longer.
        """
        folder = self._run.folder
        kept = StoredRun(folder).trackers
        if no_longer := sorted({*kept} - {*self._active}):
            self._warn(
                f"note: this run was tracked by {show(', '.join(no_longer))}; tracking goes on only where "
                "you ask for it again (tracker=...)"
            )
        if not self._active:
            return
        parameters = parameters_of(self._config)
        for name in list(self._active):
            run = TrackedRun(
                name=_name_of(folder),
                folder=folder.path,
                fingerprint=configuration.fingerprint(parameters),
                parameters=parameters,
                rounds_done=self._run.loop.rounds_done,
                kept=kept.get(name, {}),
            )

            def begin(tracker: Tracker, run: TrackedRun = run, name: str = name) -> None:
                kept[name] = dict(tracker.begin(run))

            self._ask(name, begin)
        write_json(folder.trackers, kept)

    def see(self, done: Round) -> None:
        if not self._active:
            return
        row, shown = self._run.metrics.row, self._run.metrics.table.columns
        values = {
            key: float(row[key])
            for key in row
            if key in shown and key != "round" and _finite(row[key])
        }
        # Trackers come before checkpoints: what a checkpoint takes for tracked has been flushed.
        pause = done.evaluation is not None or done.number % self._interval == 0
        for name in list(self._active):
            self._ask(name, lambda tracker: tracker.log(done.number, values))
            if pause:
                self._ask(name, lambda tracker: tracker.flush())

    def finish(self, summary: Mapping[str, Any], stop_reason: str) -> None:
        """Give every tracker the summary and the privacy statement, once the report is written."""
        folder = self._run.folder
        files = [folder.privacy_text, folder.privacy_json, folder.summary]
        plain = {key: _plain(value) for key, value in summary.items() if value is not None}
        for name in list(self._active):
            self._ask(name, lambda tracker: tracker.finish(plain, files, stop_reason))
        self.close()

    def close(self) -> None:
        """Close every tracker, however the run ended."""
        for name in list(self._active):
            self._ask(name, lambda tracker: tracker.close())
            self._active.pop(name, None)

    def _ask(self, name: str, call: Callable[[Tracker], object]) -> None:
        """Call a tracker. If it fails, whatever its package or its server raise, it is not called again."""
        tracker = self._active.get(name)
        if tracker is None:
            return
        try:
            call(tracker)
        except (Exception, SystemExit) as error:
            del self._active[name]
            self._warn(
                f"warning: tracker {name} failed and is left out from here on; the run goes on "
                f"({type(error).__name__}: {show(first_line(error))})"
            )
            with suppress(Exception, SystemExit):
                tracker.close()


def parameters_of(config: DictConfig) -> dict[str, Any]:
    """Return the identity of a run as plain values, without secrets and without the folder of the data.

    Args:
        config: The configuration.
    """
    return {
        key: _plain(value)
        for key, value in configuration.identity(config).items()
        if key not in _LEFT_OUT and not _SECRET.search(key.rpartition(".")[2])
    }


def _plain(value: object) -> str | int | float | bool:
    """Return a number or a text. Numbers that are not finite become text, as few trackers take them."""
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return json.dumps(value, default=str)


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _name_of(folder: RunFolder) -> str:
    """Return the name of a run, after its folder; for a job of a sweep (``<date>/0``) after both folders."""
    path = folder.path.resolve()
    return f"{path.parent.name}-{path.name}" if path.name.isdigit() else path.name
