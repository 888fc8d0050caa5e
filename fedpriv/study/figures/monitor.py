"""Progress of a figure's jobs, read from the run folders and so independent of the launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Progress of a job.

    Attributes:
        job: The job.
        state: ``running``, ``waiting`` or ``done``.
        fraction: Share of the budget, or of the rounds, that is spent.
        round: Number of rounds so far.
        accuracy: Last test accuracy, or None.
        auditing: True where the rounds are done, and the audits still run.
    """

    job: Job
    state: str
    fraction: float
    round: int = 0
    accuracy: float | None = None
    auditing: bool = False

    @property
    def words(self) -> str:
        """Progress for a line of output."""
        return "auditing" if self.auditing else f"{100 * self.fraction:.0f} %"


class Monitor:
    """Context manager that shows the jobs while a launcher runs them.

    On a terminal a table moves; elsewhere a line is printed every minute. The end of each job is a line of
    its own.

    Args:
        jobs: Jobs to watch.
        shown: False to print nothing.
    """

    def __init__(self, jobs: Sequence[Job], shown: bool = True):
        self.jobs, self.out = list(jobs), console()
        self._shown = shown
        self._began = time.time()
        self._last_line = self._began
        self._done: set[str] = set()  # labels of jobs whose end was reported
        self._ended: dict[int, Progress] = {}  # index of each job seen to have ended → its progress
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
        """Return the progress of every job now.

        There may be thousands of jobs, so only the folders of jobs under way are read.
        """
        stores = {job.folder.path.parent for job in self.jobs}
        begun = {path for store in stores if store.is_dir() for path in store.iterdir()}
        all_progress = []
        for index, job in enumerate(self.jobs):
            job_progress = self._ended.get(index)
            if job_progress is None and job.folder.path not in begun:
                job_progress = Progress(job, WAITING, 0.0)
            elif job_progress is None:
                job_progress = progress(job, since=self._began)
                if job_progress.state == DONE:
                    self._ended[index] = job_progress
            all_progress.append(job_progress)
        return all_progress

    def _watch(self) -> None:
        """Update the live table every second, or without a terminal print a line every minute."""
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            all_progress = self.look()
            self._report_finished(all_progress)
            if self._live is not None:
                self._live.update(self._frame(all_progress))
            elif time.time() - self._last_line >= _SECONDS_BETWEEN_LINES:
                self._last_line = time.time()
                running = [p for p in all_progress if p.state == RUNNING]
                words = ", ".join(f"{p.job.label} {p.words}" for p in running)
                self.out.print(Text(f"{self._overall(all_progress)}  {words}"))

    def _report_finished(self, all_progress: Sequence[Progress]) -> None:
        """Print a line for each job that ended since the last look."""
        for p in all_progress:
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

    def _overall(self, all_progress: Sequence[Progress]) -> str:
        """Return the number of finished runs, and the remaining time by the pace since the first look."""
        spent, count = sum(p.fraction for p in all_progress), len(all_progress)
        if self._first_fraction is None:
            self._first_fraction = spent
        pace = (spent - self._first_fraction) / max(time.time() - self._began, 1e-9)
        words = f"{sum(p.state == DONE for p in all_progress)} of {counted(count, 'run')} done"
        if pace > 0 and spent < count:
            words += f", about {duration((count - spent) / pace)} left"
        return words

    def _frame(self, all_progress: Sequence[Progress]) -> Table:
        """Return the live table: the overall progress, and a bar for each running job."""
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._overall(all_progress), style="bold"))
        for p in all_progress:
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


def rounds_words(summary: Mapping[str, Any]) -> str:
    """Return the rounds of a finished run and why it ended, such as ``5 rounds, budget spent``."""
    why = {"budget": ", budget spent", "diverged": ", diverged"}.get(summary["stop_reason"], "")
    return f"{counted(summary['rounds'], 'round')}{why}"


def progress(job: Job, since: float) -> Progress:
    """Return the progress of a job, which is ``running`` if its metrics grew after the time ``since``."""
    if job.state == DONE:
        return Progress(job, DONE, 1.0)
    run = StoredRun(job.folder)
    row, rounds = run.last_round, int(run.last_round.get("rounds", 0))
    try:
        moved = run.files.metrics.stat().st_mtime
    except FileNotFoundError:
        return Progress(job, WAITING, 0.0)
    spent = row.get("epsilon") or row.get("epsilon_published")
    shares, settings = [0.0], cast("Mapping[str, float | None]", job.identity)
    if spent and (epsilon := settings.get("epsilon")):
        # ε grows about as the root of the rounds, so the share of the rounds is about the square.
        shares.append((spent / float(epsilon)) ** 2)
    if rounds and (planned := settings.get("rounds")):
        shares.append(rounds / float(planned))
    return Progress(
        job,
        RUNNING if moved >= since else WAITING,
        min(max(shares), 1.0),
        rounds,
        row.get("test_accuracy"),
        run.finished,
    )
