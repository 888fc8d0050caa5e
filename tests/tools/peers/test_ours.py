"""fedpriv's own side: all ways of it do the same work."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from fedpriv.experiment import spread
from fedpriv.tools import bench_workers
from fedpriv.tools.peers import ours

sys.path.append(str(Path(__file__).parents[2] / "experiment"))
from spread_runs import thread_workers


@pytest.fixture
def opened(monkeypatch):
    """The runs that were opened."""
    runs: list[bench_workers.RunRounds] = []

    class Noting(bench_workers.RunRounds):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            runs.append(self)

    monkeypatch.setattr(ours, "RunRounds", Noting)
    return runs


def test_one_core_has_one_way():
    assert [way.name for way in ours.rounds("mlp", 1)] == ["one process of 1 thread"]


def test_all_ways_move_the_same_weights(opened, monkeypatch):
    before = torch.get_num_threads()
    with thread_workers(), ExitStack() as held:
        monkeypatch.setattr(bench_workers, "team_of", spread.team_of)
        for way in ours.rounds("mlp", 2):
            way.opened(held)()
    torch.set_num_threads(before)
    alone, shared = opened
    assert alone.crew is None
    assert shared.crew is not None
    assert len(shared.crew.workers) == 1
    weights = [run.loop.context.model.flat for run in opened]
    assert torch.allclose(*weights, atol=1e-6)
    assert alone.loop.rounds_done == shared.loop.rounds_done == 1


def test_a_round_has_all_clients_and_no_noise(opened):
    with ExitStack() as held:
        (way,) = ours.rounds("mlp", 1)
        way.opened(held)
    loop = opened[0].loop
    assert loop.context.data.records_per_client.tolist() == [50] * 50
    assert loop.schedule.noise_multiplier(0) == 0
