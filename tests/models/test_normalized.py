from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, make_engine
from fedpriv.models.normalized import NormalizedInputs

CHANNELS, SIDE, RECORDS = 3, 4, 6


def layered(engine: str = "auto"):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * SIDE * SIDE, 5))
    model = FlatModel(NormalizedInputs(module, CHANNELS))
    return model, make_engine(model, engine=engine)


def records():
    stream = torch.Generator().manual_seed(1)
    inputs = 3 + torch.randn(RECORDS, CHANNELS, SIDE, SIDE, generator=stream)
    return inputs, torch.randint(5, (RECORDS,), generator=stream)


def test_it_changes_nothing_until_it_is_set_and_then_normalizes_each_channel():
    model, _ = layered()
    inputs, _ = records()
    assert torch.equal(model(inputs), model.module.model(inputs))
    mean, variance = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 1.0, 0.25])
    model.module.set_statistics(mean, variance)
    by_hand = (inputs - mean[None, :, None, None]) / variance.sqrt()[None, :, None, None]
    assert torch.allclose(model(inputs), model.module.model(by_hand), atol=1e-6)


def test_statistics_are_no_parameters_and_are_saved_with_the_weights():
    model, _ = layered()
    assert model.size == CHANNELS * SIDE * SIDE * 5 + 5
    assert list(model.module.state_dict()) == ["mean", "variance", "model.1.weight", "model.1.bias"]


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_per_record_gradients_are_those_behind_the_layer(engine):
    model, behind = layered(engine)
    plain = FlatModel(copy.deepcopy(model.module.model))
    inputs, targets = records()
    model.module.set_statistics(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 1.0, 0.25]))
    owners, kept = torch.tensor([0, 0, 0, 1, 1, 1]), lambda norms, clients: 1 / norms
    found = behind.clipped_sums(inputs, targets, owners, 2, kept)
    normalized = (inputs - model.module.mean[:, None, None]) * model.module.variance.rsqrt()[
        :, None, None
    ]
    expected = make_engine(plain).clipped_sums(normalized, targets, owners, 2, kept)
    assert behind.name == engine
    assert torch.allclose(found.sums, expected.sums, atol=1e-5)
    assert torch.allclose(found.norms, expected.norms, rtol=1e-4)


class Bringing(nn.Linear):
    weight_decay = 0.5

    def record_loss(self, outputs, targets):
        return outputs.sum(1) * self.weight.sum()


def test_what_a_model_brings_is_found_behind_the_layer_and_in_its_copies():
    inner = Bringing(4, 2)
    model = FlatModel(NormalizedInputs(inner, 1))
    assert model.weight_decay == 0.5
    assert model.loss == inner.record_loss
    copied = copy.deepcopy(model.module)
    assert copied.record_loss.__self__ is copied.model
    with pytest.raises(AttributeError):
        model.module.random_records  # noqa: B018
