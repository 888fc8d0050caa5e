"""A full disk ends a run in one sentence, and what was done before is there when there is room again."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedpriv.store import folder

RUN = (
    "algorithm=dp_fl", "rounds=100", "evaluation_interval=1", "epsilon=null", "runtime.plots=false",
    "runtime.progress=none", "runtime.checkpoint_interval=10",
)  # fmt: skip


@contextmanager
def files_of_at_most(most: int) -> Iterator[None]:
    """Context in which the system lets this process write no file of more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("most", "file"), [(3_000, "checkpoint.pt"), (40_000, "clients.csv")], ids=["first", "later"]
)
def test_a_full_disk_is_one_sentence_and_nothing_is_lost(
    most, file, tmp_path, command, ran, assert_same_run, monkeypatch
):
    monkeypatch.setattr(folder, "commit", lambda: None)  # git would leave a lock it could not write
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # else Python keeps half a compiled module
    with files_of_at_most(most):
        done = command("train", *RUN, "runtime.run_dir=full")
    assert done.status == 1
    assert done.sentence == (
        f"fedpriv: full/{file} cannot be written: File too large; when there is room again, continue with "
        "fedpriv train resume=full"
    )
    assert [p.name for p in (tmp_path / "full").rglob("*.tmp")] == []
    assert command("train", "resume=full", "runtime.progress=none").status == 0
    assert_same_run(tmp_path / "full", ran(*RUN).folder)


@pytest.mark.thorough
def test_plots_that_find_no_room_are_drawn_when_there_is_some(
    tmp_path, command, ran, assert_same_run, monkeypatch
):
    monkeypatch.setattr(folder, "commit", lambda: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    small = [one for one in RUN if not one.startswith(("runtime.plots", "rounds"))] + ["rounds=2"]
    with files_of_at_most(40_000):
        done = command("train", *small, "runtime.run_dir=full")
    assert done.status == 1
    assert done.sentence.startswith("fedpriv: full/plots/")
    assert done.sentence.endswith(
        ".png cannot be written: File too large (no round is lost); continue with fedpriv train resume=full"
    )
    drawn = (tmp_path / "full" / "plots").iterdir()
    assert all(
        path.read_bytes().endswith(b"IEND\xaeB`\x82") for path in drawn
    )  # whole or not there
    assert not (tmp_path / "full" / "summary.json").exists()  # else it would count as finished
    assert command("train", "resume=full", "runtime.progress=none").status == 0
    assert (tmp_path / "full" / "plots" / "accuracy_by_round.png").exists()
    assert_same_run(tmp_path / "full", ran(*small, "runtime.plots=false").folder)


def test_memory_that_runs_out_while_the_report_is_written_loses_nothing(
    command, monkeypatch, tmp_path
):
    def plot(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.store.run_plots.plot_run", plot)
        done = command(
            "train", "algorithm=dp_fl", "rounds=2", "runtime.progress=none", "runtime.run_dir=r"
        )
    assert (done.status, done.sentence) == (
        1,
        "fedpriv: there is not enough memory (no round is lost); continue with fedpriv train resume=r",
    )
    assert command("train", "resume=r", "runtime.progress=none", "runtime.plots=false").status == 0
