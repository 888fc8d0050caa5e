from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.engine import FlatModel, channels_last, cross_entropy


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4))


def test_parameters_lie_in_one_vector_in_their_order():
    module = network()
    expected = torch.cat([p.detach().flatten() for p in module.parameters()])
    model = FlatModel(module)
    assert model.size == expected.numel()
    assert torch.equal(model.flat, expected)
    for p in model.parameters():
        assert p.untyped_storage().data_ptr() == model.flat.untyped_storage().data_ptr()


def test_the_outputs_are_those_of_the_module():
    x = torch.randn(5, 2, 5, 5)
    expected = network()(x)
    torch.testing.assert_close(FlatModel(network())(x), expected)


def test_setting_the_weights_changes_the_outputs():
    model, x = FlatModel(network()), torch.randn(5, 2, 5, 5)
    model.set(torch.zeros(model.size))
    assert not model(x).any()


def test_writing_into_the_vector_changes_the_parameters():
    model = FlatModel(network())
    model.flat.add_(1.0)
    assert torch.equal(model.parameters()[0].flatten(), model.flat[: 2 * 3 * 9])


def test_evaluate_is_the_mean_loss_and_accuracy_whatever_the_batch():
    model = FlatModel(network())
    x, y = torch.randn(11, 2, 5, 5), torch.randint(0, 4, (11,))
    outputs = model(x).detach()
    for batch in (1, 4, 11, 100):
        loss, accuracy = model.evaluate(x, y, batch)
        assert loss == pytest.approx(functional.cross_entropy(outputs, y).item(), rel=1e-5)
        assert accuracy == (outputs.argmax(1) == y).double().mean().item()


def test_evaluate_turns_dropout_off_and_restores_the_mode():
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)))
    x, y = torch.randn(9, 3), torch.randint(0, 2, (9,))
    assert model.evaluate(x, y) == model.evaluate(x, y)
    assert model.module.training
    model.module.eval()
    model.evaluate(x, y)
    assert not model.module.training


def test_evaluate_on_no_record():
    loss, accuracy = FlatModel(network()).evaluate(torch.zeros(0, 2, 5, 5), torch.zeros(0).long())
    assert math.isnan(loss)
    assert math.isnan(accuracy)


def with_loss(module: nn.Module, weight_decay: float = 0.0) -> FlatModel:
    module.record_loss = lambda outputs, targets: (outputs.squeeze(1) - targets).square()
    module.weight_decay = weight_decay
    return FlatModel(module)


def test_the_loss_of_a_model_is_cross_entropy_unless_it_brings_its_own():
    assert FlatModel(network()).loss is cross_entropy
    model = with_loss(nn.Linear(3, 1))
    x, y = torch.randn(9, 3), torch.randint(0, 2, (9,))
    expected = (model(x).squeeze(1) - y).square().mean().item()
    assert model.evaluate(x, y, 4)[0] == pytest.approx(expected, rel=1e-6)


def test_half_of_lambda_times_the_squared_norm_of_the_weights_is_part_of_the_loss():
    plain, decayed = with_loss(nn.Linear(3, 1)), with_loss(nn.Linear(3, 1), 0.3)
    decayed.set(plain.flat)
    x, y = torch.randn(9, 3), torch.randint(0, 2, (9,))
    expected = plain.evaluate(x, y)[0] + 0.15 * plain.flat.square().sum().item()
    assert decayed.evaluate(x, y)[0] == pytest.approx(expected, rel=1e-6)


def test_the_penalty_is_that_of_each_row_of_weights():
    model = with_loss(nn.Linear(3, 1), 0.5)
    weights = torch.arange(8.0).reshape(2, 4)
    torch.testing.assert_close(model.penalty(weights), torch.tensor([3.5, 31.5]))


def test_a_single_output_is_a_score_positive_for_class_one():
    model = with_loss(nn.Linear(1, 1, bias=False))
    model.set(torch.ones(1))
    inputs = torch.tensor([[-2.0], [-0.1], [0.0], [0.1], [5.0]])
    assert model.evaluate(inputs, torch.tensor([0, 0, 0, 1, 1]))[1] == 1.0
    assert model.evaluate(inputs, torch.tensor([0, 1, 0, 0, 1]))[1] == 0.6


def test_a_model_may_say_what_accuracy_counts():
    module = nn.Linear(3, 2)
    module.record_correct = lambda outputs, targets: (targets, torch.full_like(targets, 2))
    targets = torch.tensor([1, 0, 2, 1])
    module.record_loss = lambda outputs, targets: outputs.sum(1)
    for batch in (1, 3, 100):
        assert FlatModel(module).evaluate(torch.randn(4, 3), targets, batch)[1] == 0.5


@pytest.mark.parametrize("weight_decay", [-0.1, float("inf"), float("nan")])
def test_a_weight_decay_that_is_none_is_refused(weight_decay):
    with pytest.raises(ValueError, match="weight_decay"):
        with_loss(nn.Linear(3, 1), weight_decay)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_laid_out_with_channels_innermost(channels):
    x = torch.randn(4, channels, 6, 5)
    y = channels_last(x)
    assert torch.equal(x, y)
    assert y.stride() == (30 * channels, 1, 5 * channels, channels)
    assert channels_last(y).data_ptr() == y.data_ptr()


def test_other_inputs_keep_their_layout():
    x = torch.randn(4, 3)
    assert channels_last(x) is x


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="parameters"):
        FlatModel(nn.ReLU())


def test_parameters_of_two_types_are_refused():
    with pytest.raises(ConfigError, match="one dtype"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
