"""Runs whose workers are threads of the test's process: all of a worker but its process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.common.errors import WorkerError
from fedpriv.experiment import spread, worker
from fedpriv.workers.link import Link, LostError

WITHOUT_TIMES = ("seconds", "cpu_seconds")


class NotingLink(Link):
    """A link that notes what comes."""

    def __init__(self, seen: list[dict], *arguments):
        super().__init__(*arguments)
        self._seen = seen

    def receive(self, seconds: float | None = None) -> dict:
        self._seen.append(super().receive(seconds))
        return self._seen[-1]


class ThreadMember(spread._Member):
    """A worker in a thread.

    Attributes:
        seen: Messages that came to it.
    """

    def __init__(self, rank: int):
        super().__init__(rank)
        self.seen: list[dict] = []

    def start(self) -> None:
        """Start nothing: the thread begins with the link."""

    def _open(self) -> None:
        here, there = socket.socketpair()
        link = NotingLink(self.seen, there, spread.CLASSES)
        threading.Thread(
            target=self._serve, args=(link,), name=f"rank {self.rank}", daemon=True
        ).start()
        self.link = Link(here, spread.CLASSES, self._device)

    def _serve(self, link: Link) -> None:
        with suppress(LostError):
            worker.serve(link, self.rank)

    def lost(self, error: LostError) -> WorkerError:
        self.link = None
        return WorkerError(f"rank {self.rank} is lost: {error}")

    def kill(self) -> None:
        self.link = None

    def close(self) -> None:
        if self.link is not None:
            self.link.send({"over": True})

    def begin_again(self) -> None:
        raise WorkerError(f"rank {self.rank} is lost")


@contextmanager
def thread_workers() -> Iterator[list[spread.Team]]:
    """Let runs of several processes have threads for workers; yields the teams of these runs."""
    teams: list[spread.Team] = []

    def team_of(settings):
        if settings.runtime.workers == 1:
            return None
        members = [ThreadMember(rank) for rank in range(1, settings.runtime.workers)]
        teams.append(spread.Team(members, settings))
        return teams[-1]

    building = threading.Lock()  # threads share torch's generator, which makes the initial weights
    build = worker._Chunks.__init__

    def one_at_a_time(self, *arguments):
        with building:
            build(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread, "team_of", team_of)
        patch.setattr(worker._Chunks, "__init__", one_at_a_time)
        yield teams


def results(folder: Path) -> dict[str, object]:
    """Everything that must not depend on the number of workers, from a run folder."""
    metrics = pd.read_csv(folder / "metrics.csv", dtype=str)
    privacy = json.loads((folder / "privacy.json").read_text())
    found: dict[str, object] = {
        "metrics": metrics.drop(columns=["seconds"], errors="ignore").to_dict("list"),
        "privacy": {k: v for k, v in privacy.items() if k not in WITHOUT_TIMES},
    }
    for name in ("ledger.csv", "clients.csv", "model.pt", "participation.csv"):
        if (folder / name).exists():
            found[name] = (folder / name).read_bytes()
    return found
