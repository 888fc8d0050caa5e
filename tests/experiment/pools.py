"""Runs of several processes of which only the first is there: all of a process but its memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.experiment import map_chunks

WITHOUT_TIMES = ("seconds", "cpu_seconds")


@contextmanager
def in_this_process() -> Iterator[list[map_chunks.SharedChunks]]:
    """Let this process compute what pools are sent; yields what shares the chunks of each run.

    Attributes of each: ``sent``, everything that travelled.
    """
    made: list[map_chunks.SharedChunks] = []
    init = map_chunks.SharedChunks.__init__

    def noted(self, runtime):
        init(self, runtime)
        self.sent = []
        made.append(self)

    class Here(map_chunks._Pool):
        def submit(self, *job):
            made[-1].sent += [job] if made[-1].sent else [self._run, job]
            return map_chunks._answer(self._run, *job)

        def result(self, job, seconds):
            return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_chunks, "_Pool", Here)
        patch.setattr(map_chunks.SharedChunks, "__init__", noted)
        yield made


def results(folder: Path) -> dict[str, object]:
    """Everything that must not depend on the number of processes, from a run folder."""
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
