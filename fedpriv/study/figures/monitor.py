"""Progress of a figure's jobs, read from the run folders and so independent of the launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.text import Text

from fedpriv.common.words import counted
from fedpriv.store.display import console, duration
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.jobs import DONE, Job

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_LINES = 60.0
RUNNING, AUDITING, WAITING = "running", "auditing", "waiting"


class Monitor:
    """Context manager that tells of the jobs while a launcher runs them.

    The end of each job is a line of its own, and every minute a line tells how far the others are.

    Args:
        jobs: Jobs to watch.
        shown: False to print nothing.
    """

    def __init__(self, jobs: Sequence[Job], shown: bool = True):
        self.jobs, self.out = list(jobs), console()
        self._began = time.time()
        self._ended: set[int] = set()  # index of each job whose end was told
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True) if shown else None

    def __enter__(self) -> Monitor:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._look()

    def _look(self) -> list[tuple[Job, str, float]]:
        """Return state and share of every job under way, and print a line for each that ended.

        There may be thousands of jobs, so only the folders of jobs under way are read.
        """
        stores = {job.folder.path.parent for job in self.jobs}
        begun = {path for store in stores if store.is_dir() for path in store.iterdir()}
        under_way = []
        for index, job in enumerate(self.jobs):
            if index in self._ended or job.folder.path not in begun:
                continue
            state, share = progress(job, since=self._began)
            if state != DONE:
                under_way.append((job, state, share))
                continue
            self._ended.add(index)
            summary = StoredRun(job.folder).summary
            accuracy = summary.get("test_accuracy")
            why = {"budget": ", budget spent", "diverged": ", diverged"}
            line = f"[{len(self._ended)}/{len(self.jobs)}] {job.label}: "
            line += counted(summary["rounds"], "round") + why.get(summary["stop_reason"], "")
            line += "" if accuracy is None else f", {100 * accuracy:.2f} %"
            self.out.print(Text(f"{line}, {duration(summary['seconds'] or 0)}"))
        return under_way

    def _watch(self) -> None:
        """Look every second, and print a line every minute, with the remaining time by the pace so far."""
        told, first = self._began, None
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            under_way = self._look()
            spent, count = len(self._ended) + sum(share for *_, share in under_way), len(self.jobs)
            first = spent if first is None else first
            pace = (spent - first) / max(time.time() - self._began, 1e-9)
            if time.time() - told < _SECONDS_BETWEEN_LINES:
                continue
            told = time.time()
            line = f"{len(self._ended)} of {counted(count, 'run')} done"
            if pace > 0 and spent < count:
                line += f", about {duration((count - spent) / pace)} left"
            words = [
                f"{job.label} {'auditing' if state == AUDITING else f'{100 * share:.0f} %'}"
                for job, state, share in under_way
                if state != WAITING
            ]
            self.out.print(Text(f"{line}  {', '.join(words)}"))


def progress(job: Job, since: float) -> tuple[str, float]:
    """Return the state of a job, and the share of the budget, or of the rounds, that is spent.

    A job is ``running`` if its metrics grew after the time ``since``, and ``auditing`` after its rounds.
    """
    if job.state == DONE:
        return DONE, 1.0
    run = StoredRun(job.folder)
    row, rounds = run.last_round, int(run.last_round.get("rounds", 0))
    try:
        moved = run.files.metrics.stat().st_mtime
    except FileNotFoundError:
        return WAITING, 0.0
    spent = row.get("epsilon") or row.get("epsilon_published")
    share, epsilon, planned = 0.0, job.identity.get("epsilon"), job.identity.get("rounds")
    if spent and isinstance(epsilon, int | float) and epsilon:
        # ε grows about as the root of the rounds, so the share of the rounds is about the square.
        share = (spent / epsilon) ** 2
    if rounds and isinstance(planned, int | float) and planned:
        share = max(share, rounds / planned)
    state = AUDITING if run.finished else RUNNING if moved >= since else WAITING
    return state, min(share, 1.0)
