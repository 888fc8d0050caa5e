"""Frozen parameters of a model: nothing clips, noises, sends or moves them."""

from __future__ import annotations

import pytest
import torch

from fedpriv.experiment import snapshots
from fedpriv.store.folder import RunFolder

MODEL = """
from torch import nn, tanh


class Frozen(nn.Module):
    weight_decay = 0.1

    def __init__(self, inputs, classes):
        super().__init__()
        self.first, self.base = nn.Linear(inputs, 4), nn.Linear(4, 16)
        self.head = nn.Linear(16, classes)
        for p in self.base.parameters():
            p.requires_grad_(False)
        {also}

    def forward(self, x):
        return self.head(tanh(self.base(tanh(self.first(x.flatten(1))))))
"""
WHOLE_LAYERS, PARTS_OF_LAYERS = "pass", "self.head.bias.requires_grad_(False)"
ROUNDS = ("epsilon=null", "dataset=digits", "partition=iid", "partition.clients=20", "rounds=2")
QUICK = ("runtime.snapshot_interval=1", "runtime.plots=false", "runtime.run_dir=run")
BASE = slice(260, 340)  # after the 64 * 4 + 4 weights of the first layer
NOISE = "noise_schedule.noise_multiplier=4"


@pytest.fixture
def run(command, tmp_path):
    """(what else is frozen, overrides) → the outcome of a run."""
    name = "frozen_" + "".join(c for c in tmp_path.name if c.isalnum())

    def go(also, *overrides):
        (tmp_path / f"{name}.py").write_text(MODEL.format(also=also))
        return command("train", *ROUNDS, *QUICK, f"model._target_={name}.Frozen", *overrides)

    return go


def moved(tmp_path) -> torch.Tensor:
    """Mask of the weights that two rounds moved, in the order of the module's parameters."""
    folder = RunFolder(tmp_path / "run")
    first, last = (snapshots.load(folder, r).weights for r in (0, 2))
    return first != last


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=dp_fl", NOISE),
        ("algorithm=dp_fl_server", NOISE, "clipper=per_layer"),
        ("algorithm=cdp_fedavg", NOISE),
        ("algorithm=ldp_fedsgd", "algorithm.clients_per_round=10"),
        ("algorithm=ddp_fedavg", "epsilon=8"),
        ("algorithm=dp_ftrl", "epsilon=8", "algorithm.min_separation=2"),
        ("algorithm=dp_scaffold", NOISE),
        ("algorithm=fedavg",),
    ],
    ids=lambda overrides: overrides[0],
)
def test_no_algorithm_moves_them(overrides, run, tmp_path):
    outcome = run(WHOLE_LAYERS, *overrides)
    assert outcome.status == 0, outcome.err
    mask = moved(tmp_path)
    assert len(mask) == 510
    assert not mask[BASE].any()
    mask[BASE] = True
    assert mask.all()
    initial = torch.load(tmp_path / "run/snapshots/round000000.pt", weights_only=True)["weights"]
    saved = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert torch.equal(saved["base.weight"].flatten(), initial[260:324])
    assert "430 of 510 parameters train" in " ".join(outcome.out.replace("│", " ").split())


def test_a_layer_may_be_frozen_in_part(run, tmp_path):
    outcome = run(PARTS_OF_LAYERS, "algorithm=dp_fl", NOISE)
    assert outcome.status == 0, outcome.err
    mask = moved(tmp_path)
    assert not mask[BASE].any()
    assert not mask[-10:].any()
    assert int(mask.sum()) == 420


def test_a_model_that_trains_nothing_is_refused(run):
    outcome = run("self.requires_grad_(False)", "algorithm=dp_fl", NOISE)
    assert "model needs parameters that train" in outcome.sentence
