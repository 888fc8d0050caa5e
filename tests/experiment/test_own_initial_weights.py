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
