"""The vectorised gradients of accelerators, on the CPU, against clients one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, StackedModel, vectorized
from fedpriv.engine.flat_model import cross_entropy
from fedpriv.models import Cnn, CnnEmnist

SHAPE, CLASSES, CLIENTS, RECORDS = (1, 8, 8), 10, 4, 5
PRESENT = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=torch.bool
)


class Sorted(nn.Sequential):
    """A sequence with a forward pass of its own."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).sort(0).values


def normed() -> nn.Module:
    layers = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, CLASSES))


MODELS = {
    "cnn": lambda: Cnn(seed=0).build(SHAPE, CLASSES),
    "cnn_emnist": lambda: CnnEmnist(seed=0).build(SHAPE, CLASSES),
    "group norm": normed,
    "a sequence in a sequence": lambda: nn.Sequential(normed(), nn.ReLU()),
}
OTHERS = {
    "batch norm": lambda: nn.Sequential(nn.BatchNorm2d(1), normed()),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5), normed()),
    "own forward": lambda: Sorted(normed()),
    "own module": lambda: nn.Sequential(type("Own", (nn.Linear,), {})(8, 8), normed()),
}


def clients(model: FlatModel) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(1)
    weights = model.flat + 0.1 * torch.randn(CLIENTS, model.size, generator=stream)
    inputs = torch.randn(CLIENTS, RECORDS, *SHAPE, generator=stream)
    return weights, inputs, torch.randint(CLASSES, (CLIENTS, RECORDS), generator=stream)


@pytest.mark.parametrize("at_once", [1, 10, 8192])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_losses_are_those_of_clients_one_by_one(name, at_once, monkeypatch):
    monkeypatch.setattr(vectorized, "_RECORDS_AT_ONCE", at_once)
    model = FlatModel(MODELS[name]())
    assert vectorized.is_vectorizable(model, model.loss)
    weights, inputs, targets = clients(model)
    before = model.flat.clone()
    expected, expected_losses = StackedModel(model).gradients(weights, inputs, targets, PRESENT)
    share = PRESENT / PRESENT.sum(1, keepdim=True).clamp_min(1)
    with torch.no_grad():
        found, losses = vectorized.gradients(model, model.loss, weights, inputs, targets, share)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(losses[PRESENT], expected_losses[PRESENT])
    assert torch.equal(model.flat, before)
    assert not any(t.requires_grad for t in (found, losses))


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_go_client_by_client(name):
    model = FlatModel(OTHERS[name]())
    assert not vectorized.is_vectorizable(model, model.loss)


def test_other_losses_and_frozen_models_go_client_by_client():
    model = FlatModel(normed())
    assert not vectorized.is_vectorizable(model, lambda outputs, targets: outputs.sum(1))
    frozen = normed()
    next(frozen.parameters()).requires_grad_(False)
    assert not vectorized.is_vectorizable(FlatModel(frozen), cross_entropy)
