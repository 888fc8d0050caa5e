"""Progress over the jobs of a figure, read from their run folders: the same for every launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedpriv.common.words import counted
from fedpriv.store.display import console, duration
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.jobs import DONE, Job

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_LINES = 60.0
RUNNING, WAITING = "running", "waiting"


@dataclass(frozen=True)
class Progress:
    """How far a job is: its state and the share of its budget or rounds that is spent; ``auditing``: the
    rounds are done."""

    job: Job
    state: str
    fraction: float
    round: int = 0
    accuracy: float | None = None
    auditing: bool = False

    @property
    def words(self) -> str:
        return "auditing" if self.auditing else f"{100 * self.fraction:.0f} %"


class Monitor:
    """Context that shows the jobs while a launcher runs them."""

    def __init__(self, jobs: Sequence[Job], shown: bool = True):
        self.jobs, self.out = list(jobs), console()
        self._shown = shown
        self._began = time.time()
        self._last_line = self._began
        self._done: set[str] = set()  # labels of jobs whose end was reported
        self._ended: dict[int, Progress] = {}  # jobs seen to have ended, by their place in the list
        self._first_fraction: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> Monitor:
        if self._shown and self.out.is_terminal:
            self._live = Live(console=self.out, refresh_per_second=2, transient=True)
            self._live.start()
        if self._shown:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        if self._live is not None:
            self._live.stop()
        if self._shown:
            self._report_finished(self.look())

    def look(self) -> list[Progress]:
        """The state of every job now; of thousands, only those that are under way are read."""
        begun = _inside({job.folder.path.parent for job in self.jobs})
        seen = []
        for place, job in enumerate(self.jobs):
            found = self._ended.get(place)
            if found is None and job.folder.path not in begun:
                found = Progress(job, WAITING, 0.0)
            elif found is None:
                found = progress(job, since=self._began)
                if found.state == DONE:
                    self._ended[place] = found
            seen.append(found)
        return seen

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            seen = self.look()
            self._report_finished(seen)
            if self._live is not None:
                self._live.update(self._frame(seen))
            elif time.time() - self._last_line >= _SECONDS_BETWEEN_LINES:
                self._last_line = time.time()
                running = [p for p in seen if p.state == RUNNING]
                words = ", ".join(f"{p.job.label} {p.words}" for p in running)
                self.out.print(Text(f"{self._overall(seen)}  {words}"))

    def _report_finished(self, seen: Sequence[Progress]) -> None:
        """A line for each job that ended since the last look."""
        for p in seen:
            if p.state == DONE and p.job.label not in self._done:
                self._done.add(p.job.label)
                summary = StoredRun(p.job.folder).summary
                accuracy = summary.get("test_accuracy")
                reached = "" if accuracy is None else f", {100 * accuracy:.2f} %"
                self.out.print(
                    Text(
                        f"[{len(self._done)}/{len(self.jobs)}] {p.job.label}: "
                        f"{rounds_words(summary)}{reached}, {duration(summary['seconds'] or 0)}"
                    )
                )

    def _overall(self, seen: Sequence[Progress]) -> str:
        done = sum(p.fraction for p in seen)
        if self._first_fraction is None:
            self._first_fraction = done
        pace = (done - self._first_fraction) / max(time.time() - self._began, 1e-9)
        words = f"{sum(p.state == DONE for p in seen)} of {counted(len(seen), 'run')} done"
        if pace > 0 and done < len(seen):
            words += f", about {duration((len(seen) - done) / pace)} left"
        return words

    def _frame(self, seen: Sequence[Progress]) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._overall(seen), style="bold"))
        for p in seen:
            if p.state != RUNNING:
                continue
            reached = "" if p.accuracy is None else f"{100 * p.accuracy:.2f} %"
            table.add_row(
                Text(p.job.label, style="cyan"),
                ProgressBar(total=1.0, completed=p.fraction, width=30),
                "auditing" if p.auditing else f"round {p.round}",
                reached,
            )
        return table


def _inside(folders: Iterable[Path]) -> set[Path]:
    """What the folders hold."""
    return {path for folder in folders if folder.is_dir() for path in folder.iterdir()}


def rounds_words(summary: Mapping[str, Any]) -> str:
    """``5 rounds, budget spent``."""
    why = {"budget": ", budget spent", "diverged": ", diverged"}.get(summary["stop_reason"], "")
    return f"{summary['rounds']} round{'' if summary['rounds'] == 1 else 's'}{why}"


def progress(job: Job, since: float) -> Progress:
    """How far a job is; ``running`` if its metrics grew after the time ``since``."""
    if job.state == DONE:
        return Progress(job, DONE, 1.0)
    run = StoredRun(job.folder, tolerant=True)
    row, rounds = run.last_round, int(run.last_round.get("rounds", 0))
    try:
        moved = run.files.metrics.stat().st_mtime
    except FileNotFoundError:
        return Progress(job, WAITING, 0.0)
    spent = row.get("epsilon") or row.get("epsilon_published")
    shares, asked = [0.0], cast("Mapping[str, float | None]", job.identity)
    if spent and (epsilon := asked.get("epsilon")):  # ε grows about as the root of the rounds
        shares.append((spent / float(epsilon)) ** 2)
    if rounds and (planned := asked.get("rounds")):
        shares.append(rounds / float(planned))
    return Progress(
        job,
        RUNNING if moved >= since else WAITING,
        min(max(shares), 1.0),
        rounds,
        row.get("test_accuracy"),
        run.finished,
    )
