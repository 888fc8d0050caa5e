"""Figures on Ray: whatever happens to a worker, the same command ends in the same figure."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("ray")

RAY = "hydra/launcher=ray"


def worker_of(run: Path) -> int:
    """The process that has the folder of a run open, which is its lock."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.resolve(strict=True) == run:
                return int(link.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody runs {run}")


def test_a_figure_is_that_of_one_process(place):
    status, said = place.make(RAY)
    assert status == 0, said
    place.assert_whole()


def test_ray_starts_a_killed_worker_again_and_its_run_goes_on(place):
    child = place.begin(RAY)
    run = min((place.outputs / "runs").iterdir())
    os.kill(worker_of(run), signal.SIGKILL)
    status, err = place.end(child)
    assert status == 0, err
    place.assert_whole()
    assert place.whole_rounds <= place.rounds_run <= place.whole_rounds + 2  # since its checkpoint


def test_ctrl_c_stops_the_workers_with_checkpoints(place):
    child = place.begin(RAY)
    child.send_signal(signal.SIGINT)
    status, err = place.end(child)
    assert status == 130, err
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in err
    status, said = place.make(RAY)
    assert status == 0, said
    assert "2 to be resumed" in said
    place.assert_whole()
    assert place.rounds_run == place.whole_rounds


def test_after_the_kill_of_the_command_it_goes_on(place):
    child = place.begin(RAY)
    child.kill()
    child.communicate()
    place.hold.unlink()
    status, said = place.make(RAY)
    assert status == 0, said
    place.assert_whole()
