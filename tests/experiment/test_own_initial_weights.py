"""Runs with a model of the user's own are repeatable and resumable, wherever it draws its initial weights."""

from __future__ import annotations

import pytest
import torch

MODELS = {
    "build": """
from torch import nn

class Mine:
    def build(self, input_shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
""",
    "module": """
from torch import nn

class Mine(nn.Sequential):
    def __init__(self, inputs, classes):
        super().__init__(nn.Flatten(), nn.Linear(inputs, classes))
""",
    "constructor": """
import torch
from torch import nn

class Mine:
    def __init__(self):
        self.start = torch.randn(10, 64) / 8

    def build(self, input_shape, classes):
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, classes, bias=False))
        module[1].weight.data = self.start.clone()
        return module
""",
}


@pytest.fixture(params=sorted(MODELS))
def own_model(request, tmp_path, monkeypatch):
    """The overrides of a run with a model of one's own."""
    module = f"own_initial_weights_{request.param}"
    (tmp_path / f"{module}.py").write_text(MODELS[request.param])
    monkeypatch.syspath_prepend(str(tmp_path))
    return (
        "algorithm=dp_fl",
        "rounds=3",
        "epsilon=null",
        "~model.seed",
        f"model._target_={module}.Mine",
    )


@pytest.mark.thorough
def test_a_run_is_repeated_and_resumed_bit_for_bit(own_model, train, assert_same_run, tmp_path):
    runs = []
    for name in ("one", "again"):
        torch.manual_seed(torch.seed() % 2**32)  # a process of its own
        runs.append(train(*own_model, name=name).folder)
    assert_same_run(*runs)
    stop = tmp_path / "stop"
    stop.touch()
    part = train(*own_model, f"runtime.stop_file={stop}", name="part").folder
    stop.unlink()
    assert torch.load(part / "checkpoint.pt", weights_only=True)["round"] < 3
    torch.manual_seed(torch.seed() % 2**32)
    assert_same_run(runs[0], train(*own_model, f"resume={part}", name="part").folder)


@pytest.mark.thorough
def test_initial_weights_depend_on_the_seed_alone(own_model, train):
    """Not on noise_seed, nor on anything else that makes another run."""
    snapshots = ("runtime.snapshot_interval=1", "rounds=1")
    starts = []
    for number, more in enumerate([(), ("noise_seed=1",), ("clipper.clip_norm=2",), ("seed=1",)]):
        folder = train(*own_model, *snapshots, *more, name=str(number)).folder
        state = torch.load(folder / "snapshots" / "round000000.pt", weights_only=True)
        starts.append(state["weights"])
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[0], starts[2])
    assert not torch.equal(starts[0], starts[3])
