"""A full disk ends a run in one sentence, and what was done before is there when there is room again."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUN = (
    "algorithm=dp_fl", "rounds=100", "evaluation_interval=1", "epsilon=null", "runtime.plots=false",
    "runtime.progress=none", "runtime.checkpoint_interval=10",
)  # fmt: skip


def limited(folder: Path, most: int, *arguments: str) -> subprocess.CompletedProcess:
    """``fedpriv <arguments>`` in a process that the system lets write no file of more bytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return subprocess.run(
        [sys.executable, "-m", "fedpriv", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("most", "file"), [(3_000, "checkpoint.pt"), (40_000, "clients.csv")], ids=["first", "later"]
)
def test_a_full_disk_is_one_sentence_and_nothing_is_lost(
    most, file, tmp_path, command, ran, assert_same_run
):
    done = limited(tmp_path, most, "train", *RUN, "runtime.run_dir=full")
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert len(lines) == 1, done.stderr
    assert lines[0] == (
        f"fedpriv: full/{file} cannot be written: File too large; when there is room again, continue with "
        "fedpriv train resume=full"
    )
    assert [p.name for p in (tmp_path / "full").rglob("*.tmp")] == []
    assert command("train", "resume=full", "runtime.progress=none").status == 0
    assert_same_run(tmp_path / "full", ran(*RUN).folder)
